//! The same where a device has a part of both volumes, between the planes of its neighbours.
//!
//! ```text
//! y = the own planes of conv3d([upsample_x2(x_low | x | x_high), skip_low | skip | skip_high], w)
//! ```
//! What is joined lives for as long as it is read. Kept are `x` and the skip themselves, which other units
//! keep anyway, and the few planes around them.

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, TensorMetadata, backend_extension};
use burn::tensor::Shape;

use super::autodiff::JoinConv3dVjp;
#[cfg(feature = "cube")] // asked for by fusion
use super::output_shape;
use super::{JoinConv3dOps, composed};
use crate::ops::conv3d::between::{joined, planes};
use crate::ops::conv3d::{Conv3dOps, Precision};
use crate::ops::upsample::UpsampleOps;
use crate::ops::vjp::{Vjp, record};

/// Planes of the coarse volume on either side that a part looks at. Of the last of them doubled, the outer one
/// is not right, as it looks further; the convolution does not see it.
pub(crate) const COARSE_PLANES: usize = 1;
/// The same of the skip.
pub(crate) const FINE_PLANES: usize = 2 * COARSE_PLANES;

/// A part of a volume with the planes of its neighbours; at an end of the volume there are none.
#[derive(Clone, Debug)]
pub struct Between {
    /// Those below.
    pub low: Option<Tensor<5>>,
    /// The part.
    pub own: Tensor<5>,
    /// Those above.
    pub high: Option<Tensor<5>>,
}

/// Where a part is cut.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The dimension of the cuts.
    dim: usize,
    /// Whether there is a neighbour below, and above.
    there: [bool; 2],
}

/// Backend operation of [`join_conv3d_between`]. What is not there is any tensor.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait JoinConv3dBetweenOps: Backend {
    /// The convolution at the planes of `skip`.
    #[fusion(
        dtype = x,
        shape = {
            let _ = (x, x_low, x_high, skip_low, skip_high);
            output_shape(skip, weight)
        }
    )]
    fn join_conv3d_between(
        x: FloatTensor<Self>,
        x_low: FloatTensor<Self>,
        x_high: FloatTensor<Self>,
        skip: FloatTensor<Self>,
        skip_low: FloatTensor<Self>,
        skip_high: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        ends: Ends,
        precision: Precision,
    ) -> FloatTensor<Self>;
}

impl Ends {
    /// All planes of a part: `below | own | above`.
    fn window<B: Backend>(&self, [own, low, high]: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        let low = self.there[0].then_some(low);
        let high = self.there[1].then_some(high);
        joined::<B>([low, Some(own), high].into_iter().flatten().collect(), self.dim)
    }

    /// `own`, `below` and `above` out of all planes; what is not there is `own` once more.
    fn apart<B: Backend>(&self, window: FloatTensor<B>, around: usize) -> [FloatTensor<B>; 3] {
        let [below, above] = self.there.map(|there| if there { around } else { 0 });
        let all = window.shape()[self.dim];
        let cut = |range| planes::<B>(window.clone(), self.dim, range);
        let own = cut(below..all - above);
        let low = if below > 0 { cut(0..below) } else { own.clone() };
        let high = if above > 0 { cut(all - above..all) } else { own.clone() };
        [own, low, high]
    }

    /// The gradient of a window of which only the own planes are the result.
    fn widened<B: Backend>(&self, grad: FloatTensor<B>) -> FloatTensor<B> {
        let mut dims: [usize; 5] = grad.shape().dims();
        dims[self.dim] = FINE_PLANES;
        let zeros = || B::float_zeros(Shape::from(dims), &grad.device(), grad.dtype().into());
        let [low, high] = self.there.map(|there| there.then(zeros));
        joined::<B>([low, Some(grad.clone()), high].into_iter().flatten().collect(), self.dim)
    }
}

fn between<B: UpsampleOps + Conv3dOps>(
    x: [FloatTensor<B>; 3],
    skip: [FloatTensor<B>; 3],
    weight: FloatTensor<B>,
    ends: Ends,
    precision: Precision,
) -> FloatTensor<B> {
    let (x, skip) = (ends.window::<B>(x), ends.window::<B>(skip));
    let [y, ..] = ends.apart::<B>(composed::<B>(x, skip, weight, precision), FINE_PLANES);
    y
}

macro_rules! on_backend {
    ($backend:ty) => {
        impl JoinConv3dBetweenOps for $backend {
            fn join_conv3d_between(
                x: FloatTensor<Self>,
                x_low: FloatTensor<Self>,
                x_high: FloatTensor<Self>,
                skip: FloatTensor<Self>,
                skip_low: FloatTensor<Self>,
                skip_high: FloatTensor<Self>,
                weight: FloatTensor<Self>,
                ends: Ends,
                precision: Precision,
            ) -> FloatTensor<Self> {
                let (x, skip) = ([x, x_low, x_high], [skip, skip_low, skip_high]);
                between::<Self>(x, skip, weight, ends, precision)
            }
        }
    };
}

on_backend!(burn::backend::Flex);
#[cfg(feature = "cube")]
on_backend!(burn_cubecl::CubeBackend);

#[derive(Clone, Copy, Debug)]
struct BetweenVjp;

impl<B> Vjp<B, 7> for BetweenVjp
where
    B: JoinConv3dOps + UpsampleOps + Conv3dOps,
{
    type Saved = ([FloatTensor<B>; 7], Ends, Precision);

    /// That of the whole for the window, whose other planes have no gradient.
    fn backward(
        (inputs, ends, precision): Self::Saved,
        grad: FloatTensor<B>,
        needs: [bool; 7],
    ) -> [Option<FloatTensor<B>>; 7] {
        let [x, x_low, x_high, skip, skip_low, skip_high, weight] = inputs;
        let windows = (
            ends.window::<B>([x, x_low, x_high]),
            ends.window::<B>([skip, skip_low, skip_high]),
            weight,
            precision,
        );
        let any = |needs: &[bool]| needs.iter().any(|needed| *needed);
        let wanted = [any(&needs[0..3]), any(&needs[3..6]), needs[6]];
        let grad = ends.widened::<B>(grad);
        let [x, skip, weight] = <JoinConv3dVjp as Vjp<B, 3>>::backward(windows, grad, wanted);
        let apart = |window: Option<FloatTensor<B>>, around| match window {
            Some(window) => ends.apart::<B>(window, around).map(Some),
            None => [None, None, None],
        };
        let [x, x_low, x_high] = apart(x, COARSE_PLANES);
        let [skip, skip_low, skip_high] = apart(skip, FINE_PLANES);
        [x, x_low, x_high, skip, skip_low, skip_high, weight]
    }
}

impl<B, C> JoinConv3dBetweenOps for Autodiff<B, C>
where
    B: JoinConv3dBetweenOps + JoinConv3dOps + UpsampleOps + Conv3dOps,
    C: CheckpointStrategy,
{
    fn join_conv3d_between(
        x: FloatTensor<Self>,
        x_low: FloatTensor<Self>,
        x_high: FloatTensor<Self>,
        skip: FloatTensor<Self>,
        skip_low: FloatTensor<Self>,
        skip_high: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        ends: Ends,
        precision: Precision,
    ) -> FloatTensor<Self> {
        let inputs = [x, x_low, x_high, skip, skip_low, skip_high, weight];
        record::<B, C, _, 7>(BetweenVjp, inputs, |inputs, _| {
            let [x, x_low, x_high, skip, skip_low, skip_high, weight] = inputs.clone();
            let y = B::join_conv3d_between(
                x, x_low, x_high, skip, skip_low, skip_high, weight, ends, precision,
            );
            (y, (inputs, ends, precision))
        })
    }
}

/// [`join_conv3d`](super::join_conv3d()) of parts cut along dimension `dim` (2, 3 or 4), at the planes of the
/// skip's part. Differentiable in everything (first order).
///
/// # Shapes
/// As of the whole; around `x` one plane along `dim`, around the skip two; result `[N, O, 2D, 2H, 2W]`, where
/// `x.own` is `[N, C, D, H, W]`.
///
/// # Panics
/// If the shapes do not fit each other, or one of the two has a neighbour where the other has none.
pub fn join_conv3d_between(
    x: Between,
    skip: Between,
    weight: Tensor<5>,
    dim: usize,
    precision: Precision,
) -> Tensor<5> {
    super::assert_fit(&x.own, &skip.own, &weight);
    let there = |part: &Between| [part.low.is_some(), part.high.is_some()];
    assert!(
        there(&x) == there(&skip) && (2..5).contains(&dim),
        "join_conv3d_between: neighbours (below, above) of x {:?}, of the skip {:?}, along dimension {dim}",
        there(&x),
        there(&skip)
    );
    let ends = Ends { dim, there: there(&x) };
    let pieces = |part: Between, around: usize| {
        let mut dims = part.own.dims();
        dims[dim] = around;
        // What is not there has no node on the tape.
        [part.low, part.high].map(|planes| match planes {
            None => part.own.clone().detach(),
            Some(planes) => {
                let got = planes.dims();
                assert!(
                    got == dims,
                    "join_conv3d_between: planes around a part must be {dims:?}, got {got:?}"
                );
                planes
            }
        })
    };
    let [x_low, x_high] = pieces(x.clone(), COARSE_PLANES);
    let [skip_low, skip_high] = pieces(skip.clone(), FINE_PLANES);
    let all = [x.own, x_low, x_high, skip.own, skip_low, skip_high, weight];
    let [x, x_low, x_high, skip, skip_low, skip_high, weight] = all.map(Tensor::into_dispatch);
    Tensor::from_dispatch(<Dispatch as JoinConv3dBetweenOps>::join_conv3d_between(
        x, x_low, x_high, skip, skip_low, skip_high, weight, ends, precision,
    ))
}
