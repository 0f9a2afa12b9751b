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

/// The sum of all values, `[1]`; of rows and planes first, so that no sum is long.
pub fn total(x: Tensor<5>) -> Tensor<1> {
    x.sum_dim(4).sum_dim(3).sum()
}
