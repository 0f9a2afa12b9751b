//! The convolution of an upsampled window of a volume, at some of its planes.
//!
//! ```text
//! y = planes of conv3d(upsample_x2(x), w)          kernel 3^3, stride 1, zero padding
//! ```
//! Where several devices share a volume, this is the coarse half of a decoder's first convolution; that of the
//! skip is a [`conv3d_between`](super::conv3d_between). Their sum is [`join_conv3d`](super::join_conv3d()), and
//! the joined channels, the largest volume of a step, never exist. A device has a window of the coarse volume, a
//! plane wider than its part, and wants the planes of its part alone: those at the window's edges are not right.
//! Kept is the window; it is upsampled again in the backward pass. As many channels are upsampled at a time as the
//! result has, so that nothing is larger than that: pools hand out memory in pages of the largest buffer.

use std::ops::Range;

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, TensorMetadata, backend_extension};
use burn::tensor::Shape;

use super::conv3d::between::{joined, planes};
use super::conv3d::{Conv3dOps, mirrored};
use super::precision::Precision;
use super::upsample::UpsampleOps;
use ffdp_kit::vjp::{Vjp, record};

#[cfg(test)]
mod tests;

/// Of kernels of 3^3, so that the size stays.
const PADDING: [usize; 3] = [1; 3];

/// Planes of the result, along which dimension.
#[derive(Clone, Debug)]
pub struct Wanted {
    dim: usize,
    planes: Range<usize>,
}

/// Backend operation of [`upsample_conv3d`].
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait UpsampleConv3dOps: Backend {
    /// The convolution at the planes that are wanted.
    #[fusion(dtype = x, shape = output_shape(x, weight, wanted))]
    fn upsample_conv3d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        wanted: Wanted,
        precision: Precision,
    ) -> FloatTensor<Self>;
}

#[cfg(feature = "cube")] // asked for by fusion
fn output_shape(x: &Shape, weight: &Shape, wanted: &Wanted) -> Shape {
    let mut dims = [x[0], weight[0], 2 * x[2], 2 * x[3], 2 * x[4]];
    dims[wanted.dim] = wanted.planes.len();
    Shape::from(dims)
}

macro_rules! on_backend {
    ($backend:ty) => {
        impl UpsampleConv3dOps for $backend {
            fn upsample_conv3d(
                x: FloatTensor<Self>,
                weight: FloatTensor<Self>,
                wanted: Wanted,
                precision: Precision,
            ) -> FloatTensor<Self> {
                let sums = blocks(weight.shape()).map(|channels| {
                    let [x, weight] = [&x, &weight].map(|t| part::<Self>(t, channels.clone()));
                    Self::small_conv3d(doubled::<Self>(x), weight, PADDING, precision)
                });
                let y = sums.reduce(Self::float_add).expect("there are channels");
                planes::<Self>(y, wanted.dim, wanted.planes)
            }
        }
    };
}

on_backend!(burn::backend::Flex);
#[cfg(feature = "cube")]
on_backend!(burn_cubecl::CubeBackend);

/// Channels that are upsampled at a time, of a weight `[O, C, ..]`.
fn blocks(weight: Shape) -> impl Iterator<Item = Range<usize>> {
    let [o, c] = [weight[0], weight[1]];
    (0..c).step_by(o).map(move |first| first..(first + o).min(c))
}

fn part<B: Backend>(tensor: &FloatTensor<B>, channels: Range<usize>) -> FloatTensor<B> {
    planes::<B>(tensor.clone(), 1, channels)
}

fn doubled<B: UpsampleOps>(x: FloatTensor<B>) -> FloatTensor<B> {
    // Nothing is joined; the second is not read.
    B::upsample_3d(x.clone(), x, false)
}

impl Wanted {
    /// The gradient of all `extent` planes, from that of the wanted ones.
    fn widened<B: Backend>(&self, grad: FloatTensor<B>, extent: usize) -> FloatTensor<B> {
        let zeros = |count: usize| {
            let mut dims: [usize; 5] = grad.shape().dims();
            dims[self.dim] = count;
            let place = (grad.device(), grad.dtype());
            (count > 0).then(|| B::float_zeros(Shape::from(dims), &place.0, place.1.into()))
        };
        let [low, high] = [zeros(self.planes.start), zeros(extent - self.planes.end)];
        joined::<B>([low, Some(grad), high].into_iter().flatten().collect(), self.dim)
    }
}

#[derive(Clone, Copy, Debug)]
struct UpsampleConv3dVjp;

impl<B: UpsampleConv3dOps + UpsampleOps + Conv3dOps> Vjp<B, 2> for UpsampleConv3dVjp {
    type Saved = ([FloatTensor<B>; 2], Wanted, Precision);

    fn backward(
        ([x, weight], wanted, precision): Self::Saved,
        grad: FloatTensor<B>,
        [to_x, to_weight]: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let grad = wanted.widened::<B>(grad, 2 * x.shape()[wanted.dim]);
        let (mut of_x, mut of_weight) = (Vec::new(), Vec::new());
        for channels in blocks(weight.shape()) {
            let count = channels.len();
            let [x, weight] = [&x, &weight].map(|tensor| part::<B>(tensor, channels.clone()));
            // First, so that what is upsampled is gone before a gradient of its size comes.
            if to_weight {
                let (x, weight, grad) = (doubled::<B>(x), weight.clone(), grad.clone());
                of_weight.push(B::small_conv3d_to_weight(x, weight, grad, PADDING, precision));
            }
            if to_x {
                let (weight, grad) = (mirrored::<B>(weight), grad.clone());
                let fine = B::small_conv3d(grad, weight, PADDING, precision);
                of_x.push(B::upsample_3d_backward(fine, count));
            }
        }
        let all = |parts: Vec<_>| (!parts.is_empty()).then(|| joined::<B>(parts, 1));
        [all(of_x), all(of_weight)]
    }
}

impl<B, C> UpsampleConv3dOps for Autodiff<B, C>
where
    B: UpsampleConv3dOps + UpsampleOps + Conv3dOps,
    C: CheckpointStrategy,
{
    fn upsample_conv3d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        wanted: Wanted,
        precision: Precision,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 2>(UpsampleConv3dVjp, [x, weight], |[x, weight], _| {
            let y = B::upsample_conv3d(x.clone(), weight.clone(), wanted.clone(), precision);
            (y, ([x, weight], wanted, precision))
        })
    }
}

/// The convolution of `x` at twice its resolution, at `planes` of it along dimension `dim`. Differentiable in
/// both inputs (first order).
///
/// # Shapes
/// x `[N, C, D, H, W]`, weight `[O, C, 3, 3, 3]`; result `[N, O, 2D, 2H, 2W]` but for `planes` along `dim` (2, 3
/// or 4).
///
/// # Panics
/// If the shapes do not fit each other, or the planes are none of the result's.
pub fn upsample_conv3d(
    x: Tensor<5>,
    weight: Tensor<5>,
    dim: usize,
    planes: Range<usize>,
    precision: Precision,
) -> Tensor<5> {
    let ([_, c, ..], [_, channels, kernel @ ..]) = (x.dims(), weight.dims());
    assert!(
        channels == c && kernel == [3; 3],
        "upsample_conv3d: a kernel of {kernel:?} for {channels} channels does not fit 3^3 and {c}"
    );
    assert!(
        (2..5).contains(&dim) && planes.start < planes.end && planes.end <= 2 * x.dims()[dim],
        "upsample_conv3d: planes {planes:?} along dimension {dim} of {:?} doubled",
        x.dims()
    );
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    let wanted = Wanted { dim, planes };
    Tensor::from_dispatch(<Dispatch as UpsampleConv3dOps>::upsample_conv3d(
        x, weight, wanted, precision,
    ))
}
