//! Bringing images of any grid onto the one that is trained on.

use burn::tensor::{Device, Tensor, TensorData};
use ffdp::Result;
use ffdp::image::{Affine, Geometry, LabelMap, Physical, Volume, index_affine};
use ffdp::ops::{
    GaussianOptions, GridSampleOptions, Interpolation, Padding, gaussian, grid_sample,
};

use crate::args::Align;

/// The map of fixed to moving coordinates in mm from which training starts.
pub fn alignment(align: Align, fixed: &Geometry, moving: &Geometry) -> Affine<Physical, Physical> {
    match align {
        Align::Headers => Affine::identity(),
        Align::Centers => {
            let (f, m) = (fixed.center_mm(), moving.center_mm());
            let shift = [0, 1, 2].map(|i| m[i] - f[i]);
            let identity = Affine::<Physical, Physical>::identity().linear();
            Affine::from_parts(identity, shift)
        }
    }
}

/// `image` on `grid` (trilinear, zeros outside), after smoothing where the grid is coarser.
pub fn resample_image(
    image: &Volume,
    grid: &Geometry,
    to_image_mm: &Affine<Physical, Physical>,
    device: &Device,
) -> Result<Volume> {
    let tensor = image.to_tensor(device);
    let shrink = [0, 1, 2].map(|i| grid_step(grid, &image.geometry, i));
    // Gaussian of the width that removes what the coarser grid cannot hold.
    let sigma = shrink.map(|s| if s > 1.0 { 0.5 * (s * s - 1.0f64).sqrt() } else { 0.0 });
    let tensor = if sigma == [0.0; 3] { tensor } else { smooth(tensor, sigma) };
    let sampled = sample(tensor, &image.geometry, grid, to_image_mm, Interpolation::Linear, device);
    Volume::from_tensor(sampled, grid.clone())
}

/// `labels` on `grid`, each voxel the nearest label, background outside.
pub fn resample_labels(
    labels: &LabelMap,
    grid: &Geometry,
    to_labels_mm: &Affine<Physical, Physical>,
    device: &Device,
) -> Result<LabelMap> {
    let tensor = labels.to_float_tensor(device)?;
    let nearest = Interpolation::Nearest;
    let sampled = sample(tensor, &labels.geometry, grid, to_labels_mm, nearest, device);
    let values = Volume::from_tensor(sampled, grid.clone())?;
    LabelMap::new(values.data.iter().map(|&label| label as i32).collect(), grid.clone())
}

fn sample(
    tensor: Tensor<5>,
    from: &Geometry,
    grid: &Geometry,
    to_mm: &Affine<Physical, Physical>,
    interpolation: Interpolation,
    device: &Device,
) -> Tensor<5> {
    let map = index_affine(grid, from, to_mm);
    let map = Tensor::from_data(TensorData::new(map.to_f32().to_vec(), [1, 3, 4]), device);
    let options = GridSampleOptions {
        interpolation,
        padding: Padding::Zeros,
        size: Some(grid.dims()),
        ..GridSampleOptions::default()
    };
    grid_sample(tensor, Some(map), None, &options)
}

/// How many voxels of `image` along its axis `i` a step to the grid's neighbour spans, at most.
fn grid_step(grid: &Geometry, image: &Geometry, i: usize) -> f64 {
    let linear = ffdp::image::index_linear(grid, image);
    linear[i].iter().fold(0.0f64, |largest, step| largest.max(step.abs()))
}

fn smooth(tensor: Tensor<5>, sigma_voxels: [f64; 3]) -> Tensor<5> {
    gaussian(tensor, &GaussianOptions { sigma_voxels, ..GaussianOptions::isotropic(0.0) })
}
