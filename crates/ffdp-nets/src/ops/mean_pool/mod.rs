//! Volumes at half their resolution: the mean over a neighbourhood of every second voxel.
//!
//! ```text
//! y(i) = 1/27 sum_{k in {-1,0,1}^3} x(2 i + k)              x is 0 outside the volume
//! dL/dx(p) = 1/27 sum of dL/dy(i) over the i with |p - 2 i| <= 1 along every axis
//! ```
//! The divisor is 27 at the border too: PyTorch's `AvgPool3d(3, stride=2, padding=1)` with its
//! default `count_include_pad=True`. Why not composed of Burn's operations: its padding fills a
//! volume on the host and uploads it, 50 ms in every step at 160x192x224.

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

/// Backend operations of the mean; x `[N, C, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait MeanPoolOps: Backend {
    /// The means, `[N, C, ceil(D/2), ceil(H/2), ceil(W/2)]`.
    #[fusion(dtype = x, shape = pooled_shape(x))]
    fn mean_pool_3d(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// The gradient of `x`, whose extents are `size`, from that of the means.
    #[fusion(dtype = grad, shape = resized(grad, *size))]
    fn mean_pool_3d_backward(grad: FloatTensor<Self>, size: [usize; 3]) -> FloatTensor<Self>;
}

fn pooled_shape(x: &Shape) -> Shape {
    resized(x, std::array::from_fn(|axis| x[axis + 2].div_ceil(2)))
}

fn resized(x: &Shape, [d, h, w]: [usize; 3]) -> Shape {
    Shape::from([x[0], x[1], d, h, w])
}

/// The mean over 3^3 voxels around every second voxel. Differentiable (first order).
///
/// # Shapes
/// x `[N, C, D, H, W]`; result `[N, C, ceil(D/2), ceil(H/2), ceil(W/2)]`.
pub fn mean_pool(x: Tensor<5>) -> Tensor<5> {
    Tensor::from_dispatch(<Dispatch as MeanPoolOps>::mean_pool_3d(x.into_dispatch()))
}
