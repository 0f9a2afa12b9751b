//! Transforms from Rust: read a chain, warp an image, labels and points through it, and go back through its inverse.
//!
//! `cargo run --example apply`

use burn::tensor::Device;
use ffdp::Result;
use ffdp::image::{Affine, Geometry, LabelMap, Volume};
use ffdp::ops::Interpolation;
use ffdp::synth::{PhantomSettings, pair};
use ffdp::transform::{Composite, Displacement, Step};

/// What went through a chain.
#[derive(Debug)]
pub struct Applied {
    /// The moving image on the fixed grid.
    pub image: Volume,
    /// The moving labels on the fixed grid.
    pub labels: LabelMap,
    /// Points of the fixed image, RAS mm, in the moving image and back again.
    pub points: [Vec<[f64; 3]>; 2],
}

/// Warps everything through `chain`, which maps points of the fixed to points of the moving image. A chain comes from
/// `read_transform(file)` or from a registration; chains follow each other by `first.then(second)`.
///
/// # Errors
/// A chain without an inverse, or a device that fails.
pub fn run(
    chain: &Composite,
    image: &Volume,
    labels: &LabelMap,
    fixed_grid: &Geometry,
) -> Result<Applied> {
    // The chain is evaluated once at every voxel; any number of images is then sampled once each.
    let map = chain.on_grid(fixed_grid, &Device::flex());
    let points = vec![fixed_grid.voxel_to_mm().apply(fixed_grid.size.map(|n| n as f64 / 3.0))];
    let mapped = chain.map_points(&points)?;
    let back = chain.inverse()?.map_points(&mapped)?;
    Ok(Applied {
        image: map.warp(image, Interpolation::Linear)?,
        labels: map.warp_labels(labels, Interpolation::Nearest)?,
        points: [points, back],
    })
}

/// A displacement, then a shift of 2 mm along x; and the image and labels of a synthetic brain.
///
/// # Errors
/// None with these settings.
pub fn example() -> Result<(Composite, Volume, LabelMap)> {
    let pair = pair(&PhantomSettings::with_size([32; 3]), 3)?;
    let grid = pair.fixed.image.geometry.clone();
    let warp = Displacement::from_vec(pair.displacement, grid, &Device::flex())?;
    let shift =
        Affine::from_rows([[1.0, 0.0, 0.0, 2.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]);
    let chain = Composite::new(vec![Step::Displacement(warp), Step::Affine(shift)]);
    Ok((chain, pair.moving.image, pair.moving.labels))
}

#[allow(dead_code)] // A test includes this file.
fn main() -> Result<()> {
    let (chain, image, labels) = example()?;
    let applied = run(&chain, &image, &labels, &image.geometry)?;
    let [points, back] = &applied.points;
    println!("{:?} came back as {:?}", points[0], back[0]);
    println!("{} voxels warped, labels too", applied.image.data.len());
    Ok(())
}
