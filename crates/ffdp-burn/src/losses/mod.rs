//! What a registration minimises: how unlike two images are, and how rough a displacement is.
//!
//! A [`Similarity`] is *partial, sum, finish*: partial sums of parts of an image add up to those of
//! the whole, so serial and sharded losses are the same code. Its gradient is that of the fused
//! operations in [`crate::ops`]; nothing is differentiated here. [`diffusion`] is the usual
//! regulariser, and [`label_dice_loss`] trains with labels ([`soft_dice`] with memberships). Read
//! `similarity.rs` first.

mod dice;
mod mutual_information;
mod similarity;

pub use crate::ops::{bending_energy, diffusion, jacobian_penalty, total_variation};
pub use dice::{label_dice_loss, memberships, soft_dice};
pub use mutual_information::{
    MutualInformation, NormalizedMutualInformation, mutual_information,
    normalized_mutual_information,
};
pub use similarity::{Lncc, Mse, Similarity};
