//! Sharded images on other grids: the levels of a pyramid, and displacements carried between them.

use super::device_mesh::{DeviceMesh, ShardPlaces};
use super::ring::{DisplacementBounds, IndexMap, RingInputs, RingSampler};
use super::sharded::Sharded;
use super::smoothing::gaussian;
use ffdp_burn::ops::{GaussianOptions, GridSampleOptions, Interpolation, Padding};
use ffdp_burn::transform::{affine_tensor, map_vectors};
use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Geometry, index_affine, index_linear};

/// The values of a sharded image (on the grid `from`) at the voxel centres of the grid `to`, cut for
/// `mesh` along the image's axis: [`transform::resample`](ffdp_burn::transform::resample()), position by
/// position. Each shard of the result fetches the planes that it lies on. Differentiable.
///
/// # Shapes
/// image `[N, C, D, H, W]` of `from`; result `[N, C, D', H', W']` of `to`.
///
/// # Errors
/// [`Error::Invalid`](ffdp_image::Error::Invalid) when `to` has no planes to cut.
///
/// # Panics
/// If the image is not of the size of `from`.
pub fn resample(
    image: &Sharded,
    [from, to]: [&Geometry; 2],
    mesh: &DeviceMesh,
    interpolation: Interpolation,
    padding: Padding,
) -> Result<Sharded> {
    let size = image.layout().size();
    assert_eq!(size, from.dims(), "resample: image of {size:?} and the size (z, y, x) of `from`");
    let layout = mesh.layout(to.dims(), image.layout().axis())?;
    let mesh = mesh.first(layout.count());
    let map = index_affine(to, from, &Affine::identity());
    let options = GridSampleOptions { interpolation, padding, ..GridSampleOptions::default() };
    let reach = IndexMap { affine: vec![*map.rows()], ..IndexMap::identity() };
    let bounds = [DisplacementBounds::NONE];
    let sampler = RingSampler::new(
        ShardPlaces { layout: &layout, mesh: &mesh },
        image.layout(),
        &reach,
        &bounds,
        &options,
    );
    let first = &image.shards()[0];
    let affine = affine_tensor(&map, &first.device(), first.dtype());
    Ok(sampler.sample(&RingInputs { moving: image, affine: Some(&affine), displacement: None }))
}

/// An image on a coarser grid: smoothed, then read at the exact positions of the level's voxel
/// centres, continued beyond its border. Every value is that of the whole image's pyramid with the
/// same smoothing; no seam shows on any level.
///
/// # Errors
/// As [`resample`].
///
/// # Panics
/// As [`resample`] and [`gaussian`].
pub fn level(
    image: &Sharded,
    [full, level]: [&Geometry; 2],
    smoothing: &GaussianOptions,
    mesh: &DeviceMesh,
) -> Result<Sharded> {
    if full == level {
        return Ok(image.clone());
    }
    let smooth = gaussian(image, smoothing);
    resample(&smooth, [full, level], mesh, Interpolation::Linear, Padding::Border)
}

/// A displacement on another grid, in its voxels:
/// [`Displacement::resampled`](ffdp_burn::transform::Displacement::resampled) of a sharded field.
///
/// # Errors
/// As [`resample`].
///
/// # Panics
/// If the field is not of the size of `from` or has not 3 components.
pub fn resample_displacement(
    field: &Sharded,
    [from, to]: [&Geometry; 2],
    mesh: &DeviceMesh,
) -> Result<Sharded> {
    if from == to {
        return Ok(field.clone());
    }
    let field = resample(field, [from, to], mesh, Interpolation::Linear, Padding::Border)?;
    let matrix = index_linear(from, to);
    Ok(field.map(|shard| map_vectors(shard, &matrix)))
}
