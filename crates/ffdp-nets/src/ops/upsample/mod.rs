//! Trilinear upsampling by two, joined with a skip connection in the same pass.
//!
//! Along one axis, with the border voxel repeated outside:
//! ```text
//! y(2i) = x(i - 1) / 4 + 3 x(i) / 4        y(2i + 1) = 3 x(i) / 4 + x(i + 1) / 4
//! dL/dx(i) = 3 (g(2i) + g(2i + 1)) / 4 + (g(2i - 1) + g(2i + 2)) / 4
//! ```
//! where at a border the missing neighbour of `g` is the border's own. Voxel centres are aligned:
//! PyTorch's `Upsample(scale_factor=2, mode="trilinear", align_corners=False)`. Values are not
//! rescaled: a field in voxels stays in the same unit.
//!
//! The result is written where it is needed, before the channels of the skip, and nothing is kept
//! for the backward pass.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::Shape;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Backend operations of upsampling `[N, C, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait UpsampleOps: Backend {
    /// `x` at twice the resolution, and behind it the channels of `skip` `[N, S, 2D, 2H, 2W]` if it
    /// `joins`; otherwise `skip` is not read.
    #[fusion(dtype = x, shape = joined_shape(x, skip, *joins))]
    fn upsample_3d(x: FloatTensor<Self>, skip: FloatTensor<Self>, joins: bool)
    -> FloatTensor<Self>;

    /// The gradient of `x` `[N, channels, D, H, W]` from that of the result.
    #[fusion(dtype = grad, shape = halved_shape(grad, *channels))]
    fn upsample_3d_backward(grad: FloatTensor<Self>, channels: usize) -> FloatTensor<Self>;
}

/// The shape of the result.
fn joined_shape(x: &Shape, skip: &Shape, joins: bool) -> Shape {
    let channels = if joins { skip[1] } else { 0 };
    Shape::from([x[0], x[1] + channels, 2 * x[2], 2 * x[3], 2 * x[4]])
}

/// The shape of the gradient of `x`.
fn halved_shape(grad: &Shape, channels: usize) -> Shape {
    Shape::from([grad[0], channels, grad[2] / 2, grad[3] / 2, grad[4] / 2])
}

/// Doubles a volume's resolution by linear interpolation. Differentiable (first order).
///
/// # Shapes
/// x `[N, C, D, H, W]`; result `[N, C, 2D, 2H, 2W]`.
pub fn upsample_x2(x: Tensor<5>) -> Tensor<5> {
    run(x.clone(), x, false)
}

/// [`upsample_x2`] of `x`, then the channels of `skip`. Differentiable in both (first order).
///
/// # Shapes
/// x `[N, C, D, H, W]`, skip `[N, S, 2D, 2H, 2W]`; result `[N, C + S, 2D, 2H, 2W]`.
///
/// # Panics
/// If the skip has another size or number of samples.
pub fn upsample_x2_join(x: Tensor<5>, skip: Tensor<5>) -> Tensor<5> {
    let ([n, _, d, h, w], [n_skip, _, ds, hs, ws]) = (x.dims(), skip.dims());
    assert!(
        n == n_skip && [ds, hs, ws] == [2 * d, 2 * h, 2 * w],
        "upsample: {n} x {d}x{h}x{w} voxels doubled do not fit a skip of {n_skip} x {ds}x{hs}x{ws}"
    );
    run(x, skip, true)
}

fn run(x: Tensor<5>, skip: Tensor<5>, joins: bool) -> Tensor<5> {
    let (x, skip) = (x.into_dispatch(), skip.into_dispatch());
    Tensor::from_dispatch(<Dispatch as UpsampleOps>::upsample_3d(x, skip, joins))
}
