//! The convolution of a part of a volume between the planes of its neighbours.
//!
//! ```text
//! y = conv(low | x | high)      without padding along the axis of the cuts: y has the planes of x
//! ```
//! What is joined for it lives for as long as it is read, and is joined anew in the backward pass: kept is
//! `x` itself, which the operation before it keeps anyway, and the few planes around it. A part so needs
//! its share of the memory of the whole, and no second copy of its activations.

use std::ops::Range;

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Shape, Slice};
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;

use super::{Conv3dOps, mirrored, mirrored_padding};
use crate::ops::precision::Precision;
use ffdp_kit::vjp::{Vjp, record};

/// Backend operation of the convolution between planes; shapes as in [`conv3d_between`].
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait Conv3dBetweenOps: Conv3dOps {
    /// The convolution, with the planes of `x`; `dim` is the dimension of the cuts.
    #[fusion(dtype = x, shape = output_shape(x, low, high, weight))]
    fn small_conv3d_between(
        x: FloatTensor<Self>,
        low: FloatTensor<Self>,
        high: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dim: usize,
        precision: Precision,
    ) -> FloatTensor<Self>;
}

#[cfg(feature = "cube")] // asked for by fusion
fn output_shape(x: &Shape, _low: &Shape, _high: &Shape, weight: &Shape) -> Shape {
    Shape::from([x[0], weight[0], x[2], x[3], x[4]])
}

/// [`conv3d`](super::conv3d()) of `low | x | high`, joined along dimension `dim`, at the planes of `x`:
/// zeros around the other axes, none along this one. Differentiable in all four (first order).
///
/// # Shapes
/// x `[N, C, D, H, W]`; low and high the same but for `K / 2` planes along `dim` (2, 3 or 4); weight
/// `[O, C, K, K, K]`; result `[N, O, D, H, W]`.
///
/// # Panics
/// If the shapes do not fit each other, or `K` is even.
pub fn conv3d_between(
    x: Tensor<5>,
    [low, high]: [Tensor<5>; 2],
    weight: Tensor<5>,
    dim: usize,
    precision: Precision,
) -> Tensor<5> {
    let ([_, c, ..], [_, c_weight, k, kh, kw]) = (x.dims(), weight.dims());
    assert_eq!(c, c_weight, "conv3d_between: x has {c} channels, the weight expects {c_weight}");
    assert!(
        k % 2 == 1 && k == kh && k == kw && (2..5).contains(&dim),
        "conv3d_between: a cubic odd kernel along dimension 2, 3 or 4, got {k}x{kh}x{kw} along {dim}"
    );
    let mut around = x.dims();
    around[dim] = k / 2;
    assert!(
        low.dims() == around && high.dims() == around,
        "conv3d_between: planes around {:?} must be {around:?}, got {:?} and {:?}",
        x.dims(),
        low.dims(),
        high.dims()
    );
    let [x, low, high, weight] = [x, low, high, weight].map(Tensor::into_dispatch);
    Tensor::from_dispatch(<Dispatch as Conv3dBetweenOps>::small_conv3d_between(
        x, low, high, weight, dim, precision,
    ))
}

/// The tensors joined along `dim`, as long rows: Burn may pad the rows of a new tensor (CUDA), and
/// long ones need the least.
pub(in crate::ops) fn joined<B: Backend>(
    mut pieces: Vec<FloatTensor<B>>,
    dim: usize,
) -> FloatTensor<B> {
    if pieces.len() == 1 {
        return pieces.remove(0);
    }
    let mut dims: [usize; 5] = pieces[0].shape().dims();
    dims[dim] = pieces.iter().map(|piece| piece.shape()[dim]).sum();
    let rows: usize = dims[..dim].iter().product();
    let line = |piece: FloatTensor<B>| {
        let values = piece.shape().num_elements();
        B::float_reshape(piece, Shape::from([rows, values / rows]))
    };
    B::float_reshape(B::float_cat(pieces.into_iter().map(line).collect(), 1), Shape::from(dims))
}

/// Planes of a tensor along `dim`, likewise.
pub(in crate::ops) fn planes<B: Backend>(
    tensor: FloatTensor<B>,
    dim: usize,
    range: Range<usize>,
) -> FloatTensor<B> {
    let mut dims: [usize; 5] = tensor.shape().dims();
    if range == (0..dims[dim]) {
        return tensor;
    }
    let rows: usize = dims[..dim].iter().product();
    let values = tensor.shape().num_elements() / rows;
    let plane = values / dims[dim];
    dims[dim] = range.len();
    let lines = B::float_reshape(tensor, Shape::from([rows, values]));
    let part = [Slice::from(..), Slice::from(range.start * plane..range.end * plane)];
    B::float_reshape(B::float_slice(lines, &part), Shape::from(dims))
}

/// The padding that keeps the size along the other axes.
fn padding<B: Backend>(weight: &FloatTensor<B>, dim: usize) -> [usize; 3] {
    let mut padding = [weight.shape()[2] / 2; 3];
    padding[dim - 2] = 0;
    padding
}

fn between<B: Conv3dOps>(
    pieces: [FloatTensor<B>; 3],
    weight: FloatTensor<B>,
    dim: usize,
    precision: Precision,
) -> FloatTensor<B> {
    let padding = padding::<B>(&weight, dim);
    B::small_conv3d(joined::<B>(pieces.to_vec(), dim), weight, padding, precision)
}

impl Conv3dBetweenOps for Flex {
    fn small_conv3d_between(
        x: FloatTensor<Self>,
        low: FloatTensor<Self>,
        high: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dim: usize,
        precision: Precision,
    ) -> FloatTensor<Self> {
        between::<Self>([low, x, high], weight, dim, precision)
    }
}

#[cfg(feature = "cube")]
impl Conv3dBetweenOps for CubeBackend {
    fn small_conv3d_between(
        x: FloatTensor<Self>,
        low: FloatTensor<Self>,
        high: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dim: usize,
        precision: Precision,
    ) -> FloatTensor<Self> {
        between::<Self>([low, x, high], weight, dim, precision)
    }
}

#[derive(Clone, Copy, Debug)]
struct BetweenVjp;

impl<B: Conv3dBetweenOps> Vjp<B, 4> for BetweenVjp {
    /// x, the planes below and above, the weight.
    type Saved = ([FloatTensor<B>; 4], usize, Precision);

    fn backward(
        ([x, low, high, weight], dim, precision): Self::Saved,
        grad: FloatTensor<B>,
        needs: [bool; 4],
    ) -> [Option<FloatTensor<B>>; 4] {
        let along = padding::<B>(&weight, dim);
        let (reach, own) = (low.shape()[dim], x.shape()[dim]);
        let to_weight = needs[3].then(|| {
            let block = joined::<B>(vec![low, x, high], dim);
            let (weight, grad) = (weight.clone(), grad.clone());
            B::small_conv3d_to_weight(block, weight, grad, along, precision)
        });
        let mirrored = mirrored::<B>(weight.clone());
        let back = |grad, padding| {
            let padding = mirrored_padding::<B>(&weight, padding);
            B::small_conv3d(grad, mirrored.clone(), padding, precision)
        };
        // The planes around are looked at by the outermost of the part alone: no gradient of all of them exists.
        let seen = own.min(reach);
        let to_low = needs[1].then(|| {
            let all = back(planes::<B>(grad.clone(), dim, 0..seen), along);
            planes::<B>(all, dim, 0..reach)
        });
        let to_high = needs[2].then(|| {
            let all = back(planes::<B>(grad.clone(), dim, own - seen..own), along);
            planes::<B>(all, dim, seen + reach..seen + 2 * reach)
        });
        let to_x = needs[0].then(|| back(grad, [reach; 3]));
        [to_x, to_low, to_high, to_weight]
    }
}

impl<B: Conv3dBetweenOps, C: CheckpointStrategy> Conv3dBetweenOps for Autodiff<B, C> {
    fn small_conv3d_between(
        x: FloatTensor<Self>,
        low: FloatTensor<Self>,
        high: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dim: usize,
        precision: Precision,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 4>(BetweenVjp, [x, low, high, weight], |inputs, _| {
            let [x, low, high, weight] = inputs.clone();
            let y = B::small_conv3d_between(x, low, high, weight, dim, precision);
            (y, (inputs, dim, precision))
        })
    }
}
