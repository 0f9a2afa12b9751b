//! All volumes of a file with more than three axes, in one pass each way.

use std::path::Path;

use super::data_type::DataType;
use super::header::Header;
use super::read::{for_each_chunk, reserve};
use super::source::Source;
use super::write::{new_header, write_file, write_numbers};
use crate::error::{Error, Result};
use crate::image::Volume;

const MILLIMETRES_AND_SECONDS: i32 = 2 | 8;

/// Reads all volumes of an image of three or more axes, the fourth axis fastest.
///
/// # Errors
/// As [`read_volume`](super::read_volume), but for the number of volumes.
pub fn read_volumes(path: impl AsRef<Path>) -> Result<Vec<Volume>> {
    let path = path.as_ref();
    let mut source = Source::open(path)?;
    let header = Header::read(&mut source)?;
    let voxels = header.geometry.len();
    let count = voxels * header.volumes();
    let mut data: Vec<f32> = reserve(path, count)?;
    for_each_chunk(&mut source, &header, 0, count, |values| {
        data.extend(values.iter().map(|&v| v as f32));
    })?;
    source.finish(header.vox_offset + header.data_bytes())?;
    let volume = |data: &[f32]| Volume::new(data.to_vec(), header.geometry.clone());
    data.chunks(voxels).map(volume).collect()
}

/// Writes volumes of one grid as a 4-D image of float32, `time_step_seconds` apart.
///
/// # Errors
/// As [`write_volume`](super::write_volume); [`Error::Invalid`] for none or over 32767
/// volumes, [`Error::Grid`] when their grids differ.
pub fn write_volumes(
    path: impl AsRef<Path>,
    volumes: &[Volume],
    time_step_seconds: f64,
) -> Result<()> {
    let count = i16::try_from(volumes.len());
    let (Some(first), Ok(count)) = (volumes.first(), count) else {
        let what = "a file of several volumes holds 1 to 32767 of them";
        return Err(Error::invalid(what, volumes.len(), "write several files"));
    };
    for volume in volumes {
        first.geometry.check_same_grid(&volume.geometry, "a volume of a series")?;
    }
    let mut header = new_header(&first.geometry, DataType::F32);
    (header.dim[0], header.dim[4]) = (4, i64::from(count));
    header.pixdim[4] = time_step_seconds;
    header.xyzt_units = MILLIMETRES_AND_SECONDS;
    write_file(path.as_ref(), &header, |file| {
        volumes
            .iter()
            .try_for_each(|volume| write_numbers(file, volume.data.iter().map(|v| v.to_le_bytes())))
    })
}
