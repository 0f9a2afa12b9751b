//! How much voxels count, off any kernel.

use burn::Tensor;

/// Added to the sum of the weights: where nothing counts, a mean is 0 and not a division by zero.
pub const NO_WEIGHT: f64 = 1e-12;

/// A voxel counts as much as both masks say; without any, all count the same.
pub fn joint_weights(fixed: Option<Tensor<5>>, moved: Option<Tensor<5>>) -> Option<Tensor<5>> {
    match (fixed, moved) {
        (Some(fixed), Some(moved)) => Some(fixed * moved),
        (fixed, moved) => fixed.or(moved),
    }
}
