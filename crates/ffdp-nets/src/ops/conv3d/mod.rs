//! Convolution of volumes with small odd kernels, stride 1, without bias.
//!
//! ```text
//! y[o](p) = sum_{c, k} w[o, c](k) x[c](p + k - padding)          x is 0 outside the volume
//! dL/dx = the convolution of dL/dy by w mirrored, with inputs and outputs exchanged
//! dL/dw[o, c](k) = sum_p dL/dy[o](p) x[c](p + k - padding)
//! ```
//! Why not Burn's `conv3d`: on the CPU this one needs neither the unrolled input nor its scattered
//! gradient, and is several times faster at the few channels and many voxels of a decoder's last
//! levels; on a GPU Burn's unrolls large convolutions into matrices of `27 C_in` times the size,
//! tunes itself for minutes, and fails where no candidate fits. With [`Precision::TensorFloat`] the
//! tensor cores of NVIDIA's GPUs multiply.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, TensorMetadata, backend_extension};
use burn::tensor::{Shape, ops::ConvOptions};

use super::precision::Precision;

mod autodiff;
pub mod between;
#[cfg(feature = "cube")]
mod cube;
mod flex;
mod lanes;
#[cfg(test)]
mod tests;

/// Backend operations of the convolution; x `[N, C, D, H, W]`, weight `[O, C, K, K, K]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait Conv3dOps: Backend {
    /// The convolution, `[N, O, D + 2 pd - K + 1, ..]`; `padding` along (D, H, W).
    #[fusion(dtype = x, shape = output_shape(x, weight, *padding))]
    fn small_conv3d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        padding: [usize; 3],
        precision: Precision,
    ) -> FloatTensor<Self>;

    /// The gradient of the weight, of its shape; `grad` is that of the output.
    #[fusion(dtype = weight, shape = weight)]
    fn small_conv3d_to_weight(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        padding: [usize; 3],
        precision: Precision,
    ) -> FloatTensor<Self>;
}

/// Convolution with stride 1 and zero padding. Differentiable in both inputs (first order).
///
/// # Shapes
/// x `[N, C, D, H, W]`, weight `[O, C, K, K, K]`, padding along (D, H, W); result
/// `[N, O, D + 2 pd - K + 1, H + 2 ph - K + 1, W + 2 pw - K + 1]`.
///
/// # Panics
/// If the channels disagree, the kernel is not cubic, the padding exceeds K - 1 or the kernel does
/// not fit the padded volume.
pub fn conv3d(x: Tensor<5>, weight: Tensor<5>, padding: [usize; 3]) -> Tensor<5> {
    conv3d_with(x, weight, padding, Precision::Single)
}

/// [`conv3d`] with products of the given precision, in the backward pass too.
pub fn conv3d_with(
    x: Tensor<5>,
    weight: Tensor<5>,
    padding: [usize; 3],
    precision: Precision,
) -> Tensor<5> {
    let [_, c, d, h, w] = x.dims();
    let [_, c_weight, k, kh, kw] = weight.dims();
    assert_eq!(c, c_weight, "conv3d: x has {c} channels, the weight expects {c_weight}");
    assert!(k == kh && k == kw, "conv3d: the kernel must be cubic, got {k}x{kh}x{kw}");
    assert!(
        padding.iter().all(|&p| p < k) && (0..3).all(|a| [d, h, w][a] + 2 * padding[a] >= k),
        "conv3d: padding {padding:?} does not suit a kernel of {k}^3 on {d}x{h}x{w} voxels"
    );
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(<Dispatch as Conv3dOps>::small_conv3d(x, weight, padding, precision))
}

/// The shape of [`conv3d`]'s result.
fn output_shape(x: &Shape, weight: &Shape, padding: [usize; 3]) -> Shape {
    let [d, h, w] = std::array::from_fn(|a| x[a + 2] + 2 * padding[a] + 1 - weight[2]);
    Shape::from([x[0], weight[0], d, h, w])
}

/// Burn's own convolution, for the cases without a kernel of ours.
fn burn_conv3d<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    padding: [usize; 3],
) -> FloatTensor<B> {
    B::conv3d(x, weight, None, ConvOptions::new([1; 3], padding, [1; 3], 1))
}

/// Burn's own gradient of the weight.
fn burn_conv3d_to_weight<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    grad: FloatTensor<B>,
    padding: [usize; 3],
) -> FloatTensor<B> {
    B::conv3d_weight_backward(x, weight, grad, ConvOptions::new([1; 3], padding, [1; 3], 1))
}

/// The weight that carries gradients back: mirrored in space, inputs and outputs exchanged.
pub(super) fn mirrored<B: Backend>(weight: FloatTensor<B>) -> FloatTensor<B> {
    B::float_swap_dims(B::float_flip(weight, &[2, 3, 4]), 0, 1)
}

/// The padding that goes with [`mirrored`].
fn mirrored_padding<B: Backend>(weight: &FloatTensor<B>, padding: [usize; 3]) -> [usize; 3] {
    let kernel = weight.shape()[2];
    padding.map(|p| kernel - 1 - p)
}
