//! A map of integer labels.

use std::collections::BTreeSet;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use rayon::prelude::*;

use super::geometry::Geometry;
use super::planes::{Planes, SWEEP, runs};
use super::volume::{check_len, check_shape, tensor_shape, upload};
use crate::error::{Error, Result};

/// Integers up to this magnitude are exact in f32.
const EXACT_IN_F32: u32 = 1 << 24;

/// Labels that were read as f32.
///
/// # Errors
/// [`Error::Invalid`] for a value that is no integer, or so large that others are rounded to it.
pub fn labels_of(values: &[f32]) -> Result<Vec<i32>> {
    let label = |value: &f32| {
        if value.fract() == 0.0 && value.abs() < EXACT_IN_F32 as f32 {
            return Ok(*value as i32);
        }
        let what = "labels must be integers below 2^24 in magnitude";
        Err(Error::invalid(what, value, "check that it is the label map, or renumber the labels"))
    };
    values.par_iter().map(label).collect()
}

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
        let mut ids = BTreeSet::new();
        let mut last = 0;
        // Labels come in runs: look a label up only where it changes.
        for &label in self.data.iter().filter(|&&label| label != 0) {
            if label != last {
                ids.insert(label);
                last = label;
            }
        }
        ids.into_iter().collect()
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
        if let Some(&label) = self.data.iter().find(|l| l.unsigned_abs() > EXACT_IN_F32) {
            let what = "labels must not exceed 2^24 in magnitude to be exact as f32";
            return Err(Error::invalid(what, label, "renumber the labels"));
        }
        let values: Vec<f32> = self.data.iter().map(|&label| label as f32).collect();
        Ok(upload(values, tensor_shape(&self.geometry), device))
    }

    /// The labels as an f32 tensor `[1, 1, D, H, W]` that samplers may move, and what its values stand for:
    /// labels beyond 2^24 are numbered in ascending order, so that all are exact; 0 stays 0.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 2^24 different labels.
    pub fn to_movable_tensor(&self, device: &Device) -> Result<(Tensor<5>, MovedLabels)> {
        if self.data.iter().all(|label| label.unsigned_abs() <= EXACT_IN_F32) {
            return Ok((self.to_float_tensor(device)?, MovedLabels::Themselves));
        }
        let meaning = MovedLabels::of(&self.ids())?;
        let values: Vec<f32> = self.data.par_iter().map(|label| meaning.number(*label)).collect();
        Ok((upload(values, tensor_shape(&self.geometry), device), meaning))
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

/// What the values of a tensor of [`LabelMap::to_movable_tensor`] stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MovedLabels {
    /// They are the labels.
    Themselves,
    /// Places among the ids, counted from that of label 0.
    Numbered {
        /// All labels and 0, ascending.
        ids: Vec<i32>,
        /// The place of 0 among them.
        zero: usize,
    },
}

impl MovedLabels {
    /// What stands for these labels, ascending and without 0.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 2^24 of them where one is beyond 2^24.
    pub fn of(ids: &[i32]) -> Result<Self> {
        // Below: 2^24 + 1 would be read as 2^24.
        if ids.iter().all(|label| label.unsigned_abs() < EXACT_IN_F32) {
            return Ok(Self::Themselves);
        }
        let zero = ids.partition_point(|id| *id < 0);
        let ids = [&ids[..zero], &[0], &ids[zero..]].concat();
        if ids.len() > EXACT_IN_F32 as usize {
            let what = "a label map with ids beyond 2^24 must not have more than 2^24 of them";
            return Err(Error::invalid(what, ids.len(), "renumber the labels"));
        }
        Ok(Self::Numbered { ids, zero })
    }

    /// The value that stands for a label.
    ///
    /// # Panics
    /// For a label that is not among the ids.
    pub fn number(&self, label: i32) -> f32 {
        match self {
            Self::Themselves => label as f32,
            Self::Numbered { ids, zero } => {
                let place = ids.binary_search(&label).expect("every label is among the ids");
                place as f32 - *zero as f32
            }
        }
    }

    /// The labels of values that were read.
    ///
    /// # Errors
    /// As [`labels_of`], of values that are to be labels.
    pub fn read(&self, values: &[f32]) -> Result<Vec<i32>> {
        match self {
            Self::Themselves => labels_of(values),
            Self::Numbered { .. } => Ok(self.labels(values.to_vec())),
        }
    }

    /// The labels of values that were copied, not mixed.
    pub fn labels(&self, values: Vec<f32>) -> Vec<i32> {
        match self {
            // Whole numbers of at most 24 bits: exact.
            Self::Themselves => values.into_iter().map(|value| value as i32).collect(),
            Self::Numbered { ids, zero } => {
                let label = |value: f32| ids[(value as i32 + *zero as i32) as usize];
                values.into_iter().map(label).collect()
            }
        }
    }
}
