//! The one way out: an image that grows by bytes, in the format that its name asks for.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use rayon::prelude::*;

use super::new_image::NewImage;
use super::refuse::reject;
use super::zarr::ZarrSink;
use super::{metaimage, nifti, nrrd};
use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::gzip::ParallelGzip;
use crate::io::zarr_name::is_zarr_name;

/// Compression level: float images hardly shrink further, and time grows several times.
const LEVEL: Compression = Compression::fast();

/// An image under a temporary name; dropped before [`Sink::commit`], it leaves nothing.
pub(super) struct Sink {
    path: PathBuf,
    into: Into,
    /// Values of the whole image, their width, and the bytes that are missing.
    values: usize,
    width: usize,
    missing: usize,
}

enum Into {
    Plain(BufWriter<AtomicFile>),
    Gzip(Box<ParallelGzip<BufWriter<AtomicFile>>>),
    Zarr(Box<ZarrSink>),
}

/// What a file's name says of its content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Nifti,
    NiftiGzip,
    Zarr,
    Nrrd,
    MetaImage,
}

impl Ending {
    fn of(path: &Path) -> Result<Self> {
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
        let name = name.unwrap_or_default();
        if is_zarr_name(path) {
            return Ok(Self::Zarr);
        }
        let endings = [
            (".nii.gz", Self::NiftiGzip),
            (".nii", Self::Nifti),
            (".nrrd", Self::Nrrd),
            (".mha", Self::MetaImage),
        ];
        let known = endings.into_iter().find(|(ending, _)| name.ends_with(ending));
        known.map(|(_, ending)| ending).ok_or_else(|| {
            let what = "the name of an image must end in .nii, .nii.gz, .zarr, .nrrd or .mha";
            reject(path, what, format!("{name:?}"), "rename the output")
        })
    }
}

impl Sink {
    /// Begins an image; nothing appears under `path` yet.
    ///
    /// # Errors
    /// [`Error::Nifti`] for another name, [`Error::Io`] when the file cannot be made.
    pub fn create(path: &Path, image: &NewImage) -> Result<Self> {
        let ending = Ending::of(path)?;
        let failed = |source| Error::io(path, "write", source);
        let file = || AtomicFile::create(path).map(|f| BufWriter::with_capacity(1 << 20, f));
        let gzip = || -> Result<_> {
            Ok(Into::Gzip(Box::new(ParallelGzip::new(file()?, LEVEL).map_err(failed)?)))
        };
        let (mut into, header) = match ending {
            Ending::Nifti => (Into::Plain(file()?), nifti::header_of(image).to_bytes()),
            Ending::NiftiGzip => (gzip()?, nifti::header_of(image).to_bytes()),
            Ending::Zarr => (Into::Zarr(Box::new(ZarrSink::create(path, image)?)), Vec::new()),
            Ending::MetaImage => (Into::Plain(file()?), metaimage::header_of(image)?),
            Ending::Nrrd => {
                // The header is not packed.
                let mut file = file()?;
                file.write_all(&nrrd::header_of(image)?).map_err(failed)?;
                let gzip = ParallelGzip::new(file, LEVEL).map_err(failed)?;
                (Into::Gzip(Box::new(gzip)), Vec::new())
            }
        };
        into.as_write().write_all(&header).map_err(failed)?;
        let (values, width) = (image.values(), image.data_type.bytes());
        Ok(Self { path: path.to_path_buf(), into, values, width, missing: values * width })
    }

    /// Whether the format of a name has a place for slope and intercept.
    pub fn keeps_scale(path: &Path) -> Result<bool> {
        Ok(matches!(Ending::of(path)?, Ending::Nifti | Ending::NiftiGzip))
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
        write(self.into.as_write()).map_err(|e| Error::io(&self.path, "write", e))?;
        self.missing = missing;
        Ok(())
    }

    /// Puts the complete image in place.
    ///
    /// # Errors
    /// [`Error::Shape`] when values are missing, [`Error::Io`] when writing fails.
    pub fn commit(self) -> Result<()> {
        if self.missing > 0 {
            return Err(self.wrong_count(self.values - self.missing / self.width));
        }
        let failed = |source| Error::io(&self.path, "write", source);
        let buffered = match self.into {
            Into::Plain(file) => file,
            Into::Gzip(stream) => stream.finish().map_err(failed)?,
            Into::Zarr(sink) => return sink.commit(),
        };
        buffered.into_inner().map_err(|error| failed(error.into_error()))?.commit()
    }

    fn wrong_count(&self, got: usize) -> Error {
        let what = format!("number of values of {}", self.path.display());
        Error::Shape { what, expected: vec![self.values], got: vec![got] }
    }
}

impl Into {
    fn as_write(&mut self) -> &mut dyn Write {
        match self {
            Into::Plain(file) => file,
            Into::Gzip(stream) => stream,
            Into::Zarr(sink) => sink,
        }
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
