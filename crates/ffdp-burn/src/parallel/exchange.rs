//! What devices give each other in every iteration, ordered on the devices themselves: the host waits
//! for none of them.
//!
//! CubeCL (0.11.3) moves data between GPUs through NCCL, on a stream beside that of a device's
//! computations. A tensor that travels alone (`Tensor::to_device`) is not ordered with everything that the
//! computations do: it may be written where they still read what was there before, and be overwritten
//! before it was read; `transfer.rs` therefore waits for whole devices. A sum over devices (`all_reduce`)
//! has no such gap. Its buffer belongs to the computations, the sum begins after what was enqueued
//! before it, and what is enqueued after `resolve` begins after the sum:
//! ```text
//! computations of each device  ->  sum, in place, on all devices  ->  computations of each device
//! ```
//! So all that travels here travels as a sum, to which each device adds what it has to say, and zeros
//! where others speak; `x + 0` is `x`. It doubles the bytes of planes that two devices give each other,
//! which are few.
//!
//! Sums of several groups of devices follow each other in the same order on every device, and all of
//! them are enqueued before anything waits: no device can wait for one that waits for it.

use burn::Tensor;
use burn::tensor::Device;
use burn::tensor::distributed::{ReduceOperation, all_reduce};

use super::collective::Reduction;
use super::transfer::to_device;

/// Whether these are several devices whose sums are formed without the host: CUDA's, with NCCL.
pub(super) fn are_joined(devices: &[Device]) -> bool {
    distinct(devices).len() > 1 && devices.iter().all(has_collectives)
}

#[cfg(feature = "cube")]
fn has_collectives(device: &Device) -> bool {
    use burn::backend::DispatchDevice;
    match device.as_dispatch() {
        DispatchDevice::Cube(device) => device.client().has_device_transport(),
        // The tape has its own ways.
        _ => false,
    }
}

#[cfg(not(feature = "cube"))]
fn has_collectives(_device: &Device) -> bool {
    false
}

/// Each device once, in order.
fn distinct(devices: &[Device]) -> Vec<Device> {
    let mut found: Vec<Device> = Vec::new();
    for device in devices {
        if !found.contains(device) {
            found.push(device.clone());
        }
    }
    found
}

/// The sum of the tensors of each group on each of their devices; those of a group have one size and lie
/// on different devices.
fn sums(groups: Vec<Vec<Tensor<1>>>) -> Vec<Vec<Tensor<1>>> {
    let enqueued = groups.into_iter().map(|group| {
        let devices: Vec<Device> = group.iter().map(Tensor::device).collect();
        let sum = |part| all_reduce(part, ReduceOperation::Sum, devices.clone());
        group.into_iter().map(sum).collect()
    });
    let enqueued: Vec<Vec<_>> = enqueued.collect();
    let resolve = |group: Vec<_>| {
        group.into_iter().map(burn::tensor::distributed::CollectiveTensor::resolve).collect()
    };
    enqueued.into_iter().map(resolve).collect()
}

/// For each pair of tensors on two devices: the second on the device of the first, and the first on that
/// of the second.
pub(super) fn swap(pairs: Vec<[Tensor<5>; 2]>) -> Vec<[Tensor<5>; 2]> {
    let joined = |pair: &[Tensor<5>; 2]| are_joined(&pair.each_ref().map(Tensor::device));
    if !pairs.iter().all(joined) {
        let across = |[a, b]: [Tensor<5>; 2]| {
            let [here, there] = [a.device(), b.device()];
            [to_device(b, &here), to_device(a, &there)]
        };
        return pairs.into_iter().map(across).collect();
    }
    let shapes: Vec<[[usize; 5]; 2]> =
        pairs.iter().map(|pair| pair.each_ref().map(Tensor::dims)).collect();
    let mut groups: Vec<_> = pairs.into_iter().map(side_by_side).enumerate().collect();
    // Pairs without a device in common at the same time: every other one along a row of devices.
    groups.sort_by_key(|(i, _)| i % 2);
    let (order, groups): (Vec<usize>, Vec<_>) = groups.into_iter().unzip();
    let mut found: Vec<_> = order.into_iter().zip(sums(groups)).collect();
    found.sort_by_key(|(i, _)| *i);
    let apart = |((_, group), [first, second]): ((usize, Vec<Tensor<1>>), [[usize; 5]; 2])| {
        let [a, b] = [first, second].map(|dims| dims.into_iter().product::<usize>());
        let [here, there] = <[_; 2]>::try_from(group).expect("a pair gives two sums");
        [here.narrow(0, a, b).reshape(second), there.narrow(0, 0, a).reshape(first)]
    };
    found.into_iter().zip(shapes).map(apart).collect()
}

/// The values of both, one after the other, on each device, as far as it has them; zeros for the others.
fn side_by_side([a, b]: [Tensor<5>; 2]) -> Vec<Tensor<1>> {
    let [a, b] = [a, b].map(|tensor| {
        let values = tensor.shape().num_elements();
        tensor.reshape([values])
    });
    let zeros = |like: &Tensor<1>, on: &Tensor<1>| {
        Tensor::zeros([like.dims()[0]], (&on.device(), on.dtype()))
    };
    let first = Tensor::cat(vec![a.clone(), zeros(&b, &a)], 0);
    let second = Tensor::cat(vec![zeros(&a, &b), b], 0);
    vec![first, second]
}

/// The values of all shards combined, for every shard on its own device; their devices are joined.
pub(super) fn combine<const D: usize>(
    values: Vec<Tensor<D>>,
    reduction: Reduction,
) -> Vec<Tensor<D>> {
    let devices: Vec<Device> = values.iter().map(Tensor::device).collect();
    let places = distinct(&devices);
    let dims = values[0].dims();
    let parts: Vec<Tensor<1>> = places
        .iter()
        .map(|device| {
            let here = values.iter().filter(|value| value.device() == *device).cloned();
            let here = here.reduce(|a, b| reduction.combine(a, b));
            here.expect("every device holds a shard").flatten(0, D - 1)
        })
        .collect();
    let totals = match reduction {
        Reduction::Sum => sums(vec![parts]).remove(0),
        Reduction::Max | Reduction::Min => extremes(parts, reduction),
    };
    let total = |device: &Device| {
        let place = places.iter().position(|place| place == device);
        totals[place.expect("it is one of the places")].clone().reshape(dims)
    };
    devices.iter().map(total).collect()
}

/// A row for every device, filled by a sum; then each device has them all.
fn extremes(parts: Vec<Tensor<1>>, reduction: Reduction) -> Vec<Tensor<1>> {
    let (rows, values) = (parts.len(), parts[0].dims()[0]);
    let table = |(row, part): (usize, Tensor<1>)| {
        let zeros =
            |rows: usize| Tensor::<1>::zeros([rows * values], (&part.device(), part.dtype()));
        let around = [(row > 0).then(|| zeros(row)), (row + 1 < rows).then(|| zeros(rows - 1 - row))];
        let [before, after] = around;
        Tensor::cat([before, Some(part.clone()), after].into_iter().flatten().collect(), 0)
    };
    let tables = sums(vec![parts.into_iter().enumerate().map(table).collect()]).remove(0);
    let extreme = |table: Tensor<1>| {
        let rows = (0..rows).map(|row| table.clone().narrow(0, row * values, values));
        rows.reduce(|a, b| reduction.combine(a, b)).expect("there is a device")
    };
    tables.into_iter().map(extreme).collect()
}
