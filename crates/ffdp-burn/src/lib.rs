//! FFDP for Rust: fused 3-D image registration operations as Burn backend extensions.
//!
//! # Map of the crate
//! Arrows point down only (a test in `tests/architecture.rs` enforces it):
//! ```text
//! losses, transform     similarity and regularisation; what a displacement is
//! baseline              the ops from Burn's own tensor operations: the yardstick
//!   > ops               fused kernels with hand-derived gradients
//! ffdp-image            volumes, files, metrics, phantoms: `image`, `io`, `metrics`, `synth`, `error`
//! ```
//! Read `ops/grid_sample/mod.rs` first: every other op is a module of the same shape.

pub mod baseline;
pub mod losses;
pub mod ops;
pub mod transform;

/// The names that most programs need.
pub mod prelude {
    pub use crate::losses::*;
    pub use crate::ops::{
        GaussianOptions, GradientMode, GridSampleOptions, HistogramMode, HistogramOptions,
        LabelDiceOptions, LnccOptions, LnccWeights, MindOptions, ParzenKernel, compose, exp,
        gaussian, grid_sample, jacobian, joint_histogram, label_dice, lncc, mind, mse,
        normalized_gradient, warp, weighted_joint_histogram, weighted_lncc,
    };
    pub use ffdp_image::image::{Geometry, LabelMap, Volume};
    pub use ffdp_image::{Error, Result};
}
