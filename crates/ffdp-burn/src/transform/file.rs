//! Transforms from files and into files.

use std::path::Path;

use burn::tensor::Device;

use super::bspline::BsplineTransform;
use super::composite::Composite;
use super::displacement::Displacement;
use super::step::Step;
use ffdp_image::error::{Error, Result};
use ffdp_image::io::images::write_displacement;
use ffdp_image::io::{
    TransformPart, is_composite_name, read_transform_file, write_affine, write_bspline,
    write_composite,
};

/// Reads a transform of any kind that [`read_transform_file`] knows; displacements go to `device`.
///
/// # Errors
/// As [`read_transform_file`].
pub fn read_transform(path: impl AsRef<Path>, device: &Device) -> Result<Composite> {
    let step = |part| {
        Ok(match part {
            TransformPart::Affine(affine) => Step::Affine(affine),
            TransformPart::Displacement { values, geometry } => {
                Step::Displacement(Displacement::from_vec(values, geometry, device)?)
            }
            TransformPart::Bspline { coefficients, geometry } => {
                Step::Bspline(BsplineTransform::new(coefficients, geometry)?)
            }
        })
    };
    let parts = read_transform_file(path)?;
    Ok(Composite::new(parts.into_iter().map(step).collect::<Result<_>>()?))
}

/// Writes a transform for ITK and ANTs: any chain of matrices and displacements as a composite (`.h5`; for OME-Zarr 0.6
/// `.zarr`), one that is affine as a matrix (`.txt`, `.tfm`, `.mat`), a single B-spline as text (`.txt`, `.tfm`), a
/// single displacement as a field (`.nii`, `.nii.gz`).
///
/// # Errors
/// [`Error::Invalid`] for anything else, and for a name of another kind: make it one displacement
/// first ([`Composite::to_displacement`]). Those of [`write_composite`], [`write_affine`] and
/// [`write_displacement`].
pub fn write_transform(path: impl AsRef<Path>, transform: &Composite) -> Result<()> {
    let path = path.as_ref();
    if is_composite_name(path) {
        return write_composite(
            path,
            &transform.steps().iter().map(part).collect::<Result<Vec<_>>>()?,
        );
    }
    if let Some(affine) = transform.as_affine() {
        return write_affine(path, &affine);
    }
    match transform.steps() {
        [Step::Displacement(step)] => write_displacement(path, &step.to_vec()?, step.geometry()),
        [Step::Bspline(step)] => write_bspline(path, step.coefficients(), step.geometry()),
        steps => Err(Error::invalid(
            "a file that is no composite (.h5, .zarr) holds one affine transform, displacement or B-spline",
            format_args!("{} steps", steps.len()),
            "make it one displacement on a grid first, or name it .h5",
        )),
    }
}

/// A step as a file has it.
fn part(step: &Step) -> Result<TransformPart> {
    match step {
        Step::Affine(affine) => Ok(TransformPart::Affine(*affine)),
        Step::Displacement(step) => {
            let (values, geometry) = (step.to_vec()?, step.geometry().clone());
            Ok(TransformPart::Displacement { values, geometry })
        }
        Step::Bspline(step) => {
            let (coefficients, geometry) = (step.coefficients().to_vec(), step.geometry().clone());
            Ok(TransformPart::Bspline { coefficients, geometry })
        }
        Step::Inverse(_) | Step::InverseBspline(_) | Step::Map(_) => Err(Error::invalid(
            "a file holds no map that is computed where it is needed",
            match step {
                Step::Map(_) => "a flow",
                _ => "the inverse of a displacement",
            },
            "make it a displacement on a grid first (.nii.gz)",
        )),
    }
}
