//! `ffdp.apply`: an image or a label map through a transform.

use burn::tensor::{Device, Tensor};
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::{Composite, GridMap};
use ffdp_cli::Failure;
use ffdp_image::Error;
use ffdp_image::image::{Geometry, LabelMap, SmoothImage, SmoothKernel, Volume, download};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Refusal, Result};
use crate::flags::{ApplyFlags, Read, Reader, read};
use crate::image::Image;
use crate::image_argument::ImageArgument;
use crate::transform::{composite_of, placed_on};

/// Weights of a sum are rounded: this near to 1 a voxel lies inside.
const INSIDE: f32 = 1.0 - 1e-5;

/// An image seen through a transform, on the grid of a reference; see the stubs of the module.
#[pyfunction]
#[pyo3(signature = (transform, moving, reference=None, **settings))]
pub fn apply<'py>(
    py: Python<'py>,
    transform: Option<&Bound<'py, PyAny>>,
    moving: &Bound<'py, PyAny>,
    reference: Option<&Bound<'py, PyAny>>,
    settings: Option<&Bound<'py, PyDict>>,
) -> Result<Image> {
    let Read { flags, .. } = &read::<ApplyFlags>(settings)?;
    let map = transform.map(composite_of).transpose()?.unwrap_or_default();
    let map = if flags.inverse { map.inverse()? } else { map };
    let moving = ImageArgument::of(moving, "moving")?;
    let grid = match ImageArgument::optional(reference, "reference")? {
        Some(reference) => reference.geometry()?,
        None => map.first_grid().cloned().ok_or_else(|| {
            Failure::user(
                "the grid of the result is not known: no displacement comes first",
                "name an image on that grid: reference",
            )
        })?,
    };
    let on_grid = |map: &Composite, image: &Geometry| {
        let device = flags.computing.device.open()?;
        let map = placed_on(map, &device)?.on_grid(&grid, &device);
        check_overlap(&map, image)?;
        Ok::<_, Refusal>(map)
    };
    let keeps_integers = moving.has_integers(py)? && flags.interpolation == Reader::Nearest;
    if flags.interpolation == Reader::Label || keeps_integers {
        let labels = moving.labels(py)?;
        let outside = label(flags.background)?;
        let warped = py.detach(|| {
            let map = on_grid(&map, &labels.geometry)?;
            Ok::<_, Refusal>(warped_labels(&labels, &map, flags.interpolation, outside)?)
        })?;
        return Image::of_labels(py, warped);
    }
    let volume = moving.volume(py, "moving", flags.reading)?;
    let warped = py.detach(|| {
        let map = on_grid(&map, &volume.geometry)?;
        Ok::<_, Refusal>(warped(volume, &map, flags)?)
    })?;
    Image::of_volume(py, warped)
}

fn check_overlap(map: &GridMap, image: &Geometry) -> ffdp_image::Result<()> {
    if map.percent_inside(image)? > 0.0 {
        return Ok(());
    }
    Err(Error::NoOverlap {
        fixed_box_mm: map.grid().bounding_box_mm(),
        moving_box_mm: image.bounding_box_mm(),
        overlap_percent: 0.0,
        required_percent: 0.0,
    })
}

fn label(background: f32) -> ffdp_image::Result<i32> {
    let is_label = background.fract() == 0.0 && background.abs() < i32::MAX as f32;
    is_label.then_some(background as i32).ok_or_else(|| {
        let what = "the background of labels must be a label";
        Error::invalid(what, background, "give an integer, or another interpolation")
    })
}

fn warped(volume: Volume, map: &GridMap, flags: &ApplyFlags) -> ffdp_image::Result<Volume> {
    let how = match flags.interpolation {
        Reader::Cubic => return smooth(volume, map, SmoothKernel::Cubic, flags.background),
        Reader::Sinc => return smooth(volume, map, SmoothKernel::Lanczos, flags.background),
        Reader::Nearest => Interpolation::Nearest,
        Reader::Linear | Reader::Label => Interpolation::Linear,
    };
    let mut warped = map.warp(&volume, how)?;
    if flags.background != 0.0 {
        let inside = inside(&volume.geometry, map, how)?;
        let pairs = warped.data.iter_mut().zip(inside);
        for (value, inside) in pairs.filter(|(_, inside)| *inside < INSIDE) {
            *value += (1.0 - inside) * flags.background;
        }
    }
    Ok(warped)
}

fn smooth(
    volume: Volume,
    map: &GridMap,
    kernel: SmoothKernel,
    outside: f32,
) -> ffdp_image::Result<Volume> {
    let values = map.read_smoothly(&SmoothImage::new(volume, kernel), outside)?;
    Volume::new(values, map.grid().clone())
}

fn warped_labels(
    labels: &LabelMap,
    map: &GridMap,
    how: Reader,
    outside: i32,
) -> ffdp_image::Result<LabelMap> {
    let how = if how == Reader::Label { Interpolation::Label } else { Interpolation::Nearest };
    let mut warped = map.warp_labels(labels, how)?;
    if outside != 0 {
        let inside = inside(&labels.geometry, map, Interpolation::Nearest)?;
        let pairs = warped.data.iter_mut().zip(inside);
        pairs.filter(|(_, inside)| *inside == 0.0).for_each(|(value, _)| *value = outside);
    }
    Ok(warped)
}

/// How much of an image on this grid is in each voxel of the result.
fn inside(image: &Geometry, map: &GridMap, how: Interpolation) -> ffdp_image::Result<Vec<f32>> {
    let [d, h, w] = image.dims();
    let device: &Device = map.device();
    let ones = Tensor::ones([1, 1, d, h, w], device);
    download(map.sample(ones, image, how), "how much of an image is seen")
}
