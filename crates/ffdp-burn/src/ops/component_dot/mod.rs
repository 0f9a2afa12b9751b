//! The inner product of two vectors at every voxel: how an image changes along a velocity, the length of a slope.
//!
//! ```text
//! y(p) = sum_c a_c(p) b_c(p)
//! ```
//! One sweep, without a product in memory and without a reduction that Burn would have to tune first.

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};
#[cfg(feature = "cube")] // asked for by fusion
use burn::tensor::Shape;

#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Backend operation of the inner products of the components of two fields of one shape.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait ComponentDotOps: Backend {
    /// `[N, 1, D, H, W]`.
    #[fusion(dtype = a, shape = { let _ = b; Shape::from([a[0], 1, a[2], a[3], a[4]]) })]
    fn component_dot_3d(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl<B: ComponentDotOps, C: CheckpointStrategy> ComponentDotOps for Autodiff<B, C> {
    fn component_dot_3d(_: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        panic!("component_dot: not differentiable; take the fields off the tape (`inner`)")
    }
}

/// The inner product of the components of two fields at every voxel. Not differentiable.
///
/// # Shapes
/// a, b `[N, C, D, H, W]`, off the tape; result `[N, 1, D, H, W]`.
///
/// # Panics
/// If the shapes differ, or on the tape.
pub fn component_dot(a: Tensor<5>, b: Tensor<5>) -> Tensor<5> {
    let (of_a, of_b) = (a.dims(), b.dims());
    assert!(of_a == of_b, "component_dot: the shapes must be the same, got {of_a:?} and {of_b:?}");
    let (a, b) = (a.into_dispatch(), b.into_dispatch());
    Tensor::from_dispatch(<Dispatch as ComponentDotOps>::component_dot_3d(a, b))
}
