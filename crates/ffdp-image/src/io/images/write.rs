//! Writing volumes and label maps, whole or not at all.

use std::path::Path;

use super::data_type::DataType;
use super::new_image::{Kind, NewImage};
use super::sink::{write_image, write_numbers};
use crate::error::{Error, Result};
use crate::image::{Geometry, LabelMap, Volume};

/// Writes a volume as float32, in the format that the name's end says: `.nii.gz`, `.nii`, `.zarr` (OME-Zarr 0.5),
/// `.nrrd` or `.mha`.
///
/// NIfTI is NIfTI-1, or NIfTI-2 when an axis has more than 32767 voxels or the geometry needs f64. The grid
/// is stored as sform, and as qform too where the axes are orthogonal. The file appears whole or
/// not at all; an existing one is replaced (see [`check_not_an_input`](crate::io::check_not_an_input)).
///
/// # Errors
/// [`Error::Invalid`] for another file name, [`Error::Shape`] when there is not one value per
/// voxel, [`Error::Io`] when writing fails.
pub fn write_volume(path: impl AsRef<Path>, volume: &Volume) -> Result<()> {
    let image = NewImage::new(&volume.geometry, DataType::F32, Kind::Image);
    check_voxels(volume.data.len(), &volume.geometry)?;
    let data = &volume.data;
    write_image(path.as_ref(), &image, |file| {
        write_numbers(file, data.len(), |i| data[i].to_le_bytes())
    })
}

/// Writes labels in the smallest integer type that holds them, with the label intent (1002).
///
/// # Errors
/// As [`write_volume`].
pub fn write_labels(path: impl AsRef<Path>, labels: &LabelMap) -> Result<()> {
    let data_type = smallest_type(&labels.data);
    let image = NewImage::new(&labels.geometry, data_type, Kind::Labels);
    check_voxels(labels.data.len(), &labels.geometry)?;
    let (data, count) = (&labels.data, labels.data.len());
    write_image(path.as_ref(), &image, |file| match data_type {
        DataType::U8 => write_numbers(file, count, |i| (data[i] as u8).to_le_bytes()),
        DataType::I8 => write_numbers(file, count, |i| (data[i] as i8).to_le_bytes()),
        DataType::U16 => write_numbers(file, count, |i| (data[i] as u16).to_le_bytes()),
        DataType::I16 => write_numbers(file, count, |i| (data[i] as i16).to_le_bytes()),
        _ => write_numbers(file, count, |i| data[i].to_le_bytes()),
    })
}

/// The narrowest type for all labels; signed before unsigned at equal width, as more tools read it.
pub(super) fn smallest_type(labels: &[i32]) -> DataType {
    let low = labels.iter().copied().min().unwrap_or(0);
    let high = labels.iter().copied().max().unwrap_or(0);
    let fits = |from: i32, to: i32| low >= from && high <= to;
    if fits(0, u8::MAX.into()) {
        DataType::U8
    } else if fits(i8::MIN.into(), i8::MAX.into()) {
        DataType::I8
    } else if fits(i16::MIN.into(), i16::MAX.into()) {
        DataType::I16
    } else if fits(0, u16::MAX.into()) {
        DataType::U16
    } else {
        DataType::I32
    }
}

fn check_voxels(got: usize, geometry: &Geometry) -> Result<()> {
    if got == geometry.len() {
        return Ok(());
    }
    let what = format!("number of voxels of size {:?}", geometry.size);
    Err(Error::Shape { what, expected: vec![geometry.len()], got: vec![got] })
}

/// Cosine of two voxel axes beyond which ITK 5.4 refuses a NIfTI whose placement is an sform alone: it reads 1e-4, not 3e-4.
const ITK_COSINE: f64 = 1e-4;

/// A warning for a NIfTI of this name on a grid with shear, which ITK refuses, and with it ANTs and 3D Slicer.
pub fn unreadable_by_itk(path: impl AsRef<Path>, geometry: &Geometry) -> Option<String> {
    let path = path.as_ref();
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let is_nifti = name.ends_with(".nii") || name.ends_with(".nii.gz");
    let cosine = geometry.largest_cosine();
    (is_nifti && cosine > ITK_COSINE).then(|| {
        format!(
            "{}: the axes of the grid are not at right angles (cosine {cosine:.4}); ITK, ANTs and 3D Slicer refuse such \
             a NIfTI: use a reference without shear for them",
            path.display()
        )
    })
}
