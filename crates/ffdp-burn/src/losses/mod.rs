//! What a registration minimises: how unlike two images are, and how rough a displacement is.
//!
//! A [`SimilarityLoss`] is *partial, sum, finish*: partial sums of parts of an image add up to those of
//! the whole, so serial and sharded losses are the same code. Each has a file of its own in
//! `similarities/`, which also lists what a user can choose. [`diffusion`] is the usual
//! regulariser, and [`label_dice_loss`] trains with labels ([`soft_dice`] with memberships). Read
//! `similarity.rs` first.

mod dice;
pub mod similarities;
mod similarity;
#[cfg(test)]
mod tests;

pub use crate::ops::{bending_energy, diffusion, jacobian_penalty, total_variation};
pub use dice::{label_dice_loss, memberships, soft_dice};
pub use similarities::*;
pub use similarity::{Pair, PairGradients, SimilarityLoss, counted};
