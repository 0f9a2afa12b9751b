//! All volumes of a file with more than three axes, in one pass each way.

use std::path::Path;

use super::data_type::DataType;
use super::new_image::{Kind, NewImage};
use super::open::open;
use super::read::{read_floats, refuse_vectors};
use super::reserve::reserve;
use super::sink::{write_image, write_numbers};
use crate::error::{Error, Result};
use crate::image::Volume;

/// Reads all volumes of an image of three or more axes, the fourth axis fastest.
///
/// # Errors
/// As [`read_volume`](super::read_volume), but for the number of volumes.
pub fn read_volumes(path: impl AsRef<Path>) -> Result<Vec<Volume>> {
    let path = path.as_ref();
    let (mut source, header) = open(path)?;
    refuse_vectors(&header, path)?;
    let voxels = header.geometry.len();
    let count = voxels * header.volumes();
    let mut data: Vec<f32> = reserve(path, count)?;
    read_floats(&mut source, &header, 0, count, &mut data)?;
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
    let image = NewImage {
        volumes: count as usize,
        time_step_seconds,
        ..NewImage::new(&first.geometry, DataType::F32, Kind::Image)
    };
    write_image(path.as_ref(), &image, |file| {
        volumes.iter().try_for_each(|Volume { data, .. }| {
            write_numbers(file, data.len(), |i| data[i].to_le_bytes())
        })
    })
}
