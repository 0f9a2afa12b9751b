//! The fused operations: tensors in, tensors out, each with a hand-derived backward pass.
//!
//! One room per op, and every room has the same shape; read `grid_sample/mod.rs` first:
//! `mod.rs` formula, public function and backend trait · `flex.rs` the CPU (also the oracle) ·
//! `cube.rs` the GPU (CUDA, Vulkan, Metal, WebGPU) · `autodiff.rs` the chain rule · `tests.rs`.
//!
//! Images are `[N, C, D, H, W]`, displacement fields `[N, 3, D, H, W]` with components in the
//! order (x, y, z), in voxels of the field's own grid. See `docs/conventions.md`.

pub mod adam;
pub mod alignment;
pub mod amsgrad;
pub mod compose;
pub mod conv3d;
pub mod deform;
pub mod extremes;
pub mod gaussian;
pub mod grid_sample;
#[cfg(test)]
mod huge;
pub mod information;
pub mod instance_norm;
pub mod inverse;
pub mod jacobian;
pub mod join_conv3d;
pub mod joint_histogram;
pub mod label_dice;
pub mod layer_norm;
pub mod linear;
pub mod lncc;
pub mod mean_pool;
pub mod mse;
pub mod position_bias;
pub mod regularity;
pub mod upsample;
pub mod upsample_conv3d;
pub mod window_attention;
pub mod windows;

pub(crate) mod half;
pub(crate) mod precision;
pub(crate) mod weights;

// What every op is made of.
pub use ffdp_kit::dense;
#[cfg(feature = "persistence")]
pub use ffdp_kit::keep_kernels;
#[cfg(feature = "cube")]
pub(crate) use ffdp_kit::{launch, march, tensor_cores};
pub(crate) use ffdp_kit::{real, vjp};

pub use adam::{AdamOptions, AdamStep, MomentStorage, Moments, adam};
pub use alignment::{AlignmentImages, AlignmentLoss, Outside, alignment};
pub use amsgrad::{AmsGradMoments, AmsGradOptions, amsgrad};
pub use compose::{ComposeOptions, compose, compose_with, exp, exp_with};
pub use conv3d::between::conv3d_between;
pub use conv3d::{conv3d, conv3d_with};
pub use deform::{
    DeformImages, DeformOptions, DeformState, Measure, Method, Optimizer, Penalties, Update, deform,
};
pub use dense::dense_zeros;
pub use gaussian::{GaussianOptions, gaussian};
pub use grid_sample::{Accumulation, GridSampleOptions, Interpolation, Padding, grid_sample, warp};
pub use information::{Information, information_loss};
pub use instance_norm::{InstanceNormOptions, instance_norm, instance_norm_in_parts};
pub use inverse::inverse;
pub use jacobian::{jacobian, jacobian_penalty};
pub use join_conv3d::join_conv3d;
pub use joint_histogram::{
    HistogramMode, HistogramOptions, ParzenKernel, joint_histogram, weighted_joint_histogram,
};
pub use label_dice::{Denominator, LabelDiceOptions, label_dice};
pub use layer_norm::layer_norm;
pub use linear::{Activation, linear};
pub use lncc::{GradientMode, LnccFloor, LnccOptions, LnccWeights, lncc, weighted_lncc};
pub use mean_pool::mean_pool;
pub use mse::mse;
pub use position_bias::position_bias;
pub use precision::Precision;
pub use regularity::{bending_energy, diffusion, total_variation};
pub use upsample::{upsample_x2, upsample_x2_join};
pub use upsample_conv3d::upsample_conv3d;
pub use window_attention::window_attention;
pub use windows::{WindowCut, cut_windows, join_windows};
