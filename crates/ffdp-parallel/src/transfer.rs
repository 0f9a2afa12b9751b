//! Tensors on their way between devices.
//!
//! CubeCL (0.11.3) sends and receives on a stream of its own, and orders it with the computations of the
//! two devices in two places only: the sender's data must be ready, and the receiver's later work waits.
//! What the receiver's memory was used for before may still be under way, and the sender's may be given
//! to something else before it was read. Without any wait displacements found on two GPUs are wrong. So a
//! transfer waits for the receiver, and what is sent lives until it has arrived. It waits for the sender as well:
//! a kernel that is loaded there for the first time would wait for the receiver, which waits for the sender. What
//! travels in every iteration takes another way (`exchange.rs`). To and from host memory there is no second stream, and
//! nothing to wait for; what rests there (`rest.rs`) goes to the device straight from where it is.

use burn::Tensor;
use burn::backend::Dispatch;
use burn::tensor::{Device, Int};

use super::ahead::joined_ahead;
use super::joined::{are_joined, check};
use super::travel::{TravelOps, send_all, wait_for_all};
use super::watch::watched;

/// The tensor on a device; itself where it is there already. Differentiable; its gradient travels in the
/// same way (`travel.rs`).
pub(crate) fn to_device<const D: usize>(tensor: Tensor<D>, device: &Device) -> Tensor<D> {
    let ends = [tensor.device().inner(), device.clone().inner()];
    if ends[0] == ends[1] {
        return tensor.to_device(device);
    }
    let joined = are_joined(&ends);
    if !joined && let Some(arrived) = wake(&tensor, device) {
        return arrived;
    }
    if joined && tensor.device().is_autodiff() {
        return travel(tensor, device);
    }
    let dims = tensor.dims();
    // Dense and ours, so that nothing else is made for the transfer and freed too early.
    let line = in_line(tensor);
    if !joined {
        return line.to_device(device).reshape(dims);
    }
    let to = device.as_dispatch().clone();
    let arrived = send_all::<Dispatch>(vec![(line.into_dispatch(), to)]).remove(0);
    Tensor::<1>::from_dispatch(arrived).reshape(dims)
}

/// Labels on their devices, sent all at once; those that are there already are themselves.
pub(super) fn labels_to_devices(labels: Vec<(Tensor<5, Int>, Device)>) -> Vec<Tensor<5, Int>> {
    let mut ends: Vec<Device> = Vec::new();
    let leaving = labels.into_iter().map(|(labels, device)| {
        let [from, to] = [labels.device().inner(), device.inner()];
        if from == to {
            return (labels, None);
        }
        for end in [from, to.clone()] {
            if !ends.contains(&end) {
                ends.push(end);
            }
        }
        // A line, dense and ours, as above.
        let dims = labels.dims();
        (labels.reshape([1, 1, 1, 1, dims.into_iter().product()]), Some((dims, to)))
    });
    let leaving: Vec<_> = leaving.collect();
    let waited_for: Vec<_> = ends.iter().map(|device| device.as_dispatch().clone()).collect();
    let ticket = (!ends.is_empty()).then(|| watched("a transfer", &ends));
    wait_for_all::<Dispatch>(&waited_for);
    for (labels, _) in leaving.iter().filter(|(_, target)| target.is_some()) {
        // As in `travel.rs`.
        check(&labels.clone().into_dispatch()).unwrap_or_else(|error| panic!("{error}"));
    }
    let arrived = leaving.iter().map(|(labels, target)| match target {
        Some((dims, to)) => labels.clone().to_device(to).reshape(*dims),
        None => labels.clone(),
    });
    let arrived = arrived.collect();
    // What was sent lives until then. A failure shows where numbers are read.
    let receivers = leaving.iter().filter_map(|(_, target)| target.as_ref());
    receivers.for_each(|(_, to)| drop(to.sync()));
    drop(ticket);
    arrived
}

/// All values along one axis.
pub(crate) fn in_line<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let values = tensor.shape().num_elements();
    tensor.reshape([values])
}

/// A step of the tape.
fn travel<const D: usize>(tensor: Tensor<D>, device: &Device) -> Tensor<D> {
    let there = device.clone().inner().autodiff();
    let place = Tensor::<1>::zeros([1], (&there, tensor.dtype()));
    let (tensor, place) = (tensor.into_dispatch(), place.into_dispatch());
    Tensor::from_dispatch(<Dispatch as TravelOps>::travel(tensor, place))
}

/// The tensor, which may be some planes of another, on a device, from where it rests in host memory; none where
/// that is not the way.
pub(super) fn wake<const D: usize>(tensor: &Tensor<D>, device: &Device) -> Option<Tensor<D>> {
    if let Some(sent) = joined_ahead(std::slice::from_ref(tensor), 0, device) {
        return Some(sent);
    }
    #[cfg(feature = "cube")]
    {
        super::joined::cube(device)?;
        let (dtype, dims) = (tensor.dtype(), tensor.dims());
        let line = |line| Tensor::<1>::from_data(line, (device, dtype));
        let mut lines: Vec<_> = super::host::lines_of(tensor)?.into_iter().map(line).collect();
        // Those of several lines are joined over there.
        let line = if lines.len() == 1 { lines.remove(0) } else { Tensor::cat(lines, 0) };
        Some(line.reshape(dims))
    }
    #[cfg(not(feature = "cube"))]
    None
}
