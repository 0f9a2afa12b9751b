//! Labels as f32, in which samplers carry them: themselves, or numbers that stand for them.

use rayon::prelude::*;

use crate::error::{Error, Result};

/// Integers up to this magnitude are exact in f32.
pub(super) const EXACT_IN_F32: u32 = 1 << 24;

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

/// What the values of a tensor of [`LabelMap::to_movable_tensor`](super::LabelMap::to_movable_tensor) stand for.
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
