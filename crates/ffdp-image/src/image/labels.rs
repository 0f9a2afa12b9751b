//! A map of integer labels.

use std::collections::BTreeSet;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use rayon::prelude::*;

use super::geometry::Geometry;
use super::moved_labels::{EXACT_IN_F32, MovedLabels};
use super::planes::{Planes, SWEEP, runs};
use super::volume::{Volume, check_len, check_shape, tensor_shape, upload_each};
use crate::error::{Error, Result};

/// Labels that one thread looks at.
const PART: usize = 1 << 16;

/// The distinct labels other than 0 of a map that is read plane by plane, in ascending order.
///
/// # Errors
/// [`Error::Invalid`] for a value that is no integer below 2^24 in magnitude, and those of reading.
pub fn label_ids(labels: &mut dyn Planes) -> Result<Vec<i32>> {
    let grid = labels.geometry().clone();
    let mut ids = BTreeSet::new();
    for planes in runs(&grid, SWEEP) {
        let values = labels.read(planes)?.to_vec();
        let mut found = labels.labels().read(&values)?;
        found.dedup();
        ids.extend(found);
    }
    ids.remove(&0);
    Ok(ids.into_iter().collect())
}

/// Integer labels on a grid: one per voxel, x fastest, then y, then z; 0 is background.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelMap {
    /// Labels in the order of `[D, H, W]` tensors.
    pub data: Vec<i32>,
    /// The grid they lie on.
    pub geometry: Geometry,
}

impl LabelMap {
    /// A label map from its voxels.
    ///
    /// # Errors
    /// [`Error::Shape`] when there is not one label per voxel.
    pub fn new(data: Vec<i32>, geometry: Geometry) -> Result<Self> {
        check_len("label map", data.len(), &geometry)?;
        Ok(Self { data, geometry })
    }

    /// The distinct labels other than 0, in ascending order.
    pub fn ids(&self) -> Vec<i32> {
        let of_part = |part: &[i32]| {
            // Labels come in runs: look a label up only where it changes.
            part.chunk_by(|a, b| a == b).map(|run| run[0]).collect::<BTreeSet<i32>>()
        };
        let all = self.data.par_chunks(PART).map(of_part).reduce(BTreeSet::new, |mut all, more| {
            all.extend(more);
            all
        });
        all.into_iter().filter(|&label| label != 0).collect()
    }

    /// Whether f32 has all labels.
    fn is_exact_in_f32(&self) -> bool {
        let part = |part: &[i32]| {
            // Without an end before the last, in lanes.
            part.iter().fold(0, |most, label| label.unsigned_abs().max(most)) <= EXACT_IN_F32
        };
        self.data.par_chunks(PART).all(part)
    }

    /// The labels of `ids` as intensities, all others 0: those that drive a registration.
    pub fn only(&self, ids: &[i32]) -> Volume {
        let value = |label: &i32| if ids.contains(label) { *label as f32 } else { 0.0 };
        Volume { data: self.data.par_iter().map(value).collect(), geometry: self.geometry.clone() }
    }

    /// The labels as an integer tensor `[1, 1, D, H, W]` on `device`, 32 bits wide.
    pub fn to_tensor(&self, device: &Device) -> Tensor<5, Int> {
        let data = TensorData::new(self.data.clone(), [self.data.len()]);
        // Dense, as an image: see `upload`.
        Tensor::<1, Int>::from_data(data, (device, DType::I32))
            .reshape(tensor_shape(&self.geometry))
    }

    /// The labels as an f32 tensor `[1, 1, D, H, W]`, for samplers that take floats.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a label beyond 2^24, which f32 would round.
    pub fn to_float_tensor(&self, device: &Device) -> Result<Tensor<5>> {
        if !self.is_exact_in_f32() {
            let label = self.data.iter().find(|label| label.unsigned_abs() > EXACT_IN_F32);
            let label = label.expect("one is beyond");
            let what = "labels must not exceed 2^24 in magnitude to be exact as f32";
            return Err(Error::invalid(what, label, "renumber the labels"));
        }
        Ok(upload_each(&self.data, |label| label as f32, tensor_shape(&self.geometry), device))
    }

    /// The labels as an f32 tensor `[1, 1, D, H, W]` that samplers may move, and what its values stand for:
    /// labels beyond 2^24 are numbered in ascending order, so that all are exact; 0 stays 0.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 2^24 different labels.
    pub fn to_movable_tensor(&self, device: &Device) -> Result<(Tensor<5>, MovedLabels)> {
        if self.is_exact_in_f32() {
            return Ok((self.to_float_tensor(device)?, MovedLabels::Themselves));
        }
        let meaning = MovedLabels::of(&self.ids())?;
        let shape = tensor_shape(&self.geometry);
        let tensor = upload_each(&self.data, |label| meaning.number(label), shape, device);
        Ok((tensor, meaning))
    }

    /// The label map whose voxels are `tensor`, `[1, 1, D, H, W]`, of any integer type.
    ///
    /// # Errors
    /// [`Error::Shape`] when the tensor does not fit the grid, [`Error::Invalid`] for a value that
    /// does not fit 32 bits, [`Error::Device`] when it cannot be read back.
    pub fn from_tensor(tensor: Tensor<5, Int>, geometry: Geometry) -> Result<Self> {
        check_shape("label map from a tensor", tensor.dims(), &geometry)?;
        let values = tensor
            .try_into_vec_as::<i64>()
            .map_err(|reason| Error::device("reading back a label map", reason))?;
        let narrow = |value: i64| {
            i32::try_from(value).map_err(|_| {
                Error::invalid("labels must fit 32 bits", value, "renumber the labels")
            })
        };
        let data = values.into_iter().map(narrow).collect::<Result<Vec<_>>>()?;
        Self::new(data, geometry)
    }
}
