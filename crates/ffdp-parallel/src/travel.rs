//! A tensor that goes to another device on the tape, and its gradient that comes back.
//!
//! Burn's own `to_device` is differentiable, but sends the gradient without the waits that `transfer.rs`
//! describes. Here both directions have them: for both ends before, and for the receiver after.
//!
//! So two devices work side by side only if what they do *between* two transfers is enqueued on both, and
//! what can go together should: [`send_all`]. In the forward pass that is the callers' order
//! (`activations` of `ffdp-nets`: first everything travels, then every place computes). In the backward pass it is the
//! tape's, which goes from the deepest nodes to the shallowest: parts of a volume should be equally deep, and
//! [`deepened`] makes up for what one of them was spared.
//!
//! Why not as the sums of `exchange.rs`, which the host does not wait for: a kernel that is used for the first
//! time is loaded, and loading on both devices waits for a sum that one of them runs and the other does not begin. A
//! registration knows its kernels after an iteration; what a network's tape meets for the first time is not known in
//! advance.

use std::thread;

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Shape, StreamId};
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;

use super::joined::check;
use super::watch::watched;
use ffdp_kit::vjp::{Vjp, record};

/// The transfer, for tensors on the tape.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait TravelOps: Backend {
    /// `x` on the device of `place`, whose values do not matter.
    #[fusion(dtype = x, shape = { let _ = place; x.clone() })]
    fn travel(x: FloatTensor<Self>, place: FloatTensor<Self>) -> FloatTensor<Self>;

    /// `x`, `by` steps deeper on the tape.
    #[fusion(dtype = x, shape = x)]
    fn deepen(x: FloatTensor<Self>, by: usize) -> FloatTensor<Self>;
}

/// Tensors on other devices, all sent at once; those that are there already are themselves.
///
/// # Panics
/// Where one of them was not computed, as when memory has run out: CubeCL (0.11.3) does not send it then, and the receiver
/// would deadlock.
pub(super) fn send_all<B: Backend>(
    tensors: Vec<(FloatTensor<B>, B::Device)>,
) -> Vec<FloatTensor<B>> {
    let (mut ends, mut receivers) = (Vec::new(), Vec::new());
    let note = |devices: &mut Vec<B::Device>, device: &B::Device| {
        if !devices.contains(device) {
            devices.push(device.clone());
        }
    };
    let lines: Vec<_> = tensors
        .into_iter()
        .map(|(x, to)| {
            let (from, shape) = (x.device(), x.shape());
            if from == to {
                return (x, None);
            }
            note(&mut ends, &from);
            note(&mut ends, &to);
            note(&mut receivers, &to);
            // A line is dense, so that nothing else is made for the transfer and freed too early.
            let line = B::float_reshape(x, Shape::from([shape.num_elements()]));
            (line, Some((shape, to)))
        })
        .collect();
    let ticket = (!receivers.is_empty()).then(|| watched("a transfer", &ends));
    wait_for_all::<B>(&ends);
    for (line, _) in lines.iter().filter(|(_, target)| target.is_some()) {
        check(line).unwrap_or_else(|error| panic!("{error}"));
    }
    let sent = lines.iter().map(|(line, target)| match target {
        Some((_, to)) => B::float_to_device(line.clone(), to),
        None => line.clone(),
    });
    let sent: Vec<_> = sent.collect();
    // What comes is little: a thread each would take longer. A failure shows where numbers are read.
    receivers.iter().for_each(|device| drop(B::sync(device)));
    drop(ticket);
    let arrived = sent.into_iter().zip(lines).map(|(sent, (_, target))| match target {
        Some((shape, _)) => B::float_reshape(sent, shape),
        None => sent,
    });
    arrived.collect()
}

/// Waits for devices with a thread each, on the stream of this one: Burn and CubeCL have a queue for every
/// device, and what is recorded in one is brought to its GPU by who asks for it.
pub(super) fn wait_for_all<B: Backend>(devices: &[B::Device]) {
    // A failure shows where numbers are read.
    let wait = |device: &B::Device| drop(B::sync(device));
    let Some((first, others)) = devices.split_first() else { return };
    let stream = StreamId::current();
    thread::scope(|scope| {
        for device in others {
            scope.spawn(move || stream.executes(|| wait(device)));
        }
        wait(first);
    });
}

/// One of them.
fn send<B: Backend>(x: FloatTensor<B>, to: &B::Device) -> FloatTensor<B> {
    send_all::<B>(vec![(x, to.clone())]).remove(0)
}

impl TravelOps for Flex {
    fn travel(x: FloatTensor<Self>, _: FloatTensor<Self>) -> FloatTensor<Self> {
        x
    }

    fn deepen(x: FloatTensor<Self>, _: usize) -> FloatTensor<Self> {
        x
    }
}

#[cfg(feature = "cube")]
impl TravelOps for CubeBackend {
    fn travel(x: FloatTensor<Self>, place: FloatTensor<Self>) -> FloatTensor<Self> {
        send::<Self>(x, &place.device())
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
        [Some(send::<B>(grad, &home)), None]
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
            (send::<B>(x, &there), home)
        })
    }

    fn deepen(x: FloatTensor<Self>, by: usize) -> FloatTensor<Self> {
        (0..by).fold(x, |x, _| record::<B, C, _, 1>(DeeperVjp, [x], |[x], _| (x, ())))
    }
}

/// The tensor, `by` steps deeper on the tape, where there is one.
pub fn deepened<const D: usize>(tensor: Tensor<D>, by: usize) -> Tensor<D> {
    if by == 0 || !tensor.device().is_autodiff() {
        return tensor;
    }
    Tensor::from_dispatch(<Dispatch as TravelOps>::deepen(tensor.into_dispatch(), by))
}
