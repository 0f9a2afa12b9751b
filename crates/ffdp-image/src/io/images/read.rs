//! Reading volumes, label maps and slabs of either.

use std::ops::Range;
use std::path::Path;

use super::data_type::Floats;
use super::header::{Header, INTENT_VECTOR};
use super::open::open;
use super::refuse::reject;
use super::reserve::reserve;
use super::source::Source;
use crate::error::{Error, Result};
use crate::image::{LabelMap, Volume};

/// Voxels decoded at a time.
const CHUNK: usize = 1 << 16;
/// Voxels decoded at a time by all cores.
const BATCH: usize = 1 << 20;

/// Reads a 3-D image; real values (slope and intercept applied) are rounded to f32.
///
/// NaN and infinite voxels are kept: see [`Volume::check_finite`].
///
/// # Errors
/// As [`header()`](super::header()), and [`Error::Nifti`] for a damaged file or one that holds several
/// volumes, [`Error::TooLarge`] when it does not fit into memory.
pub fn read_volume(path: impl AsRef<Path>) -> Result<Volume> {
    read_intensities(path.as_ref(), &Selection::default())
}

/// Reads volume `k` (from 0) of a file with more than three axes, counted with the fourth axis
/// fastest.
///
/// # Errors
/// As [`read_volume`], and [`Error::Nifti`] when there is no such volume.
pub fn read_volume_at(path: impl AsRef<Path>, k: usize) -> Result<Volume> {
    read_intensities(path.as_ref(), &Selection { volume: Some(k), ..Selection::default() })
}

/// Reads the slices `z` of a 3-D image. The result's geometry is that of the slab.
///
/// Only the slab is held in memory. A plain file is read at the slab's offset; a compressed one is
/// streamed, to its end, because only there it shows whether it is sound.
///
/// # Errors
/// As [`read_volume`], and [`Error::Invalid`] when the range is empty or leaves the image.
pub fn read_slab(path: impl AsRef<Path>, z: Range<usize>) -> Result<Volume> {
    read_intensities(path.as_ref(), &Selection { z: Some(z), ..Selection::default() })
}

/// Reads a 3-D label map of any voxel type.
///
/// # Errors
/// As [`read_volume`], [`Error::NotLabels`] when a value is no integer or does not fit 32 bits, and
/// [`Error::File`] for a picture with colours.
pub fn read_labels(path: impl AsRef<Path>) -> Result<LabelMap> {
    read_integers(path.as_ref(), &Selection::default(), Scaling::Applied)
}

/// Reads volume `k` (from 0) of a file with several label maps.
///
/// # Errors
/// As [`read_labels`] and [`read_volume_at`].
pub fn read_labels_at(path: impl AsRef<Path>, k: usize) -> Result<LabelMap> {
    let selection = Selection { volume: Some(k), ..Selection::default() };
    read_integers(path.as_ref(), &selection, Scaling::Applied)
}

/// Reads the integers of volume `k` (from 0) as they are stored, without slope and intercept.
///
/// # Errors
/// As [`read_labels_at`].
pub fn read_stored_at(path: impl AsRef<Path>, k: usize) -> Result<LabelMap> {
    let selection = Selection { volume: Some(k), ..Selection::default() };
    read_integers(path.as_ref(), &selection, Scaling::LeftOut)
}

/// Reads the slices `z` of a 3-D label map; see [`read_slab`].
///
/// # Errors
/// As [`read_labels`] and [`read_slab`].
pub fn read_label_slab(path: impl AsRef<Path>, z: Range<usize>) -> Result<LabelMap> {
    let selection = Selection { z: Some(z), ..Selection::default() };
    read_integers(path.as_ref(), &selection, Scaling::Applied)
}

/// Which voxels of a file.
#[derive(Default)]
pub(super) struct Selection {
    /// The only volume if not given.
    pub volume: Option<usize>,
    /// All slices if not given.
    pub z: Option<Range<usize>>,
}

impl Selection {
    /// The position of the first selected voxel, and the selected slices.
    pub fn resolve(&self, header: &Header, path: &Path) -> Result<(u64, Range<usize>)> {
        let [nx, ny, nz] = header.geometry.size;
        let volume = self.volume(header, path)?;
        let z = self.z.clone().unwrap_or(0..nz);
        if z.start >= z.end || z.end > nz {
            return Err(Error::invalid(
                format!("{}: a slab must lie inside the slices 0..{nz}", path.display()),
                z,
                "choose another range",
            ));
        }
        Ok((((volume * nz + z.start) * ny * nx) as u64, z))
    }

    fn volume(&self, header: &Header, path: &Path) -> Result<usize> {
        let volumes = header.volumes();
        refuse_vectors(header, path)?;
        match self.volume {
            Some(k) if k < volumes => Ok(k),
            Some(k) => {
                let what = format!("--volume must be less than the number of volumes, {volumes}");
                Err(reject(path, &what, k.to_string(), "choose a smaller one"))
            }
            None if volumes == 1 => Ok(0),
            None if header.intent_code == INTENT_VECTOR => {
                let value = format!("vectors of size {:?}", header.dims);
                let fix = "pass a displacement field as a transform";
                Err(reject(path, "a 3-D image is needed", value, fix))
            }
            None => {
                let value = format!("{volumes} volumes of size {:?}", header.dims);
                let fix = format!("choose one with --volume K, K in 0..={}", volumes - 1);
                Err(reject(path, "a 3-D image is needed", value, &fix))
            }
        }
    }
}

/// Demands that the values of a volume lie together.
pub(super) fn refuse_vectors(header: &Header, path: &Path) -> Result<()> {
    if !header.is_interleaved {
        return Ok(());
    }
    let value = format!("vectors of size {:?}", header.dims);
    let fix = "pass a displacement field as a transform (-t)";
    Err(reject(path, "an image of one value a voxel is needed", value, fix))
}

/// Demands values that can be labels: the luminance of colours is not what they stand for.
pub(super) fn refuse_colours(header: &Header, path: &Path) -> Result<()> {
    if !header.is_luminance {
        return Ok(());
    }
    let fix = "save the numbers of the labels as grey values";
    Err(Error::file(path, "labels must be one integer a voxel", "colours", fix))
}

fn read_intensities(path: &Path, selection: &Selection) -> Result<Volume> {
    let (mut source, header) = open(path)?;
    let (first, z) = selection.resolve(&header, path)?;
    let [nx, ny, _] = header.geometry.size;
    let geometry = header.geometry.cropped([0, 0, z.start], [nx, ny, z.len()])?;
    let mut data = reserve(path, geometry.len())?;
    read_floats(&mut source, &header, first, geometry.len(), &mut data)?;
    source.finish(header.vox_offset + header.data_bytes())?;
    Volume::new(data, geometry)
}

/// What becomes of slope and intercept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scaling {
    Applied,
    LeftOut,
}

fn read_integers(path: &Path, selection: &Selection, scaling: Scaling) -> Result<LabelMap> {
    let (mut source, mut header) = open(path)?;
    match scaling {
        Scaling::Applied => refuse_colours(&header, path)?,
        Scaling::LeftOut => (header.slope, header.intercept) = (1.0, 0.0),
    }
    let (first, z) = selection.resolve(&header, path)?;
    let [nx, ny, _] = header.geometry.size;
    let geometry = header.geometry.cropped([0, 0, z.start], [nx, ny, z.len()])?;
    let mut data: Vec<i32> = reserve(path, geometry.len())?;
    let (mut count, mut offender) = (0, None);
    for_each_chunk(&mut source, &header, first, geometry.len(), |values| {
        for &value in values {
            let label = value as i32; // saturates, so that anything else compares unequal
            if f64::from(label) != value {
                count += 1;
                offender.get_or_insert((data.len(), value));
            }
            data.push(label);
        }
    })?;
    source.finish(header.vox_offset + header.data_bytes())?;
    if let Some((offset, value)) = offender {
        let mut index = geometry.index_of(offset);
        index[2] += z.start;
        return Err(Error::NotLabels { path: path.to_path_buf(), count, first: index, value });
    }
    LabelMap::new(data, geometry)
}

/// Appends `count` real values, from the one at position `first` on, rounded to f32.
pub(super) fn read_floats(
    source: &mut Source,
    header: &Header,
    first: u64,
    count: usize,
    data: &mut Vec<f32>,
) -> Result<()> {
    let width = header.data_type.bytes();
    source.skip_to(header.vox_offset + first * width as u64)?;
    let (mut buffer, mut left) = (Vec::new(), width * count);
    let mut values = Floats { data, slope: header.slope, intercept: header.intercept };
    while left > 0 {
        let bytes = source.next(left.min(width * BATCH), &mut buffer)?;
        header.data_type.decode(header.endian, bytes, &mut values);
        left -= bytes.len();
    }
    Ok(())
}

/// Hands `count` real values, from the one at position `first` on, to `take` in order.
pub(super) fn for_each_chunk(
    source: &mut Source,
    header: &Header,
    first: u64,
    count: usize,
    mut take: impl FnMut(&[f64]),
) -> Result<()> {
    let width = header.data_type.bytes();
    source.skip_to(header.vox_offset + first * width as u64)?;
    let mut values = Vec::with_capacity(CHUNK.min(count));
    let (mut buffer, mut left) = (Vec::new(), width * count);
    while left > 0 {
        let bytes = source.next(left.min(width * CHUNK), &mut buffer)?;
        left -= bytes.len();
        values.clear();
        header.data_type.decode(header.endian, bytes, &mut values);
        if (header.slope, header.intercept) != (1.0, 0.0) {
            values.iter_mut().for_each(|v| *v = *v * header.slope + header.intercept);
        }
        take(&values);
    }
    Ok(())
}
