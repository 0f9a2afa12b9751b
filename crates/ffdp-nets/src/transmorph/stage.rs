use burn::module::Module;
use burn::tensor::Tensor;

use super::attention::WindowContext;
use super::block::SwinBlock;
use super::patch::PatchMerging;
use super::plan::StagePlan;
use super::window::Windows;
use crate::layers::initializer::WeightInit;

/// Blocks on one token grid, alternately with aligned and shifted windows, then the merging that
/// halves the grid (not after the last stage).
#[derive(Module, Debug)]
pub struct Stage {
    /// Aligned, shifted, aligned, ...
    pub blocks: Vec<SwinBlock>,
    /// To the next stage.
    pub downsample: Option<PatchMerging>,
    #[module(skip)]
    window: [usize; 3],
}

impl Stage {
    pub(super) fn new(plan: &StagePlan, init: &mut WeightInit) -> Self {
        let block = |&prob: &f64| SwinBlock::new(plan, prob, init);
        let blocks = plan.drop_path.iter().map(block).collect();
        let downsample =
            plan.merges.then(|| PatchMerging::new(plan.channels, plan.precision, init));
        Self { blocks, downsample, window: plan.window }
    }

    pub(super) fn window(&self) -> [usize; 3] {
        self.window
    }

    /// Shapes: tokens `[N, D, H, W, C]`; output the same.
    pub fn forward(&self, tokens: Tensor<5>) -> Tensor<5> {
        let [_, d, h, w, _] = tokens.dims();
        let device = tokens.device();
        let aligned = WindowContext::new(Windows::aligned([d, h, w], self.window), &device);
        let shifted = WindowContext::new(Windows::shifted([d, h, w], self.window), &device);
        self.blocks.iter().enumerate().fold(tokens, |tokens, (i, block)| {
            block.forward(tokens, if i % 2 == 0 { &aligned } else { &shifted })
        })
    }
}
