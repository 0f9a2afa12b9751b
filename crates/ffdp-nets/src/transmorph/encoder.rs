use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::Tensor;

use super::config::TransMorphConfig;
use super::patch::PatchEmbed;
use super::plan::StagePlan;
use super::stage::Stage;
use crate::layers::fused::normalise;
use crate::layers::initializer::WeightInit;

/// Images concatenated at the input: moving and fixed.
pub(super) const IMAGES: usize = 2;

/// Swin transformer over patches of 4^3 voxels: four stages, each at half the resolution and twice
/// the channels of the one before.
#[derive(Module, Debug)]
pub struct Encoder {
    /// Volume to tokens.
    pub patch_embed: PatchEmbed,
    /// Finest first.
    pub layers: Vec<Stage>,
    /// Of each stage's output, before merging.
    pub norms: Vec<LayerNorm>,
}

impl Encoder {
    pub(super) fn new(config: &TransMorphConfig, init: &mut WeightInit) -> Self {
        let (channels, depths, heads) =
            (config.variant.channels(), config.variant.depths(), config.variant.heads());
        let patch_embed = PatchEmbed::new(IMAGES, channels, config.precision, init);
        let drop_path = drop_path_ramp(config.drop_path, depths.iter().sum());
        let mut rest = drop_path.as_slice();
        let mut layers = Vec::with_capacity(depths.len());
        for (s, &depth) in depths.iter().enumerate() {
            let (drop_path, later) = rest.split_at(depth);
            rest = later;
            let plan = StagePlan {
                channels: channels << s,
                heads: heads[s],
                window: config.window,
                drop_path,
                merges: s + 1 < depths.len(),
                precision: config.precision,
            };
            layers.push(Stage::new(&plan, init));
        }
        let norms = (0..depths.len())
            .map(|s| LayerNormConfig::new(channels << s).init(init.device()))
            .collect();
        Self { patch_embed, layers, norms }
    }

    /// The normalised output of each stage, finest first.
    ///
    /// Shapes: volume `[N, 2, D, H, W]`; stage s `[N, 2^s C, D/(4 2^s), H/(4 2^s), W/(4 2^s)]`.
    pub fn forward(&self, volume: Tensor<5>) -> Vec<Tensor<5>> {
        let mut tokens = self.patch_embed.forward(volume);
        let mut outputs = Vec::with_capacity(self.layers.len());
        for (stage, norm) in self.layers.iter().zip(&self.norms) {
            tokens = stage.forward(tokens);
            outputs.push(normalise(norm, tokens.clone()).permute([0, 4, 1, 2, 3]));
            if let Some(merge) = &stage.downsample {
                tokens = merge.forward(tokens);
            }
        }
        outputs
    }
}

/// From 0 at the first block to `last` at the last, linearly.
fn drop_path_ramp(last: f64, blocks: usize) -> Vec<f64> {
    (0..blocks).map(|i| last * i as f64 / (blocks - 1).max(1) as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn drop_path_rises_linearly_over_all_blocks() {
        assert_eq!(drop_path_ramp(0.3, 4), [0.0, 0.3 / 3.0, 0.3 * 2.0 / 3.0, 0.3]);
        let net = Encoder::new(
            &TransMorphConfig::tiny().with_drop_path(0.9),
            &mut WeightInit::new(0, &Device::flex()),
        );
        let probs: Vec<f64> =
            net.layers.iter().flat_map(|s| s.blocks.iter().map(|b| b.drop_path.prob)).collect();
        assert_eq!(probs.len(), 10);
        assert!(probs.windows(2).all(|p| (p[1] - p[0] - 0.1).abs() < 1e-12), "{probs:?}");
    }

    #[test]
    fn stages_halve_the_grid_and_double_the_channels() {
        let device = Device::flex();
        let config = TransMorphConfig::tiny().for_size([32, 64, 96]);
        let net = Encoder::new(&config, &mut WeightInit::new(0, &device));
        let outputs = net.forward(Tensor::ones([2, 2, 32, 64, 96], &device));
        let shapes: Vec<[usize; 5]> = outputs.iter().map(|o| o.dims()).collect();
        let expected = [[2, 6, 8, 16, 24], [2, 12, 4, 8, 12], [2, 24, 2, 4, 6], [2, 48, 1, 2, 3]];
        assert_eq!(shapes, expected);
    }
}
