//! The one way out: an image that grows by bytes, in the format that its name asks for.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::format::{ImageFormat, ImageWriter};
use super::formats::{written_as, written_endings};
use super::new_image::NewImage;
use super::refuse::reject;
use crate::error::{Error, Result};

/// An image under a temporary name; dropped before [`Sink::commit`], it leaves nothing.
pub(super) struct Sink {
    path: PathBuf,
    writer: Box<dyn ImageWriter>,
    /// Values of the whole image, their width, and the bytes that are missing.
    values: usize,
    width: usize,
    missing: usize,
}

/// The format that a name asks for.
///
/// # Errors
/// [`Error::Nifti`] for another name.
pub(super) fn format_of(path: &Path) -> Result<&'static dyn ImageFormat> {
    written_as(path).ok_or_else(|| {
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
        let what = format!("the name of an image must end in {}", written_endings());
        reject(path, &what, format!("{:?}", name.unwrap_or_default()), "rename the output")
    })
}

impl Sink {
    /// Begins an image; nothing appears under `path` yet.
    ///
    /// # Errors
    /// [`Error::Nifti`] for another name, [`Error::Io`] when the file cannot be made.
    pub fn create(path: &Path, image: &NewImage) -> Result<Self> {
        let writer = format_of(path)?.create(path, image)?;
        let (values, width) = (image.values(), image.data_type.bytes());
        Ok(Self { path: path.to_path_buf(), writer, values, width, missing: values * width })
    }

    /// Appends `count` values.
    ///
    /// # Errors
    /// [`Error::Shape`] for more than the image has, [`Error::Io`] when writing fails.
    pub fn append(
        &mut self,
        count: usize,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        let Some(missing) = self.missing.checked_sub(count * self.width) else {
            return Err(self.wrong_count(self.values - self.missing / self.width + count));
        };
        write(&mut self.writer).map_err(|e| Error::io(&self.path, "write", e))?;
        self.missing = missing;
        Ok(())
    }

    /// Puts the complete image in place.
    ///
    /// # Errors
    /// [`Error::Shape`] when values are missing, [`Error::Io`] when writing fails.
    pub fn commit(self) -> Result<()> {
        match self.missing {
            0 => self.writer.commit(),
            _ => Err(self.wrong_count(self.values - self.missing / self.width)),
        }
    }

    fn wrong_count(&self, got: usize) -> Error {
        let what = format!("number of values of {}", self.path.display());
        Error::Shape { what, expected: vec![self.values], got: vec![got] }
    }
}

/// Writes all values of an image and puts it in place.
pub(super) fn write_image(
    path: &Path,
    image: &NewImage,
    data: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let mut sink = Sink::create(path, image)?;
    sink.append(image.values(), data)?;
    sink.commit()
}

/// Numbers that are turned into bytes together, on all cores.
const BATCH: usize = 1 << 19;
/// Those of one core at a time.
const PART: usize = 1 << 15;

/// Writes the bytes of so many numbers, each made by its index.
pub(super) fn write_numbers<const N: usize>(
    file: &mut dyn Write,
    count: usize,
    number: impl Fn(usize) -> [u8; N] + Sync,
) -> io::Result<()> {
    let mut bytes = vec![[0; N]; count.min(BATCH)];
    for first in (0..count).step_by(BATCH) {
        let bytes = &mut bytes[..BATCH.min(count - first)];
        bytes.par_chunks_mut(PART).enumerate().for_each(|(part, bytes)| {
            let first = first + part * PART;
            bytes.iter_mut().zip(first..).for_each(|(bytes, index)| *bytes = number(index));
        });
        file.write_all(bytes.as_flattened())?;
    }
    Ok(())
}
