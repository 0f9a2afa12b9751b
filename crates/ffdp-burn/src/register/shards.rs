//! What a registration in several shards can do, and how many it needs.

use super::deformable::{measure, optimizer};
use super::problem::Problem;
use super::pyramid::{finest_spacing_mm, level_geometry};
use super::settings::{Descent, OptimizerSettings, Regularization, Settings, Similarity, Stage};
use crate::error::{Error, Result};
use crate::image::Geometry;
use crate::ops::{DeformOptions, GaussianOptions, Update};
use crate::parallel::{Axis, DeviceMemory, GreedyProblem, Mesh, plan};

/// What to do about everything that cannot be cut.
const FIX: &str = "use one device and one shard, or deformable stages with their defaults";

/// Demands that everything can be cut, if the mesh has several places.
pub(super) fn check_shards(mesh: &Mesh, problem: &Problem, settings: &Settings) -> Result<()> {
    if mesh.count() == 1 {
        return Ok(());
    }
    let refuse = |what: &str, value: &dyn std::fmt::Debug| {
        Err(Error::invalid(format!("in several shards {what}"), value, FIX))
    };
    let is_masked = problem.fixed_mask.is_some() || problem.moving_mask.is_some();
    let planes = problem.fixed.geometry.size[2];
    if planes == 1 {
        return refuse("images have several planes", &planes);
    }
    for stage in &settings.stages {
        let Some(descent) = stage.descent() else { continue };
        if let Some((what, value)) = unlike_shards(stage, &descent) {
            return refuse(what, &format_args!("{value}"));
        }
        if is_masked && !matches!(stage, Stage::Greedy(_)) {
            return refuse("only greedy stages know masks", &stage.name());
        }
        let channels = 1 + problem.more_channels.len();
        if channels > 1 && matches!(descent.similarity, Similarity::Mi(_) | Similarity::Nmi(_)) {
            return refuse("mutual information compares one channel", &channels);
        }
    }
    Ok(())
}

/// What of a deformable stage cannot be cut, and how it is set.
pub(super) fn unlike_shards(stage: &Stage, descent: &Descent) -> Option<(&'static str, String)> {
    let Descent { optimizer, update, regularization, .. } = descent;
    let is_velocity = matches!(stage, Stage::Svf(_));
    let rule = match () {
        () if !matches!(optimizer, OptimizerSettings::Adam(_)) => {
            return Some(("the optimiser is Adam", format!("{optimizer:?}")));
        }
        // Velocities are always added.
        () if *update != Update::Compositive && !is_velocity => {
            ("steps are composed", format!("{update:?}"))
        }
        () if *regularization != Regularization::default() => {
            ("there are no penalties", format!("{regularization:?}"))
        }
        () => return None,
    };
    Some(rule)
}

/// Bytes a voxel of both images, and of their masks, that the first device holds whole, and of the field that a level
/// begins with.
const IMAGE_BYTES: u64 = 4;
const FIELD_BYTES: u64 = 12;
/// CubeCL's pools allow buffers of at most this part of a device's memory.
pub(super) const LARGEST_PART: u64 = 4;

/// How many shards the greedy stages need on `devices` devices with `bytes` of memory each; at least
/// one for each device. `grids` are those of the fixed and the moving image, and `masked` says which of them
/// has a mask.
///
/// # Errors
/// [`Error::TooLarge`] when no number of shards makes a stage fit.
pub fn shards_needed(
    settings: &Settings,
    (grids, masked): ([&Geometry; 2], [bool; 2]),
    devices: usize,
    bytes: u64,
) -> Result<usize> {
    let voxels = |grid: &Geometry| grid.len() as u64;
    let values = |i: usize| voxels(grids[i]) * (1 + u64::from(masked[i]));
    let images = IMAGE_BYTES * (values(0) + values(1));
    let mut most = devices;
    for stage in &settings.stages {
        let (Stage::Greedy(_), Some(descent)) = (stage, stage.descent()) else { continue };
        for level in descent.levels {
            let spacing_mm = level.shrink * finest_spacing_mm(grids[0]);
            let on_level =
                |i: usize| level_geometry(grids[i], spacing_mm, settings.minimum_axis_voxels);
            let [fixed, moving] = [on_level(0)?, on_level(1)?];
            let options = DeformOptions {
                smooth_gradient: GaussianOptions::isotropic(descent.sigma_gradient_voxels),
                smooth_field: GaussianOptions::isotropic(descent.sigma_field_voxels),
                optimizer: optimizer(descent.optimizer),
                ..DeformOptions::greedy(measure(descent.similarity))
            };
            let problem = GreedyProblem {
                fixed: fixed.dims(),
                moving: moving.dims(),
                masked,
                axis: Axis::Z,
                options,
            };
            let free = bytes.saturating_sub(images + FIELD_BYTES * voxels(&fixed));
            let memory = DeviceMemory { bytes: free, largest_buffer: bytes / LARGEST_PART };
            most = most.max(plan(&problem, devices, memory)?.layout.count());
        }
    }
    Ok(most)
}
