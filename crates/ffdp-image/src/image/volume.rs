//! A volume of intensities.

use burn::tensor::{AllocationProperty, DType, Device, Tensor, TensorData};
use rayon::prelude::*;

use super::geometry::Geometry;
use super::ranks::{Ranks, between, ranks_around};
use crate::error::{Error, Result};

/// An f32 tensor of `values` (x fastest) on `device`, its rows one after the other in memory.
///
/// On CUDA Burn begins each row of a tensor of several axes at a multiple of 512 bytes: a row of 160 voxels
/// would take the memory of 256, and each kernel of ours would first make it dense.
///
/// # Panics
/// If there is not one value per voxel of `dims`, `[N, C, D, H, W]`.
pub fn upload(values: Vec<f32>, dims: [usize; 5], device: &Device) -> Tensor<5> {
    let sent = sent_in_parts(&values, |v| v, device);
    sent.unwrap_or_else(|| sent_whole(values, device)).reshape(dims)
}

/// The same of what becomes of values that stay where they are.
///
/// # Panics
/// As [`upload`].
pub fn upload_each<T: Copy + Sync>(
    values: &[T],
    value: impl Fn(T) -> f32 + Sync,
    dims: [usize; 5],
    device: &Device,
) -> Tensor<5> {
    let copied = || values.par_iter().with_min_len(COPIED).map(|&v| value(v)).collect();
    let sent = sent_in_parts(values, &value, device);
    sent.unwrap_or_else(|| sent_whole(copied(), device)).reshape(dims)
}

fn sent_whole(values: Vec<f32>, device: &Device) -> Tensor<1> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), (device, DType::F32))
}

/// Many values through memory that the device reads by itself, which all cores fill: from any other a driver copies
/// them with one core. `None` where there are few, or no such memory.
fn sent_in_parts<T: Copy + Sync>(
    values: &[T],
    value: impl Fn(T) -> f32 + Sync,
    device: &Device,
) -> Option<Tensor<1>> {
    if *device == Device::flex() || !(SENT + 1..MOST_SENT).contains(&values.len()) {
        return None;
    }
    let mut tensor = Tensor::empty([values.len()], (device, DType::F32));
    for (k, part) in values.chunks(SENT).enumerate() {
        // What a device sends lies in such memory: this is a way to ask for it.
        let mut data =
            Tensor::<1>::empty([part.len()], (device, DType::F32)).try_into_data().ok()?;
        if data.bytes().property() != AllocationProperty::Pinned {
            return None;
        }
        let filled = data.as_mut_slice::<f32>().ok()?.par_chunks_mut(COPIED);
        filled.zip(part.par_chunks(COPIED)).for_each(|(to, from)| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = value(*from));
        });
        let part = k * SENT..k * SENT + part.len();
        tensor = tensor.slice_assign([part], Tensor::from_data(data, (device, DType::F32)));
    }
    Some(tensor)
}

/// Values that one thread copies, or looks at, at a time.
const COPIED: usize = 1 << 18;
/// Values that are sent at a time, 64 MB: smaller ones are no faster in parts.
const SENT: usize = 1 << 24;
/// Values from which on they are sent as a whole: so many were never sent in parts.
const MOST_SENT: usize = 1 << 31;
/// Values that are read back at a time, 256 MB. A driver writes to memory that it has set up first, once for all reads of
/// this size, which takes longer than reading.
const READ: usize = 1 << 26;

/// The values of a tensor on the host, as f32. `what` is named in errors.
///
/// What a GPU has sent is copied by all cores: into memory that is fresh, one core copies some GB a second.
///
/// # Errors
/// [`Error::Device`] when they cannot be read back.
pub fn download<const D: usize>(tensor: Tensor<D>, what: &str) -> Result<Vec<f32>> {
    let on_host = tensor.device() == Device::flex();
    let failed = |reason: String| Error::device(format!("reading back {what}"), reason);
    let read = |tensor: Tensor<1>| {
        tensor.try_into_data_as::<f32>().map_err(|reason| failed(reason.to_string()))
    };
    let count = tensor.shape().num_elements();
    let tensor = tensor.reshape([count]);
    if on_host || count <= COPIED {
        return read(tensor)?.try_into_vec::<f32>().map_err(|reason| failed(format!("{reason:?}")));
    }
    let mut values = vec![0.0; count];
    for (part, values) in values.chunks_mut(READ).enumerate() {
        let part = match count > READ {
            true => tensor.clone().narrow(0, part * READ, values.len()),
            false => tensor.clone(),
        };
        let part = read(part)?;
        let part = part.as_slice::<f32>().map_err(|reason| failed(format!("{reason:?}")))?;
        let pieces = values.par_chunks_mut(COPIED).zip(part.par_chunks(COPIED));
        pieces.for_each(|(values, part)| values.copy_from_slice(part));
    }
    Ok(values)
}

/// Intensities on a grid: one f32 per voxel, x fastest, then y, then z.
#[derive(Debug, Clone, PartialEq)]
pub struct Volume {
    /// Voxel values in the order of `[D, H, W]` tensors.
    pub data: Vec<f32>,
    /// The grid they lie on.
    pub geometry: Geometry,
}

impl Volume {
    /// A volume from its voxels.
    ///
    /// # Errors
    /// [`Error::Shape`] when there is not one value per voxel.
    pub fn new(data: Vec<f32>, geometry: Geometry) -> Result<Self> {
        check_len("volume", data.len(), &geometry)?;
        Ok(Self { data, geometry })
    }

    /// The voxels as an f32 tensor `[1, 1, D, H, W]` on `device`.
    pub fn to_tensor(&self, device: &Device) -> Tensor<5> {
        upload_each(&self.data, |v| v, tensor_shape(&self.geometry), device)
    }

    /// The same of the intensities with `from` and `to` at 0 and 1, clamped to [0, 1].
    pub fn to_rescaled_tensor(&self, [from, to]: [f32; 2], device: &Device) -> Tensor<5> {
        upload_each(&self.data, rescaling([from, to]), tensor_shape(&self.geometry), device)
    }

    /// As [`Volume::to_tensor`], without a copy on the host.
    pub fn into_tensor(self, device: &Device) -> Tensor<5> {
        upload(self.data, tensor_shape(&self.geometry), device)
    }

    /// The volume whose voxels are `tensor`, `[1, 1, D, H, W]`, of any float type.
    ///
    /// # Errors
    /// [`Error::Shape`] when the tensor does not fit the grid, [`Error::Device`] when it cannot be
    /// read back.
    pub fn from_tensor(tensor: Tensor<5>, geometry: Geometry) -> Result<Self> {
        check_shape("volume from a tensor", tensor.dims(), &geometry)?;
        Self::new(download(tensor, "a volume")?, geometry)
    }

    /// Demands that every voxel be finite; `what` names the volume in the message.
    ///
    /// # Errors
    /// [`Error::NonFinite`] with the counts and the first index.
    pub fn check_finite(&self, what: &str) -> Result<()> {
        // Parts in a sweep each: one that ends at the first would look after every voxel whether it may go on.
        let sound = |part: &[f32]| part.iter().fold(true, |sound, v| sound & v.is_finite());
        let Some(part) = self.data.par_chunks(COPIED).position_first(|part| !sound(part)) else {
            return Ok(());
        };
        let here = self.data[part * COPIED..].iter().position(|v| !v.is_finite());
        let first = part * COPIED + here.expect("this part has one");
        let nan = self.data[first..].iter().filter(|v| v.is_nan()).count();
        let infinite = self.data[first..].iter().filter(|v| v.is_infinite()).count();
        let first = self.geometry.index_of(first);
        Err(Error::NonFinite { what: what.to_string(), nan, infinite, first })
    }

    /// Sets NaN and infinite voxels to `value` and returns how many there were.
    pub fn replace_non_finite(&mut self, value: f32) -> usize {
        let mut replaced = 0;
        for v in self.data.iter_mut().filter(|v| !v.is_finite()) {
            *v = value;
            replaced += 1;
        }
        replaced
    }

    /// Smallest and largest finite voxel, `None` when there is none.
    pub fn min_max(&self) -> Option<(f32, f32)> {
        let wider = |(low, high): (f32, f32), (a, b): (f32, f32)| (low.min(a), high.max(b));
        // Parts in a sweep each, of numbers and not of options.
        let nothing = (f32::INFINITY, f32::NEG_INFINITY);
        let own = |&v: &f32| if v.is_finite() { (v, v) } else { nothing };
        let part = |part: &[f32]| part.iter().map(own).fold(nothing, wider);
        let all = self.data.par_chunks(COPIED).map(part).reduce(|| nothing, wider);
        (all != nothing).then_some(all)
    }

    /// Percentiles of the finite voxels, each in 0..=100, with linear interpolation between ranks
    /// (numpy's default definition).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a percentile outside 0..=100 or a volume without a finite voxel.
    pub fn percentiles<const K: usize>(&self, percents: [f64; K]) -> Result<[f32; K]> {
        if !percents.iter().all(|p| (0.0..=100.0).contains(p)) {
            let what = "percentiles must lie in 0..=100";
            return Err(Error::invalid(what, percents, "choose, for example, 1 and 99"));
        }
        let ranks = Ranks::of(&self.data);
        if ranks.count() == 0 {
            let what = "a volume must hold at least one finite voxel";
            return Err(Error::invalid(what, format_args!("none"), "check the file"));
        }
        let count = ranks.count();
        let around = percents.map(|percent| ranks_around(count, percent));
        let found = ranks.values(around.as_flattened());
        let percentile = |k: usize| between(count, [found[2 * k], found[2 * k + 1]], percents[k]);
        Ok(std::array::from_fn(|k| percentile(k) as f32))
    }

    /// The volume rescaled so that the percentiles `low` and `high` become 0 and 1, clamped to
    /// [0, 1]. Percentiles instead of extremes, so that a few hot voxels cannot flatten the image.
    ///
    /// # Errors
    /// [`Error::NonFinite`] for NaN or infinite voxels, [`Error::Invalid`] when the percentiles are
    /// out of order or coincide (a constant image does so always).
    pub fn normalized(&self, low: f64, high: f64) -> Result<Self> {
        self.check_finite("the volume to normalise")?;
        let [from, to] = self.percentiles([low, high])?;
        if from >= to {
            let constant = self.min_max().is_some_and(|(min, max)| min == max);
            let fix = if constant {
                "the image is constant and holds nothing to register: check the file"
            } else {
                "choose percentiles further apart, for example 0 and 100"
            };
            let what = format!("the percentiles {low} and {high} must enclose a range of values");
            return Err(Error::invalid(what, [from, to], fix));
        }
        Ok(self.rescaled(from, to))
    }

    /// The volume with `from` and `to` at 0 and 1, clamped to [0, 1].
    pub fn rescaled(&self, from: f32, to: f32) -> Self {
        let data = rescaled(&self.data, from, to);
        Self { data, geometry: self.geometry.clone() }
    }
}

/// Values with `from` and `to` at 0 and 1, clamped to [0, 1].
pub fn rescaled(values: &[f32], from: f32, to: f32) -> Vec<f32> {
    let rescale = rescaling([from, to]);
    values.par_iter().map(|&v| rescale(v)).collect()
}

/// What brings the intensities `from` and `to` to 0 and 1, clamped to [0, 1].
pub fn rescaling([from, to]: [f32; 2]) -> impl Fn(f32) -> f32 + Sync {
    // In f64: the difference of two large f32 may overflow.
    let (from, scale) = (f64::from(from), (f64::from(to) - f64::from(from)).recip());
    move |v| ((f64::from(v) - from) * scale).clamp(0.0, 1.0) as f32
}

/// `[1, 1, D, H, W]`.
pub(super) fn tensor_shape(geometry: &Geometry) -> [usize; 5] {
    let [d, h, w] = geometry.dims();
    [1, 1, d, h, w]
}

pub(super) fn check_len(what: &str, got: usize, geometry: &Geometry) -> Result<()> {
    if got == geometry.len() {
        return Ok(());
    }
    let what = format!("number of voxels of a {what} of size {:?}", geometry.size);
    Err(Error::Shape { what, expected: vec![geometry.len()], got: vec![got] })
}

pub(super) fn check_shape(what: &str, got: [usize; 5], geometry: &Geometry) -> Result<()> {
    let expected = tensor_shape(geometry);
    if got == expected {
        return Ok(());
    }
    let what = format!("shape [1, 1, D, H, W] of a {what}");
    Err(Error::Shape { what, expected: expected.to_vec(), got: got.to_vec() })
}
