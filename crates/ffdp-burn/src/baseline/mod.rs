//! The fused operations once more, composed from Burn's own tensor operations and differentiated by
//! its autodiff: the yardstick of the benches, and a second opinion on every gradient.
//!
//! The functions have the signatures of their counterparts in [`crate::ops`] and agree with them
//! (`tests.rs` compares values and gradients). They are what a user would write without fused
//! kernels: sampling positions, corner values, window sums and their products are all stored, and
//! stored once more for the backward pass. Use [`crate::ops`] for work.

mod compose;
mod deform;
mod gaussian;
mod grid_sample;
mod label_dice;
mod lncc;
mod mse;
mod mutual_information;
mod regularity;
mod similarity;
#[cfg(test)]
mod tests;

pub use compose::{compose, exp};
pub use deform::deform;
pub use gaussian::gaussian;
pub use grid_sample::{grid_sample, warp};
pub use label_dice::label_dice;
pub use lncc::{BoxFilter, lncc};
pub use mse::mse;
pub use mutual_information::{joint_histogram, mutual_information, normalized_mutual_information};
pub use regularity::{bending_energy, diffusion, jacobian, jacobian_penalty, total_variation};
pub use similarity::{knows, similarity};
