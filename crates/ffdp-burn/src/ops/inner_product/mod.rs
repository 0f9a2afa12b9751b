//! The inner product of two fields: what optimisers ask for most, dozens of them an iteration.
//!
//! ```text
//! s = sum_p a_p b_p
//! ```
//! One sweep over both, without their product in memory. Composed from a tensor library's operations (a product, then a
//! sum an axis) it is seven launches; of small fields it is those that take the time.

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};

#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Backend operation of the inner product of two tensors of one shape.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait InnerProductOps: Backend {
    /// The sum of the products, `[1]`.
    #[fusion(dtype = a, shape = { let _ = (a, b); burn::tensor::Shape::from([1]) })]
    fn inner_product_3d(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl<B: InnerProductOps, C: CheckpointStrategy> InnerProductOps for Autodiff<B, C> {
    fn inner_product_3d(_: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        panic!("inner_product: not differentiable; take the fields off the tape (`inner`)")
    }
}

/// The sum of the products of all values of two fields, `[1]`. Not differentiable.
///
/// # Shapes
/// a, b `[N, C, D, H, W]`, off the tape.
///
/// # Errors of the result
/// f32 against f64: 1e-7 of the sum of the products' sizes. Reproducible bit by bit on one device.
///
/// # Panics
/// If the shapes differ, or on the tape.
pub fn inner_product(a: Tensor<5>, b: Tensor<5>) -> Tensor<1> {
    let dims = [a.dims(), b.dims()];
    assert!(dims[0] == dims[1], "inner_product: the shapes must be the same, got {dims:?}");
    let (a, b) = (a.into_dispatch(), b.into_dispatch());
    Tensor::from_dispatch(<Dispatch as InnerProductOps>::inner_product_3d(a, b))
}
