//! Small tensors combined over the shards: losses, histograms, largest vectors.
//!
//! The values travel to the device of the first shard, are combined there in the order of the
//! shards (so that the result depends on the layout alone) and travel back: a few floats a shard.
//! A single value is returned as it is. What is wanted on all GPUs is combined without a wait
//! (`exchange.rs`), unless it is on the tape.

use burn::Tensor;
use burn::tensor::Device;

use super::exchange;
pub use super::exchange::Reduction;
use super::joined::are_joined;
use super::transfer::to_device;
use ffdp_image::error::Result;

/// The values of all shards combined, on the device of the first. Differentiable.
///
/// # Panics
/// If there are none or their shapes differ.
pub fn reduce<const D: usize>(
    values: impl IntoIterator<Item = Tensor<D>>,
    reduction: Reduction,
) -> Tensor<D> {
    let mut values = values.into_iter();
    let first = values.next().expect("reduce: there is at least one shard");
    let device = first.device();
    values.fold(first, |sum, value| {
        let (a, b) = (sum.dims(), value.dims());
        assert!(a == b, "reduce: values of shapes {a:?} and {b:?}");
        reduction.combine(sum, to_device(value, &device))
    })
}

/// A value on every one of the devices. Differentiable.
pub fn broadcast<const D: usize>(value: &Tensor<D>, devices: &[Device]) -> Vec<Tensor<D>> {
    devices.iter().map(|device| to_device(value.clone(), device)).collect()
}

/// The values of all shards combined, for every shard on its own device. Differentiable.
///
/// # Panics
/// As [`reduce`], and where a device could not compute its values: the others would wait for it.
pub fn all_reduce<const D: usize>(values: Vec<Tensor<D>>, reduction: Reduction) -> Vec<Tensor<D>> {
    try_all_reduce(values, reduction).unwrap_or_else(|error| panic!("{error}"))
}

/// [`all_reduce`].
///
/// # Errors
/// [`Error::Device`](ffdp_image::Error::Device) where a device could not compute its values.
pub(super) fn try_all_reduce<const D: usize>(
    values: Vec<Tensor<D>>,
    reduction: Reduction,
) -> Result<Vec<Tensor<D>>> {
    let devices: Vec<Device> = values.iter().map(Tensor::device).collect();
    if are_joined(&devices) {
        return exchange::combine(values, reduction);
    }
    Ok(broadcast(&reduce(values, reduction), &devices))
}
