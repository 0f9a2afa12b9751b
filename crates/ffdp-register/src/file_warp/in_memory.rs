//! The same of images in memory, whole.

use burn::tensor::Tensor;

use super::outside::{fill, fill_labels, label_or_refusal};
use super::{FileInterpolation, nothing_seen};
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::GridMap;
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, LabelMap, SmoothImage, Volume, download};

/// An image through a map, on the map's grid; voxels that the image does not reach are `background`.
///
/// # Errors
/// [`Error::NoOverlap`](ffdp_image::Error::NoOverlap) where nothing of the image is seen,
/// [`Error::Device`](ffdp_image::Error::Device) when values cannot be read back.
pub fn warp_volume(
    volume: Volume,
    map: &GridMap,
    how: FileInterpolation,
    background: f32,
) -> Result<Volume> {
    check_overlap(&volume.geometry, map)?;
    let (sampler, smooth) = how.samplers();
    if let Some(kernel) = smooth {
        let values = map.read_smoothly(&SmoothImage::new(volume, kernel), background)?;
        return Volume::new(values, map.grid().clone());
    }
    let mut warped = map.warp(&volume, sampler)?;
    if background != 0.0 {
        fill(&mut warped.data, &inside(&volume.geometry, map, sampler)?, background);
    }
    Ok(warped)
}

/// A label map through a map, on the map's grid: by [`FileInterpolation::Label`], else of the nearest voxel. Voxels that it
/// does not reach are `background`.
///
/// # Errors
/// [`Error::Invalid`](ffdp_image::Error::Invalid) for a background that is no label, else as [`warp_volume`].
pub fn warp_labels(
    labels: &LabelMap,
    map: &GridMap,
    how: FileInterpolation,
    background: f32,
) -> Result<LabelMap> {
    let background = label_or_refusal(background)?;
    check_overlap(&labels.geometry, map)?;
    let sampler = match how {
        FileInterpolation::Label => Interpolation::Label,
        _ => Interpolation::Nearest,
    };
    let mut warped = map.warp_labels(labels, sampler)?;
    if background != 0 {
        let inside = inside(&labels.geometry, map, Interpolation::Nearest)?;
        fill_labels(&mut warped.data, &inside, background);
    }
    Ok(warped)
}

fn check_overlap(image: &Geometry, map: &GridMap) -> Result<()> {
    match map.percent_inside(image)? > 0.0 {
        true => Ok(()),
        false => Err(nothing_seen(map.grid(), image)),
    }
}

/// How much of an image on this grid is in each voxel of the result.
fn inside(image: &Geometry, map: &GridMap, how: Interpolation) -> Result<Vec<f32>> {
    let [d, h, w] = image.dims();
    let ones = Tensor::ones([1, 1, d, h, w], map.device());
    download(map.sample(ones, image, how), "how much of an image is seen")
}
