//! Mean squared difference by tensor operations.

use burn::Tensor;

/// Mean squared difference; see [`crate::ops::mse()`]. Stores the difference and its square.
///
/// # Shapes
/// moved, fixed `[N, C, D, H, W]`; result `[1]`.
pub fn mse(moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1> {
    let difference = moved - fixed;
    (difference.clone() * difference).mean()
}
