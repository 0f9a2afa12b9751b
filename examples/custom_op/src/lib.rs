//! The weighted Charbonnier loss of two volumes: quadratic near 0, linear far away, so that outliers count less
//! than in the mean squared difference.
//!
//! ```text
//! L = 1/n sum_p w(p) rho(a(p) - b(p))          rho(d) = sqrt(d^2 + eps^2) - eps = d^2 / (r + eps)
//! dL/da = g w d / (r n)      dL/db = -dL/da      dL/dw = g rho(d) / n          d = a - b, r = sqrt(d^2 + eps^2)
//! ```
//! The second form of `rho` loses no digits where `d` is small. Differences are never stored.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Backend operations of the loss; volumes of one shape, any rank.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait CharbonnierOps: Backend {
    /// `sum w rho(a - b)`, `[1]`.
    #[fusion(dtype = a, shape = { let _ = (a, b, weights); burn::tensor::Shape::from([1]) })]
    fn charbonnier(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self>;

    /// `grad w d / r`, of the shape of `a`; `grad` `[1]`.
    #[fusion(dtype = a, shape = a)]
    fn charbonnier_to_image(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self>;

    /// `grad rho(d)`, of the shape of `a`; `grad` `[1]`.
    #[fusion(dtype = a, shape = a)]
    fn charbonnier_to_weights(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self>;
}

/// Mean of the weighted Charbonnier differences. Differentiable in both images and in the weights (first order).
/// `epsilon`, in units of the images, is where the loss goes over from quadratic to linear.
///
/// # Shapes
/// moved, fixed, weights `[N, C, D, H, W]`; result `[1]`.
///
/// # Panics
/// If the shapes differ, or `epsilon` is not positive.
pub fn charbonnier(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    weights: Tensor<5>,
    epsilon: f64,
) -> Tensor<1> {
    let (a, b, w) = (moved.dims(), fixed.dims(), weights.dims());
    assert!(
        a == b && a == w,
        "charbonnier: moved {a:?}, fixed {b:?} and weights {w:?} must have the same shape"
    );
    assert!(epsilon > 0.0, "charbonnier: epsilon must be positive, got {epsilon}");
    let count = moved.shape().num_elements();
    let [moved, fixed, weights] = [moved, fixed, weights].map(Tensor::into_dispatch);
    let sum = <Dispatch as CharbonnierOps>::charbonnier(moved, fixed, weights, epsilon);
    Tensor::<1>::from_dispatch(sum).mul_scalar(1.0 / count as f64)
}
