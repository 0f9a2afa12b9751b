//! VoxelMorph: a U-Net that predicts the displacement aligning a pair of volumes.
//!
//! ```text
//! moving, fixed ─ enc 0 ──────────────────────────────── join ─ last ─ flow ─ [squaring] ─ displacement
//!                   └ max ─ enc 1 ──────────── join ─ dec 3 ┘
//!                             └ max ─ enc 2 ─ .. ┘            every join: nearest upsampling by two
//! ```
//! Every unit is a convolution 3^3 with bias and LeakyReLU(0.2). The same layers and number of
//! parameters as the published network (327 331 with its default channels); it integrates
//! velocities at full resolution, where the published one may use half of it.
//!
//! Conventions as those of [`TransMorph`](crate::TransMorph): displacements in voxels of the fixed grid,
//! components (x, y, z), `warped(p) = moving(p + u(p))`.
//!
//! Source: Balakrishnan et al., "VoxelMorph: a learning framework for deformable medical image
//! registration", IEEE TMI 38 (2019), arXiv 1809.05231; Dalca et al., arXiv 1903.03545 (integration).

mod sharded;

use burn::config::Config;
use burn::module::Module;
use burn::tensor::activation::leaky_relu;
use burn::tensor::{Device, Tensor};

use crate::layers::initializer::WeightInit;
use crate::layers::{Conv3d, MaxPool3d};
use crate::ops::Precision;
use crate::padding::{cropped, padded_pair};
use crate::spline_head::{check_spacing, spline_flow};

/// Levels of the U-Net; extents are padded to a multiple of `2^LEVELS`.
const LEVELS: usize = 4;

/// Slope of LeakyReLU for negative values.
const SLOPE: f64 = 0.2;

/// Deviation of the head's initial weights: the untrained flow is nearly zero.
const HEAD_STD: f64 = 1e-5;

/// Which VoxelMorph to build. The defaults are the published channels.
#[derive(Config, Debug, PartialEq, Eq)]
pub struct VoxelMorphConfig {
    /// Channels of the encoder, fine to coarse.
    #[config(default = "[16, 32, 32, 32]")]
    pub encoder: [usize; LEVELS],
    /// Channels of the decoder, coarse to fine.
    #[config(default = "[32, 32, 32, 32]")]
    pub decoder: [usize; LEVELS],
    /// Channels of the last units, at full resolution.
    #[config(default = "[32, 16, 16]")]
    pub last: [usize; 3],
    /// With `Some(steps)` the network predicts a stationary velocity, integrated by `steps`
    /// squarings (7 as published). Default: none.
    pub integration_steps: Option<usize>,
    /// With `Some(spacing)` the head predicts control points of cubic B-splines so many voxels apart, a power of two from 2
    /// to 16, in place of the flow at every voxel. Images in one piece only. Default: none.
    pub control_spacing: Option<usize>,
    /// Of the products in the convolutions. Default: TF32 on GPUs with tensor cores, as PyTorch
    /// computes convolutions by default; f32 on all other devices.
    #[config(default = "Precision::TensorFloat")]
    pub precision: Precision,
    /// Seed of the initial weights.
    #[config(default = 0)]
    pub seed: u64,
}

impl VoxelMorphConfig {
    /// Builds the network on `device`; the weights depend on the seed alone.
    ///
    /// # Panics
    /// If a number of channels is 0, or for control points at a spacing that is none.
    pub fn init(&self, device: &Device) -> VoxelMorph {
        VoxelMorph::new(self, device)
    }
}

/// A convolution with bias and LeakyReLU(0.2).
#[derive(Module, Debug)]
pub struct ConvUnit {
    /// The convolution.
    pub conv: Conv3d,
}

impl ConvUnit {
    pub(super) fn new(
        c_in: usize,
        c_out: usize,
        precision: Precision,
        init: &mut WeightInit,
    ) -> Self {
        assert!(c_out > 0, "VoxelMorph: every number of channels must be at least 1");
        Self { conv: Conv3d::with_bias(c_in, c_out, precision, init) }
    }

    /// Shapes: input `[N, C_in, D, H, W]`; output `[N, C_out, D, H, W]`.
    pub fn forward(&self, x: Tensor<5>) -> Tensor<5> {
        leaky_relu(self.conv.forward(x), SLOPE)
    }
}

/// VoxelMorph. Built by [`VoxelMorphConfig::init`].
#[derive(Module, Debug)]
pub struct VoxelMorph {
    /// Fine to coarse; each is followed by pooling.
    pub encoder: Vec<ConvUnit>,
    /// Coarse to fine; each is followed by upsampling and a join.
    pub decoder: Vec<ConvUnit>,
    /// At full resolution.
    pub last: Vec<ConvUnit>,
    /// Features to flow.
    pub head: Conv3d,
    integration_steps: Option<usize>,
    control_spacing: Option<usize>,
}

impl VoxelMorph {
    fn new(config: &VoxelMorphConfig, device: &Device) -> Self {
        check_spacing("VoxelMorph", config.control_spacing, 1);
        let init = &mut WeightInit::new(config.seed, device);
        let mut channels = 2;
        let mut unit = |channels: &mut usize, c_out: usize| {
            let unit = ConvUnit::new(*channels, c_out, config.precision, init);
            *channels = c_out;
            unit
        };
        let encoder = config.encoder.iter().map(|&c| unit(&mut channels, c)).collect();
        let mut decoder = Vec::with_capacity(LEVELS);
        for (&c, &skip) in config.decoder.iter().zip(config.encoder.iter().rev()) {
            decoder.push(unit(&mut channels, c));
            channels += skip;
        }
        let last = config.last.iter().map(|&c| unit(&mut channels, c)).collect();
        let head = Conv3d::near_zero(channels, 3, HEAD_STD, config.precision, init);
        let &VoxelMorphConfig { integration_steps, control_spacing, .. } = config;
        Self { encoder, decoder, last, head, integration_steps, control_spacing }
    }

    /// The displacement that warps `moving` onto `fixed`.
    ///
    /// Shapes: moving, fixed `[N, 1, D, H, W]` of any size, intensities in about `[0, 1]`; output
    /// `[N, 3, D, H, W]`, components (x, y, z), voxels.
    ///
    /// # Panics
    /// If the shapes differ, have more than one channel or an empty extent.
    pub fn forward(&self, moving: Tensor<5>, fixed: Tensor<5>) -> Tensor<5> {
        let flow = self.flow(moving, fixed);
        match self.integration_steps {
            None => flow,
            Some(steps) => ffdp_burn::ops::compose::exp(flow, steps),
        }
    }

    /// What the head predicts: the displacement itself, or the stationary velocity of a
    /// diffeomorphic network. Shapes and panics as [`VoxelMorph::forward`].
    pub fn flow(&self, moving: Tensor<5>, fixed: Tensor<5>) -> Tensor<5> {
        let dims = moving.dims();
        let mut x = padded_pair("VoxelMorph", moving, fixed, 1 << LEVELS);
        let mut skips = Vec::with_capacity(LEVELS);
        for unit in &self.encoder {
            let features = unit.forward(x);
            x = MaxPool3d.forward(features.clone());
            skips.push(features);
        }
        for (unit, skip) in self.decoder.iter().zip(skips.into_iter().rev()) {
            x = Tensor::cat(vec![nearest_x2(unit.forward(x)), skip], 1);
        }
        let x = self.last.iter().fold(x, |x, unit| unit.forward(x));
        if let Some(spacing) = self.control_spacing {
            return spline_flow(&self.head, x, 1, spacing, [dims[2], dims[3], dims[4]]);
        }
        cropped(self.head.forward(x), dims)
    }
}

/// Every voxel twice along each axis: `[N, C, D, H, W]` to `[N, C, 2D, 2H, 2W]`.
fn nearest_x2(x: Tensor<5>) -> Tensor<5> {
    [2, 3, 4].into_iter().fold(x, |x, axis| {
        let mut dims = x.dims();
        dims[axis] *= 2;
        Tensor::stack::<6>(vec![x.clone(), x], axis + 1).reshape(dims)
    })
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, TensorData};

    use super::*;
    use ffdp_kit::testing::{tensor, uniform};

    fn images(size: [usize; 3], device: &Device) -> [Tensor<5>; 2] {
        let [d, h, w] = size;
        [1, 2].map(|seed| {
            let values = uniform(d * h * w, 0.0, 1.0, seed);
            tensor(&values, [1, 1, d, h, w], device, DType::F32)
        })
    }

    #[test]
    fn the_parameter_count_is_the_published_one() {
        assert_eq!(VoxelMorphConfig::new().init(&Device::flex()).num_params(), 327_331);
    }

    #[test]
    fn upsampling_repeats_voxels() {
        let data = TensorData::new(vec![1f32, 2.], [1, 1, 1, 1, 2]);
        let x = nearest_x2(Tensor::from_data(data, &Device::flex()));
        assert_eq!(x.dims(), [1, 1, 2, 2, 4]);
        let expected = [1f32, 1., 2., 2.].repeat(4);
        assert_eq!(x.into_data().try_to_vec::<f32>().expect("f32"), expected);
    }

    #[test]
    fn the_displacement_has_the_size_of_the_images() {
        let device = Device::flex();
        let config = VoxelMorphConfig::new().with_encoder([2; 4]).with_decoder([2; 4]);
        let config = config.with_last([2; 3]);
        for size in [[16, 16, 16], [17, 20, 33], [1, 9, 40]] {
            let [moving, fixed] = images(size, &device);
            let u = config.init(&device).forward(moving, fixed);
            assert_eq!(u.dims()[2..], size);
            let largest = u.abs().max().into_scalar::<f32>();
            assert!(largest < 1e-3, "an untrained network moves nothing, here {largest} voxel");
        }
    }

    #[test]
    fn every_parameter_learns() {
        let device = Device::flex().autodiff();
        let config = VoxelMorphConfig::new().with_integration_steps(Some(3)).with_seed(1);
        let network = config.init(&device);
        let [moving, fixed] = images([16, 16, 32], &device);
        let u = network.forward(moving.clone(), fixed.clone());
        let moved = ffdp_burn::ops::warp(moving, u);
        let gradients = ffdp_burn::ops::mse(moved, fixed).backward();
        let units = network.encoder.iter().chain(&network.decoder).chain(&network.last);
        for conv in units.map(|unit| &unit.conv).chain([&network.head]) {
            let gradient = conv.weight.val().grad(&gradients).expect("every weight has one");
            assert!(gradient.abs().max().into_scalar::<f32>() > 0.0);
        }
    }
}
