//! The convolution of an upsampled volume joined with a skip connection, which keeps no joined volume.
//!
//! ```text
//! y = conv3d([upsample_x2(x), skip], w)          kernel 3^3, stride 1, zero padding
//! ```
//! The first unit of a decoder's level. Composed of [`upsample_x2_join`](super::upsample_x2_join) and
//! [`conv3d`](super::conv3d()) the tape keeps the joined channels for the gradient of the weight: 64 of
//! them in TransMorph at full resolution, 1.8 GB for 160x192x224 voxels and the largest volume of the
//! step. Here it keeps `x` and the skip, which other units keep anyway, and joins them again in the
//! backward pass: half a millisecond on an H200. The gradients to both inputs are convolutions of
//! their own, so that one of all joined channels never exists.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
#[cfg(feature = "cube")]
use burn::tensor::Shape;

use super::conv3d::Conv3dOps;
use super::precision::Precision;
use super::upsample::UpsampleOps;

mod autodiff;
#[cfg(test)]
mod tests;

/// Of kernels of 3^3, so that the size stays.
const PADDING: [usize; 3] = [1; 3];

/// Backend operation: x `[N, C, D, H, W]`, skip `[N, S, 2D, 2H, 2W]`, weight `[O, C + S, 3, 3, 3]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait JoinConv3dOps: Backend {
    /// The convolution, `[N, O, 2D, 2H, 2W]`.
    #[fusion(dtype = x, shape = output_shape(skip, weight))]
    fn join_conv3d(
        x: FloatTensor<Self>,
        skip: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self>;
}

#[cfg(feature = "cube")] // asked for by fusion
fn output_shape(skip: &Shape, weight: &Shape) -> Shape {
    Shape::from([skip[0], weight[0], skip[2], skip[3], skip[4]])
}

/// Both operations, one after the other.
fn composed<B: UpsampleOps + Conv3dOps>(
    x: FloatTensor<B>,
    skip: FloatTensor<B>,
    weight: FloatTensor<B>,
    precision: Precision,
) -> FloatTensor<B> {
    B::small_conv3d(B::upsample_3d(x, skip, true), weight, PADDING, precision)
}

impl JoinConv3dOps for burn::backend::Flex {
    fn join_conv3d(
        x: FloatTensor<Self>,
        skip: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        composed::<Self>(x, skip, weight, precision)
    }
}

#[cfg(feature = "cube")]
impl JoinConv3dOps for burn_cubecl::CubeBackend {
    fn join_conv3d(
        x: FloatTensor<Self>,
        skip: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        composed::<Self>(x, skip, weight, precision)
    }
}

/// The convolution of `x` at twice its resolution joined with `skip`. Differentiable in all three
/// inputs (first order).
///
/// # Shapes
/// x `[N, C, D, H, W]`, skip `[N, S, 2D, 2H, 2W]`, weight `[O, C + S, 3, 3, 3]`; result
/// `[N, O, 2D, 2H, 2W]`.
///
/// # Panics
/// If the shapes do not fit each other.
pub fn join_conv3d(
    x: Tensor<5>,
    skip: Tensor<5>,
    weight: Tensor<5>,
    precision: Precision,
) -> Tensor<5> {
    assert_fit(&x, &skip, &weight);
    let [x, skip, weight] = [x, skip, weight].map(Tensor::into_dispatch);
    Tensor::from_dispatch(<Dispatch as JoinConv3dOps>::join_conv3d(x, skip, weight, precision))
}

fn assert_fit(x: &Tensor<5>, skip: &Tensor<5>, weight: &Tensor<5>) {
    let ([n, c, d, h, w], [n_skip, s, ds, hs, ws]) = (x.dims(), skip.dims());
    assert!(
        n == n_skip && [ds, hs, ws] == [2 * d, 2 * h, 2 * w],
        "join_conv3d: {n} x {d}x{h}x{w} voxels doubled do not fit a skip of {n_skip} x {ds}x{hs}x{ws}"
    );
    let [_, channels, kernel @ ..] = weight.dims();
    assert!(
        channels == c + s && kernel == [3; 3],
        "join_conv3d: a kernel of {kernel:?} for {channels} channels does not fit 3^3 and {c} + {s}"
    );
}
