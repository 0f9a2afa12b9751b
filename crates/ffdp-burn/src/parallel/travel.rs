//! A tensor that goes to another device on the tape, and its gradient that comes back.
//!
//! Burn's own `to_device` is differentiable, but sends the gradient without the waits that `transfer.rs`
//! tells of. Here both directions have them.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Flex, TensorMetadata, backend_extension};
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;

use crate::ops::vjp::{Vjp, record};

/// The journey, for tensors on the tape.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait TravelOps: Backend {
    /// `x` on the device of `place`, whose values do not matter.
    #[fusion(dtype = x, shape = { let _ = place; x.clone() })]
    fn travel(x: FloatTensor<Self>, place: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// Sends a dense tensor: waits for both ends before and for the receiver after, and keeps what is sent until then.
fn send<B: Backend>(x: FloatTensor<B>, to: &B::Device) -> FloatTensor<B> {
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
}

#[cfg(feature = "cube")]
impl TravelOps for CubeBackend {
    fn travel(x: FloatTensor<Self>, place: FloatTensor<Self>) -> FloatTensor<Self> {
        send::<Self>(x, &place.device())
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
        [Some(send::<B>(grad, &home)), None]
    }
}

impl<B: TravelOps, C: CheckpointStrategy> TravelOps for Autodiff<B, C> {
    fn travel(x: FloatTensor<Self>, place: FloatTensor<Self>) -> FloatTensor<Self> {
        record::<B, C, _, 2>(TravelVjp, [x, place], |[x, place], _| {
            let (home, there) = (x.device(), place.device());
            (send::<B>(x, &there), home)
        })
    }
}
