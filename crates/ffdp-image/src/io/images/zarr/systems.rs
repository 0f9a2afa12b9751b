//! Coordinate systems of OME-NGFF 0.6 (RFC-5), as transforms between images need them.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::array::read_json;
use super::ome::{Kind, Multiscale, RawAxis, axes, direction};
use crate::error::{Error, Result};
use crate::image::{Affine, Physical, Voxel};

/// A point of a coordinate system: in the order and the units of its axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {}

/// The file with the metadata of a group of Zarr 3, and what is under `ome` there.
///
/// # Errors
/// [`Error::Io`] without that file, [`Error::File`] where it is no JSON.
pub fn metadata(folder: &Path) -> Result<(PathBuf, Value)> {
    let file = folder.join("zarr.json");
    let mut json = read_json(&file)?;
    let ome = json["attributes"]["ome"].take();
    Ok((file, ome))
}

/// From RAS mm to a coordinate system with these axes, which are those of `file`.
///
/// # Errors
/// [`Error::File`] for other than three axes of space, [`Error::InFile`] where two of them are one direction.
pub fn system(file: &Path, raw: &Value) -> Result<Affine<Physical, Stored>> {
    let refused = |value: String| {
        let what = "a transform leads from three axes of space to three others";
        Error::file(file, what, value, "name a transform between images of three dimensions")
    };
    let raw: Vec<RawAxis> = Deserialize::deserialize(raw)
        .map_err(|error: serde_json::Error| refused(error.to_string()))?;
    let axes = axes(raw).map_err(refused)?;
    let along = Affine::<Physical, Physical>::from_parts(direction(&axes), [0.0; 3]).inverse();
    let along = along.map_err(Error::in_file(file))?.linear();
    let mut rows = [[0.0; 4]; 3];
    for (i, axis) in axes.iter().enumerate() {
        let Kind::Space(j) = axis.kind else {
            return Err(refused(format!("axis {:?}", axis.name)));
        };
        let mm = axis.millimetres(&mut Vec::new());
        (0..3).for_each(|column| rows[i][column] = along[j][column] / mm);
    }
    match axes.len() {
        3 => Ok(Affine::from_rows(rows)),
        other => Err(refused(format!("{other} axes"))),
    }
}

/// From voxels of a field to the coordinate system that its vectors are in.
///
/// # Errors
/// [`Error::File`] for an image that is no field on three axes of space.
pub fn field(folder: &Path) -> Result<Affine<Voxel, Stored>> {
    let image = Multiscale::open(folder)?;
    let spaces = image.space().count();
    if image.axis(Kind::Displacement).is_none() || spaces != 3 {
        let what = "a displacement field has an axis of type displacement and three of space";
        let value = format!("{spaces} of space among {}", image.axes.len());
        return Err(Error::file(&image.file, what, value, "name a field of vectors"));
    }
    let mut rows = [[0.0; 4]; 3];
    for (row, (j, axis)) in rows.iter_mut().zip(image.space()) {
        let at = image.axis(axis.kind).expect("it is one of the axes");
        (row[j], row[3]) = image.placement(at);
    }
    Ok(Affine::from_rows(rows))
}
