//! Mean squared difference of two images, value and gradient.
//!
//! ```text
//! L = mean_p (M(p) - F(p))^2        dL/dM = 2 g (M - F) / n        dL/dF = -dL/dM
//! ```
//! The difference is never stored.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

#[cfg(feature = "cube")]
use ffdp_kit::half::computed;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Backend operations of the squared difference; images of one shape, any rank.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait MseOps: Backend {
    /// `sum (a - b)^2`, `[1]`.
    #[fusion(dtype = computed(a), shape = { let _ = (a, b); burn::tensor::Shape::from([1]) })]
    fn squared_difference(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;

    /// `2 grad (a - b)`, of the shape of `a`; `grad` `[1]`.
    #[fusion(dtype = computed(a), shape = a)]
    fn squared_difference_backward(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

/// Mean squared difference. Differentiable in both images (first order). Images may be f16 or bf16; the
/// result is then f32.
///
/// # Shapes
/// moved, fixed `[N, C, D, H, W]`; result `[1]`.
///
/// # Panics
/// If the shapes differ.
pub fn mse(moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1> {
    let count = moved.shape().num_elements();
    squared_difference_sum(moved, fixed).mul_scalar(1.0 / count as f64)
}

/// `sum (moved - fixed)^2`: the additive part of [`mse`], for losses that are summed over shards.
///
/// # Shapes
/// moved, fixed `[N, C, D, H, W]`; result `[1]`.
///
/// # Panics
/// If the shapes differ.
pub fn squared_difference_sum(moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1> {
    let (a, b) = (moved.dims(), fixed.dims());
    assert!(a == b, "mse: moved {a:?} and fixed {b:?} must have the same shape");
    let (moved, fixed) = (moved.into_dispatch(), fixed.into_dispatch());
    Tensor::from_dispatch(<Dispatch as MseOps>::squared_difference(moved, fixed))
}
