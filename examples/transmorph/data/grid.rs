//! Bringing images of any grid onto the one that is trained on.

use burn::tensor::Device;
use ffdp::Result;
use ffdp::image::{Geometry, LabelMap, Volume, index_linear};
use ffdp::ops::{GaussianOptions, Interpolation, Padding, gaussian};
use ffdp::transform::resample;

use crate::args::Align;

/// Where the moving grid is taken to lie: as its header says, or centred on the fixed one.
///
/// # Errors
/// Positions that are not finite.
pub fn place(align: Align, moving: &Geometry, fixed: &Geometry) -> Result<Geometry> {
    match align {
        Align::Headers => Ok(moving.clone()),
        Align::Centers => {
            let (f, m) = (fixed.center_mm(), moving.center_mm());
            let origin = [0, 1, 2].map(|i| moving.origin_mm[i] + f[i] - m[i]);
            moving.clone().with_origin(origin)
        }
    }
}

/// `image` on `grid` (trilinear, zeros outside), smoothed first where the grid is coarser.
///
/// # Errors
/// A device that cannot hand back its result.
pub fn image_on(grid: &Geometry, image: &Volume, device: &Device) -> Result<Volume> {
    let from = &image.geometry;
    let steps = index_linear(grid, from);
    // Voxels of the image that one step on the grid spans, along each axis of the image; and the
    // Gaussian that takes away what the coarser grid cannot show.
    let sigma_voxels = steps.map(|row| {
        let step = row.iter().fold(0.0f64, |longest, step| longest.max(step.abs()));
        0.5 * (step * step - 1.0).max(0.0).sqrt()
    });
    let options = GaussianOptions { sigma_voxels, ..GaussianOptions::isotropic(0.0) };
    let smooth = gaussian(image.to_tensor(device), &options);
    let moved = resample(smooth, from, grid, Interpolation::Linear, Padding::Zeros);
    Volume::from_tensor(moved, grid.clone())
}

/// `labels` on `grid`: the nearest label of each voxel, background outside.
///
/// # Errors
/// Labels too large to be exact as f32, and a device that cannot hand back its result.
pub fn labels_on(grid: &Geometry, labels: &LabelMap, device: &Device) -> Result<LabelMap> {
    let values = labels.to_float_tensor(device)?;
    let moved = resample(values, &labels.geometry, grid, Interpolation::Nearest, Padding::Zeros);
    let values = Volume::from_tensor(moved, grid.clone())?;
    LabelMap::new(values.data.iter().map(|&label| label as i32).collect(), grid.clone())
}
