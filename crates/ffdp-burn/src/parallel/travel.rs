//! A tensor that goes to another device on the tape, and its gradient that comes back.
//!
//! Burn's own `to_device` is differentiable, but sends without the order that `transfer.rs` tells of. Here a
//! tensor travels as a sum, in both directions, as in `exchange.rs`:
//! ```text
//! sender: a copy of x  +  receiver: zeros   ->   x on both, of which the receiver's is kept
//! ```
//! so that the host waits for no device. But on each device the sum begins after what was enqueued there
//! before: two devices work side by side only if what they do *between* two journeys was enqueued on both.
//! In the forward pass that is the callers' order (`parallel/slabs`: first everything travels, then every
//! place computes). In the backward pass it is the tape's, which goes from the deepest nodes to the
//! shallowest: parts of a volume should be equally deep, and [`deepened`] makes up for what one of them was
//! spared.

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::distributed::ReduceOperation;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, DeviceOps, Dispatch, Flex, TensorMetadata, backend_extension,
};
use burn::tensor::{Shape, Slice};
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;

use super::joined::launch_on;
use crate::ops::vjp::{Vjp, record};

/// The journey, for tensors on the tape.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait TravelOps: Backend {
    /// `x` on the device of `place`, whose values do not matter.
    #[fusion(dtype = x, shape = { let _ = place; x.clone() })]
    fn travel(x: FloatTensor<Self>, place: FloatTensor<Self>) -> FloatTensor<Self>;

    /// `x`, `by` steps deeper on the tape.
    #[fusion(dtype = x, shape = x)]
    fn deepen(x: FloatTensor<Self>, by: usize) -> FloatTensor<Self>;
}

/// The tensor, dense, on a device whose sums with its own are formed without the host.
fn send<B: Backend>(x: FloatTensor<B>, to: &B::Device) -> FloatTensor<B> {
    let (shape, dtype) = (x.shape(), x.dtype());
    let ends = [x.device(), to.clone()];
    let values = shape.num_elements();
    let line = |values: usize| Shape::from([values]);
    let zeros = |values, on| B::float_zeros(line(values), on, dtype.into());
    // What is summed is a buffer with all that it holds, so both must be of one size: new ones, where that of x may
    // be larger than x. One value more makes it a new one.
    let own = B::float_cat(vec![B::float_reshape(x, line(values)), zeros(1, &ends[0])], 0);
    let other = zeros(values + 1, to);
    let ids: Vec<_> = ends.iter().map(DeviceOps::id).collect();
    launch_on(&ends);
    let sums = [own, other].map(|part| B::all_reduce(part, ReduceOperation::Sum, ids.clone()));
    launch_on(&ends);
    // The sender's part as well: its memory is given away after the sum.
    let [_, arrived] = sums.map(|sum| sum.resolve());
    B::float_reshape(B::float_slice(arrived, &[Slice::from(0..values)]), shape)
}

/// The same where nothing forms sums: waits for both ends before and for the receiver after.
#[cfg(feature = "cube")]
fn wait_and_send<B: Backend>(x: FloatTensor<B>, to: &B::Device) -> FloatTensor<B> {
    // A failure shows where numbers are read.
    let _ = B::sync(&x.device());
    let _ = B::sync(to);
    let arrived = B::float_to_device(x.clone(), to);
    let _ = B::sync(to);
    drop(x);
    arrived
}

impl TravelOps for Flex {
    fn travel(x: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        x
    }

    fn deepen(x: FloatTensor<Self>, _: usize) -> FloatTensor<Self> {
        x
    }
}

/// Under Burn's fusion, off the tape: not asked for ([`to_device`](super::transfer::to_device)), and waited for.
#[cfg(feature = "cube")]
impl TravelOps for CubeBackend {
    fn travel(x: FloatTensor<Self>, place: FloatTensor<Self>) -> FloatTensor<Self> {
        wait_and_send::<Self>(x, &place.device())
    }

    fn deepen(x: FloatTensor<Self>, _: usize) -> FloatTensor<Self> {
        x
    }
}

#[derive(Clone, Copy, Debug)]
struct TravelVjp;

impl<B: TravelOps> Vjp<B, 2> for TravelVjp {
    /// Where it came from.
    type Saved = B::Device;

    fn backward(
        home: Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let here = grad.device() == home;
        [Some(if here { grad } else { send::<B>(grad, &home) }), None]
    }
}

#[derive(Clone, Copy, Debug)]
struct DeeperVjp;

impl<B: Backend> Vjp<B, 1> for DeeperVjp {
    type Saved = ();

    fn backward((): (), grad: FloatTensor<B>, _: [bool; 1]) -> [Option<FloatTensor<B>>; 1] {
        [Some(grad)]
    }
}

impl<B: TravelOps, C: CheckpointStrategy> TravelOps for Autodiff<B, C> {
    fn travel(x: FloatTensor<Self>, place: FloatTensor<Self>) -> FloatTensor<Self> {
        record::<B, C, _, 2>(TravelVjp, [x, place], |[x, place], _| {
            let (home, there) = (x.device(), place.device());
            let arrived = if home == there { x } else { send::<B>(x, &there) };
            (arrived, home)
        })
    }

    fn deepen(x: FloatTensor<Self>, by: usize) -> FloatTensor<Self> {
        (0..by).fold(x, |x, _| record::<B, C, _, 1>(DeeperVjp, [x], |[x], _| (x, ())))
    }
}

/// The tensor, `by` steps deeper on the tape, where there is one.
pub(super) fn deepened<const D: usize>(tensor: Tensor<D>, by: usize) -> Tensor<D> {
    if by == 0 || !tensor.device().is_autodiff() {
        return tensor;
    }
    Tensor::from_dispatch(<Dispatch as TravelOps>::deepen(tensor.into_dispatch(), by))
}
