//! What the synthetic data promises, over seeds and grids.

mod anatomy_on_grids;
mod appearance;
mod determinism;
mod registration_problems;
mod slabs;
mod smooth_labels;
mod statistics;
mod structures;
mod warps;

use std::collections::BTreeMap;

use super::*;
use crate::metrics::{dice, jacobian, local_ncc, ncc, warp_labels};

/// 64^3 voxels, the default.
fn default_size() -> PhantomSettings {
    PhantomSettings::default()
}

/// Mean over the given items.
fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    values.iter().sum::<f64>() / values.len() as f64
}
