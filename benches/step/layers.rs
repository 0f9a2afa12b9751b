//! Every layer of a network alone, the losses, linear layers, and convolutions that other libraries were timed at.

use burn::module::Param;
use burn::tensor::{Device, Distribution, Tensor};
use ffdp::losses::{Lncc, MutualInformation, SimilarityLoss, diffusion};
use ffdp::nets::TransMorph;
use ffdp::nets::layers::Conv3dRelu;
use ffdp::nets::layers::fused::normalise;
use ffdp::nets::transmorph::{DecoderBlock, Stage, WindowContext, Windows};
use ffdp::ops::{
    self, Activation, InstanceNormOptions, Precision, conv3d_with, instance_norm, linear,
};

use super::timing::{Row, Table};
use super::training::{CASES, Case, Problem};

/// One case of each network whose name contains the filter.
pub fn networks(filter: &str) -> Vec<&'static Case> {
    let mut networks: Vec<&Case> = Vec::new();
    for case in CASES.iter().filter(|case| case.name.contains(filter)) {
        let same =
            |other: &&Case| (other.variant, other.resolution) == (case.variant, case.resolution);
        if !networks.iter().any(same) {
            networks.push(case);
        }
    }
    networks
}

/// (inputs, outputs, extents over 160x192x224) of 3^3 convolutions, shared with the peers' tables.
const CONVOLUTIONS: [(usize, usize, usize); 6] =
    [(96, 64, 2), (384, 128, 4), (1536, 512, 16), (80, 16, 1), (16, 16, 1), (16, 3, 1)];

/// (inputs, outputs, extents over 160x192x224) of linear layers: perceptrons of Base's first and last stage.
const LINEAR_LAYERS: [(usize, usize, usize); 4] =
    [(96, 384, 4), (384, 96, 4), (768, 3072, 32), (3072, 768, 32)];

fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device).autodiff().require_grad()
}

impl Problem {
    fn volume(&self, channels: usize, shrink: usize) -> Tensor<5> {
        let [d, h, w] = self.size.map(|extent| extent.next_multiple_of(32) / shrink);
        random([1, channels, d, h, w], &self.device)
    }

    fn tokens(&self, channels: usize, shrink: usize) -> Tensor<5> {
        let [d, h, w] = self.size.map(|extent| extent.next_multiple_of(32) / shrink);
        random([1, d, h, w, channels], &self.device)
    }

    /// The layers of a network, each on random input of its size.
    pub fn layers(&self, case: &Case) -> Vec<Row> {
        let network = case.config(self.size).init(&self.device.clone().autodiff());
        let mut table = Table::new(case.name, &self.device);
        let encoder = &network.encoder;
        let channels = case.variant.channels();
        table.add("patch embedding", 1, self.volume(2, 1), |x| encoder.patch_embed.forward(x));
        for (s, stage) in encoder.layers.iter().enumerate() {
            self.stage(&mut table, s, stage, channels << s, case.config(self.size).window);
            let tokens = self.tokens(channels << s, 4 << s);
            table.add(&format!("stage {s}: norm of the output"), 1, tokens, |t| {
                normalise(&encoder.norms[s], t).permute([0, 4, 1, 2, 3]).mul_scalar(1.0)
            });
        }
        self.decoder(&mut table, &network, channels);
        table.finish()
    }

    fn stage(&self, table: &mut Table, s: usize, stage: &Stage, c: usize, window: [usize; 3]) {
        let tokens = self.tokens(c, 4 << s);
        let [_, d, h, w, _] = tokens.dims();
        let half = stage.blocks.len() / 2;
        let device = tokens.device();
        for (kind, windows) in [
            ("aligned", Windows::aligned([d, h, w], window)),
            ("shifted", Windows::shifted([d, h, w], window)),
        ] {
            let context = WindowContext::new(windows, &device);
            let block = &stage.blocks[1];
            table.add(&format!("stage {s}: {kind} cut and join"), half, tokens.clone(), |t| {
                windows.reverse(windows.partition(t))
            });
            let cut = windows.partition(tokens.clone().inner()).autodiff().require_grad();
            let name = format!("stage {s}: {kind} attention {:?}", cut.dims());
            table.add(&name, half, cut, |x| block.attn.forward(x, &context));
        }
        let block = &stage.blocks[0];
        let all = stage.blocks.len();
        table.add(&format!("stage {s}: norm"), 2 * all, tokens.clone(), |t| {
            normalise(&block.norm1, t)
        });
        table.add(&format!("stage {s}: perceptron"), all, tokens.clone(), |t| block.mlp.forward(t));
        if let Some(merge) = &stage.downsample {
            table.add(&format!("stage {s}: merging"), 1, tokens, |t| merge.forward(t));
        }
    }

    fn decoder(&self, table: &mut Table, network: &TransMorph, c: usize) {
        let decoder = &network.decoder;
        table.add("mean of 2^3", 1, self.volume(2, 1), ops::mean_pool);
        let images = |shrink| self.volume(2, shrink).inner().autodiff();
        table.add("c1", 1, images(2), |x| decoder.c1.forward(x));
        let level =
            |table: &mut Table, name: &str, block: &DecoderBlock, from: usize, to: usize| {
                let joined = channels_in(&block.conv1);
                let skip = self.volume(joined - from, to);
                let name_of = |i: usize, unit| {
                    format!("{name}: unit {i} {}->{}", channels_in(unit), channels_out(unit))
                };
                table.add(&name_of(1, &block.conv1), 1, self.volume(from, 2 * to), |x| {
                    block.conv1.forward_joined(x, skip.clone())
                });
                let own = self.volume(channels_in(&block.conv2), to);
                table.add(&name_of(2, &block.conv2), 1, own, |x| block.conv2.forward(x));
            };
        level(table, "up0", &decoder.up0, 8 * c, 16);
        level(table, "up1", &decoder.up1, 4 * c, 8);
        level(table, "up2", &decoder.up2, 2 * c, 4);
        level(table, "up3", &decoder.up3, c, 2);
        let finest = match &decoder.up4 {
            None => 2,
            Some(up4) => {
                table.add("c2", 1, images(1), |x| decoder.c2.forward(x));
                level(table, "up4", up4, c / 2, 1);
                1
            }
        };
        let whole = self.size.map(|extent| extent.next_multiple_of(32));
        table.add("head", 1, self.volume(16, finest), |x| network.head.forward(x, whole));
    }

    /// Warp and terms of the loss.
    pub fn losses(&self) -> Vec<Row> {
        let mut table = Table::new("losses", &self.device);
        let [d, h, w] = self.size;
        let [moving, fixed] = self.images.clone().map(|image| image.autodiff());
        let field = random([1, 3, d, h, w], &self.device);
        let image = moving.clone().inner().autodiff().require_grad();
        table.add("warp", 1, field.clone(), |u| ops::warp(moving.clone(), u));
        table
            .add("LNCC, window 9", 1, image.clone(), |x| Lncc::transmorph().loss(x, fixed.clone()));
        let information = MutualInformation::default();
        table.add("mutual information", 1, image, |x| information.loss(x, fixed.clone()));
        table.add("diffusion", 1, field.clone(), diffusion);
        table.add("Dice of 36 labels", 1, field, |u| self.overlap(u));
        table.finish()
    }

    /// Convolutions of the table of peers.
    pub fn convolutions(&self) -> Vec<Row> {
        let mut table = Table::new("convolutions 3^3", &self.device);
        for (inputs, outputs, shrink) in CONVOLUTIONS {
            let weight = random([outputs, inputs, 3, 3, 3], &self.device);
            let x = self.volume(inputs, shrink);
            for precision in [Precision::TensorFloat, Precision::Single] {
                let name = format!("{inputs}->{outputs}, extents / {shrink}, {precision:?}");
                let convolve = |x| conv3d_with(x, weight.clone(), [1; 3], precision);
                table.add(&name, 1, x.clone(), convolve);
            }
        }
        table.add("instance norm of 16 channels", 1, self.volume(16, 1), |x| {
            instance_norm(x, &InstanceNormOptions::default())
        });
        table.finish()
    }

    /// Linear layers in both precisions.
    pub fn linear_layers(&self) -> Vec<Row> {
        let mut table = Table::new("linear layers", &self.device);
        for (inputs, outputs, shrink) in LINEAR_LAYERS {
            let weight = random([inputs, outputs], &self.device);
            let x = self.tokens(inputs, shrink);
            for precision in [Precision::TensorFloat, Precision::Single] {
                let name = format!("{inputs}->{outputs}, extents / {shrink}, {precision:?}");
                table.add(&name, 1, x.clone(), |x| {
                    linear(x, weight.clone(), None, Activation::Identity, precision)
                });
            }
        }
        table.finish()
    }
}

fn weight(unit: &Conv3dRelu) -> &Param<Tensor<5>> {
    &unit.conv.weight
}

fn channels_out(unit: &Conv3dRelu) -> usize {
    weight(unit).dims()[0]
}

fn channels_in(unit: &Conv3dRelu) -> usize {
    weight(unit).dims()[1]
}
