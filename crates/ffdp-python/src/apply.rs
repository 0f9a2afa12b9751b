//! `ffdp.apply`: an image or a label map through a transform.

use ffdp_cli::{Failure, InterpolationChoice};
use ffdp_register::file_warp::{warp_labels, warp_volume};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Refusal, Result};
use crate::flags::{ApplyFlags, Read, read};
use crate::image::Image;
use crate::image_argument::ImageArgument;
use crate::transform::{composite_of, placed_on};

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
    let map = || {
        let device = flags.computing.device.open()?;
        Ok::<_, Refusal>(placed_on(&map, &device)?.on_grid(&grid, &device))
    };
    let (how, background) = (flags.interpolation, flags.background);
    let keeps_integers = moving.has_integers(py)? && how == InterpolationChoice::Nearest;
    if how == InterpolationChoice::Label || keeps_integers {
        let labels = moving.labels(py)?;
        let warped =
            py.detach(|| Ok::<_, Refusal>(warp_labels(&labels, &map()?, how.into(), background)?))?;
        return Image::of_labels(py, warped);
    }
    let volume = moving.volume(py, "moving", flags.reading)?;
    let warped =
        py.detach(|| Ok::<_, Refusal>(warp_volume(volume, &map()?, how.into(), background)?))?;
    Image::of_volume(py, warped)
}
