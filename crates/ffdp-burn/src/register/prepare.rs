//! What must hold before a registration starts, and the images as it compares them.

use super::problem::Problem;
use super::pyramid::MINIMUM_AXIS_VOXELS;
use super::settings::{Settings, Stage};
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, Physical, Volume};

/// Least part of the fixed grid, in percent, that must lie inside the moving image.
///
/// With less, the deformation would be invented rather than found.
pub const MINIMUM_OVERLAP_PERCENT: f64 = 10.0;

/// The images scaled to [0, 1], after everything that would give a wrong result was refused.
pub(super) fn prepare(problem: &Problem, settings: &Settings) -> Result<[Volume; 2]> {
    settings.validate()?;
    let &Problem { fixed, moving, .. } = problem;
    for (name, volume) in [("the fixed image", fixed), ("the moving image", moving)] {
        check_count(name, volume)?;
        volume.check_finite(name)?;
        check_size(name, volume)?;
    }
    // Moments bring the images together; the overlap is checked after them.
    if !matches!(settings.stages.first(), Some(Stage::Moments(_))) {
        check_overlap(&fixed.geometry, &moving.geometry, &problem.initial)?;
    }
    Ok([
        scaled("the fixed image", fixed, settings.intensity_percentiles)?,
        scaled("the moving image", moving, settings.intensity_percentiles)?,
    ])
}

/// Fields are public: what the constructor promised may have been broken since.
fn check_count(name: &str, volume: &Volume) -> Result<()> {
    let (expected, got) = (volume.geometry.len(), volume.data.len());
    if expected == got {
        return Ok(());
    }
    let what = format!("number of voxels of {name}");
    Err(Error::Shape { what, expected: vec![expected], got: vec![got] })
}

fn check_size(name: &str, volume: &Volume) -> Result<()> {
    let size = volume.geometry.size;
    if size.iter().all(|&n| n >= MINIMUM_AXIS_VOXELS) {
        return Ok(());
    }
    Err(Error::invalid(
        format!("{name} must have at least {MINIMUM_AXIS_VOXELS} voxels along x, y and z"),
        size,
        "registration is three-dimensional here; pad or resample a thin slab first",
    ))
}

/// Percentiles to 0 and 1, clamped. An image whose percentiles coincide though it is not constant
/// (a small object on a wide flat background) is scaled by its extremes instead.
fn scaled(name: &str, volume: &Volume, [low, high]: [f64; 2]) -> Result<Volume> {
    let (min, max) = volume.min_max().unwrap_or_default();
    if min == max {
        return Err(Error::invalid(
            format!("{name} must not be constant"),
            format_args!("{min} in every voxel"),
            "it holds nothing to align: check that it is the file you meant",
        ));
    }
    let [from, to] = volume.percentiles([low, high])?;
    if from < to { volume.normalized(low, high) } else { volume.normalized(0.0, 100.0) }
}

/// Demands that the images meet where `affine` (fixed to moving, RAS mm) places them.
pub(super) fn check_overlap(
    fixed: &Geometry,
    moving: &Geometry,
    affine: &Affine<Physical, Physical>,
) -> Result<()> {
    fixed.check_overlap(&placed(moving, affine)?, MINIMUM_OVERLAP_PERCENT)
}

/// The moving grid where `affine` puts it in the space of the fixed image.
pub(super) fn placed(moving: &Geometry, affine: &Affine<Physical, Physical>) -> Result<Geometry> {
    let voxel_to_mm = moving.voxel_to_mm().then(&affine.inverse()?);
    Geometry::from_affine(moving.size, voxel_to_mm)
}
