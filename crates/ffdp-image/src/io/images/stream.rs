//! Writing an image slice by slice, for images that do not fit into memory.

use std::path::Path;

use super::data_type::DataType;
use super::displacement::file_of_voxels;
use super::new_image::{Kind, NewImage};
use super::sink::{Sink, write_numbers};
use super::write::smallest_type;
use crate::error::{Error, Result};
use crate::image::{Geometry, Matrix3};

/// A float32 image that grows by slices; see [`VolumeWriter::finish`].
pub struct VolumeWriter(Sink);

impl VolumeWriter {
    /// Begins an image; the name says whether it is compressed, as in
    /// [`write_volume`](super::write_volume). Nothing appears under `path` yet.
    ///
    /// # Errors
    /// As [`write_volume`](super::write_volume).
    pub fn create(path: impl AsRef<Path>, geometry: &Geometry) -> Result<Self> {
        Self::create_series(path, geometry, 1, 0.0)
    }

    /// Begins so many images on a grid, so many seconds apart, one after the other.
    ///
    /// # Errors
    /// As [`write_volumes`](super::write_volumes).
    pub fn create_series(
        path: impl AsRef<Path>,
        geometry: &Geometry,
        volumes: usize,
        time_step_seconds: f64,
    ) -> Result<Self> {
        let image = NewImage::new(geometry, DataType::F32, Kind::Image);
        let image = NewImage { volumes, time_step_seconds, ..image };
        Sink::create(path.as_ref(), &image).map(Self)
    }

    /// Appends voxels, x fastest.
    ///
    /// # Errors
    /// [`Error::Io`] when writing fails, [`Error::Shape`] for more voxels than the image has.
    pub fn write(&mut self, voxels: &[f32]) -> Result<()> {
        self.0.append(voxels.len(), |out| {
            write_numbers(out, voxels.len(), |i| voxels[i].to_le_bytes())
        })
    }

    /// Puts the complete image in place. Without this call nothing is left behind.
    ///
    /// # Errors
    /// [`Error::Shape`] when voxels are missing, [`Error::Io`] when writing fails.
    pub fn finish(self) -> Result<()> {
        self.0.commit()
    }
}

/// A displacement for ITK and ANTs that grows by slices: the first component of all, then the second,
/// then the third; see [`write_displacement`](super::write_displacement).
pub struct DisplacementWriter {
    stream: Sink,
    /// From voxels to the components of the file.
    linear: Matrix3,
}

impl DisplacementWriter {
    /// Begins a displacement on a grid.
    ///
    /// # Errors
    /// As [`VolumeWriter::create`].
    pub fn create(path: impl AsRef<Path>, geometry: &Geometry) -> Result<Self> {
        let path = path.as_ref();
        let image = NewImage::new(geometry, DataType::F32, Kind::Displacement);
        let linear = file_of_voxels(path, geometry)?;
        Ok(Self { stream: Sink::create(path, &image)?, linear })
    }

    /// The part of each component (x, y, z) in voxels in component `i` of the file; what is 0 need not be
    /// known to write it.
    pub fn row(&self, i: usize) -> [f64; 3] {
        self.linear[i]
    }

    /// Appends vectors: component `i` of the file, from the components (x, y, z) in voxels, x fastest, each
    /// of which may be missing where [`DisplacementWriter::row`] says 0.
    ///
    /// # Errors
    /// As [`VolumeWriter::write`].
    ///
    /// # Panics
    /// If a component is missing that counts, or all are, or lengths differ.
    pub fn write(&mut self, i: usize, components: [Option<&[f32]>; 3]) -> Result<()> {
        let there = components.iter().flatten().map(|values| values.len());
        let count = there.reduce(|a, b| if a == b { a } else { panic!("displacement: {a}, {b}") });
        let count = count.expect("displacement: a component is needed");
        let row = self.linear[i];
        let missing =
            row.iter().zip(&components).any(|(part, values)| *part != 0.0 && values.is_none());
        assert!(!missing, "displacement: component {i} takes {row:?} of (x, y, z)");
        let value = |p: usize| {
            let terms = row.iter().zip(&components);
            let terms =
                terms.filter_map(|(part, values)| Some(part * f64::from(values.as_ref()?[p])));
            (terms.sum::<f64>() as f32).to_le_bytes()
        };
        self.stream.append(count, |out| write_numbers(out, count, value))
    }

    /// Puts the complete file in place. Without this call nothing is left behind.
    ///
    /// # Errors
    /// As [`VolumeWriter::finish`].
    pub fn finish(self) -> Result<()> {
        self.stream.commit()
    }
}

/// A label map that grows by slices.
pub struct LabelWriter {
    stream: Sink,
    data_type: DataType,
    /// Smallest and largest label announced.
    range: [i32; 2],
}

impl LabelWriter {
    /// Begins a label map in the smallest type that holds `ids`, all that will occur.
    ///
    /// # Errors
    /// As [`VolumeWriter::create`].
    pub fn create(path: impl AsRef<Path>, geometry: &Geometry, ids: &[i32]) -> Result<Self> {
        let range = range_of(ids);
        let data_type = smallest_type(&range);
        let image = NewImage::new(geometry, data_type, Kind::Labels);
        Ok(Self { stream: Sink::create(path.as_ref(), &image)?, data_type, range })
    }

    /// Appends labels, x fastest.
    ///
    /// # Errors
    /// As [`VolumeWriter::write`], and [`Error::Invalid`] for a label beyond the type chosen.
    pub fn write(&mut self, labels: &[i32]) -> Result<()> {
        let ([low, high], [least, most]) = (range_of(labels), self.range);
        if smallest_type(&[low, high, least, most]) != self.data_type {
            let what = format!("labels must fit {:?}, the type of those announced", self.data_type);
            return Err(Error::invalid(what, [low, high], "announce every label"));
        }
        let count = labels.len();
        self.stream.append(count, |out| match self.data_type.bytes() {
            // Two's complement: the low bytes are the number in the narrower type.
            1 => write_numbers(out, count, |i| (labels[i] as u8).to_le_bytes()),
            2 => write_numbers(out, count, |i| (labels[i] as u16).to_le_bytes()),
            _ => write_numbers(out, count, |i| labels[i].to_le_bytes()),
        })
    }

    /// Puts the complete label map in place. Without this call nothing is left behind.
    ///
    /// # Errors
    /// As [`VolumeWriter::finish`].
    pub fn finish(self) -> Result<()> {
        self.stream.commit()
    }
}

/// Smallest and largest label; zeros for none.
fn range_of(labels: &[i32]) -> [i32; 2] {
    let (low, high) = (labels.iter().copied().min(), labels.iter().copied().max());
    [low.unwrap_or(0), high.unwrap_or(0)]
}
