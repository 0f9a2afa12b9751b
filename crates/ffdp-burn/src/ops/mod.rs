//! The fused operations: tensors in, tensors out, each with a hand-derived backward pass.
//!
//! One module per op, and every module has the same shape; read `grid_sample/mod.rs` first:
//! `mod.rs` formula, public function and backend trait · `flex.rs` the CPU (also the oracle) ·
//! `cube.rs` the GPU (CUDA, Vulkan, Metal, WebGPU) · `autodiff.rs` the chain rule · `tests.rs`.
//!
//! Images are `[N, C, D, H, W]`, displacement fields `[N, 3, D, H, W]` with components in the
//! order (x, y, z), in voxels of the field's own grid. See `docs/conventions.md`.

pub mod adam;
pub mod affine_field;
pub mod bspline;
pub mod bspline_at;
pub mod bspline_bending;
pub mod bspline_differences;
pub mod bspline_volume;
pub mod bspline_votes;
pub mod combination;
pub mod component_dot;
pub mod compose;
pub mod cubic;
pub mod deform;
pub mod differences;
pub mod discrete;
pub mod extremes;
pub mod fft;
pub mod field_sum;
pub mod gaussian;
pub mod grid_sample;
#[cfg(test)]
mod huge;
pub mod information;
pub mod inner_product;
pub mod inverse;
pub mod jacobian;
pub mod joint_histogram;
pub mod label_dice;
pub mod lncc;
pub mod mind;
pub mod mse;
pub mod normalized_gradient;
pub mod regularity;
pub mod spectral;

#[cfg(test)]
mod half;
pub mod weights;

pub use adam::{AdamOptions, AdamStep, MomentStorage, Moments, adam};
pub use affine_field::affine_field;
pub use bspline::{
    Beyond, ControlGrid, Millimetres, bspline, bspline_part, bspline_pull_back, subdivide,
};
pub use bspline_at::bspline_at;
pub use bspline_bending::{bspline_bending, bspline_bending_with_gradient};
pub use bspline_differences::{DifferencesOptions, bspline_differences};
pub use bspline_volume::{LEAST_DETERMINANT, bspline_volume, bspline_volume_with_gradient};
pub use bspline_votes::{
    Counting, VotesImages, VotesOptions, bspline_votes, bspline_votes_pull_back,
};
pub use combination::combination;
pub use component_dot::component_dot;
pub use compose::{ComposeOptions, compose, compose_with, exp, exp_with};
pub use cubic::{
    PeriodicInterpolation, cubic_coefficients, cubic_coefficients_along, cubic_sample,
    periodic_sample,
};
pub use deform::{
    DeformImages, DeformMethod, DeformOptions, DeformState, Measure, Optimizer, Penalties, Update,
    deform,
};
pub use differences::{periodic_divergence, periodic_gradient};
pub use discrete::{ControlDisplacement, DiscreteOptions, discrete, discrete_rounds};
pub use extremes::{extremes, longest_squared};
pub use fft::{Direction, fft, fft_lines, fft_rows, inverse_fft, inverse_fft_rows, smooth_size};
pub use field_sum::{sum_of_all, sum_of_channels, sum_of_fields};
pub use gaussian::{GaussianOptions, gaussian};
pub use grid_sample::{Accumulation, GridSampleOptions, Interpolation, Padding, grid_sample, warp};
pub use information::{Information, information_loss};
pub use inner_product::{InnerProducts, inner_product, inner_products};
pub use inverse::inverse;
pub use jacobian::{jacobian, jacobian_penalty};
pub use joint_histogram::{
    HistogramMode, HistogramOptions, ParzenKernel, joint_histogram, weighted_joint_histogram,
};
pub use label_dice::{Denominator, LabelDiceOptions, label_dice};
pub use lncc::{GradientMode, LnccFloor, LnccOptions, LnccWeights, lncc, weighted_lncc};
pub use mind::{MindOptions, MindStorage, VarianceBounds, mind, mind_variance, mind_within};
pub use mse::mse;
pub use normalized_gradient::normalized_gradient;
pub use regularity::{bending_energy, diffusion, total_variation};
pub use spectral::{ModeBlock, Symbol, multiply_modes, spectral, spectral_resize};
