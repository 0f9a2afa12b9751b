//! The levels: the same image at several resolutions, every point at its place.
//!
//! A level's grid covers the same field of view as the image (outer voxel faces coincide), so its
//! origin is not that of the image; all positions go through the headers. Smoothing before sampling
//! has a standard deviation of half the shrink factor, the usual choice of ITK and ANTs.

use burn::tensor::Tensor;

use super::settings::LevelSettings;
use ffdp_burn::ops::{GaussianOptions, Interpolation, Padding, gaussian};
use ffdp_burn::transform::resample;
use ffdp_image::error::Result;
use ffdp_image::image::Geometry;

/// Fewest voxels along an axis of an image that is registered.
pub const MINIMUM_AXIS_VOXELS: usize = 8;

/// Standard deviation of the smoothing as a part of the shrink factor.
const SIGMA_PER_SHRINK: f64 = 0.5;

/// An image on the grid of a level.
#[derive(Clone, Debug)]
pub struct LevelImage {
    /// Intensities `[1, C, D, H, W]`.
    pub tensor: Tensor<5>,
    /// The level's grid.
    pub geometry: Geometry,
}

/// The axis along which a grid is a single plane; `None` of a volume.
pub(super) fn plane_axis(grid: &Geometry) -> Option<usize> {
    (0..3).rev().find(|&axis| grid.size[axis] == 1)
}

/// The smallest voxel spacing of a grid, in mm; an axis of one voxel does not count.
pub fn finest_spacing_mm(geometry: &Geometry) -> f64 {
    let axes = geometry.spacing_mm.into_iter().zip(geometry.size);
    axes.filter(|(_, voxels)| *voxels > 1).map(|(mm, _)| mm).fold(f64::INFINITY, f64::min)
}

/// The grid of a level with voxels of about `spacing_mm` along every axis.
///
/// An axis whose voxels are already larger is kept, so that levels of anisotropic images become
/// isotropic first; no axis is shrunk below `minimum_axis` voxels. The field of view is kept exactly
/// and the number of voxels is whole, hence the "about".
///
/// # Errors
/// [`Error::Invalid`](ffdp_image::Error::Invalid) when `spacing_mm` is not a positive number.
pub fn level_geometry(full: &Geometry, spacing_mm: f64, minimum_axis: usize) -> Result<Geometry> {
    let size = std::array::from_fn(|i| {
        let extent_mm = full.size[i] as f64 * full.spacing_mm[i];
        let least = minimum_axis.min(full.size[i]);
        ((extent_mm / spacing_mm).round() as usize).clamp(least, full.size[i])
    });
    if size == full.size { Ok(full.clone()) } else { full.resized(size) }
}

/// Those of both images on a level.
pub(super) fn level_grids(
    full: &[Geometry; 2],
    minimum_axis: usize,
    level: &LevelSettings,
) -> Result<[Geometry; 2]> {
    let spacing_mm = level.shrink * finest_spacing_mm(&full[0]);
    let on_level = |i: usize| level_geometry(&full[i], spacing_mm, minimum_axis);
    Ok([on_level(0)?, on_level(1)?])
}

/// The smoothing of an image on the grid `full` before it is read on that of a `level`.
pub fn level_smoothing(full: &Geometry, level: &Geometry) -> GaussianOptions {
    let sigma_voxels = std::array::from_fn(|i| {
        let shrink = full.size[i] as f64 / level.size[i] as f64;
        if shrink > 1.0 { SIGMA_PER_SHRINK * shrink } else { 0.0 }
    });
    GaussianOptions { sigma_voxels, ..GaussianOptions::isotropic(0.0) }
}

/// The image on the level with voxels of about `spacing_mm`: smoothed where it is shrunk, then read
/// at the exact positions of the level's voxel centres.
///
/// # Shapes
/// image `[1, C, D, H, W]` of `full`.
///
/// # Errors
/// As [`level_geometry`].
pub fn level_image(
    image: &Tensor<5>,
    full: &Geometry,
    spacing_mm: f64,
    minimum_axis: usize,
) -> Result<LevelImage> {
    let geometry = level_geometry(full, spacing_mm, minimum_axis)?;
    Ok(LevelImage { tensor: on_level(image, full, &geometry), geometry })
}

/// The image on the grid of a `level`: smoothed where it is shrunk, then read at the exact positions of the level's
/// voxel centres.
///
/// # Shapes
/// image `[1, C, D, H, W]` of `full`; result `[1, C, D', H', W']` of `level`.
pub(super) fn on_level(image: &Tensor<5>, full: &Geometry, level: &Geometry) -> Tensor<5> {
    if level == full {
        return image.clone();
    }
    let smooth = gaussian(image.clone(), &level_smoothing(full, level));
    let (linear, border) = (Interpolation::Linear, Padding::Border);
    resample(smooth, full, level, linear, border)
}
