//! What a registration minimises: how unlike two images are, and how rough a displacement is.
//!
//! A [`SimilarityLoss`] is *partial, sum, finish*: partial sums of parts of an image add up to those of
//! the whole, so serial and sharded losses are the same code. Each has a file of its own. [`diffusion`] is the usual
//! regulariser, and [`label_dice_loss`] trains with labels ([`soft_dice`] with memberships). Read
//! `similarity.rs` first.

mod dice;
mod lncc;
mod mse;
mod mutual_information;
mod similarity;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::ops::Measure;
pub use crate::ops::{bending_energy, diffusion, jacobian_penalty, total_variation};
pub use dice::{label_dice_loss, memberships, soft_dice};
pub use lncc::Lncc;
pub use mse::Mse;
pub use mutual_information::{
    MutualInformation, NormalizedMutualInformation, mutual_information,
    normalized_mutual_information,
};
pub use similarity::{Pair, PairGradients, SimilarityLoss, counted};

/// The loss of what the fused iterations improve.
impl From<Measure> for Arc<dyn SimilarityLoss> {
    fn from(measure: Measure) -> Self {
        match measure {
            Measure::Lncc(options) => Arc::new(Lncc(options)),
            Measure::SquaredDifference => Arc::new(Mse),
            Measure::MutualInformation(options) => Arc::new(MutualInformation(options)),
            Measure::NormalizedMutualInformation(options) => {
                Arc::new(NormalizedMutualInformation(options))
            }
        }
    }
}
