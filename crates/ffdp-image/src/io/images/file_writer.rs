//! The writer of formats that are one file: a header, then the voxels.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;

use super::format::ImageWriter;
use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::gzip::ParallelGzip;

/// Compression level: float images hardly shrink further, and time grows several times.
const LEVEL: Compression = Compression::fast();

/// One file with the voxels after its header, as they are or packed.
pub(super) struct FileWriter {
    path: PathBuf,
    stream: Stream,
}

enum Stream {
    Plain(BufWriter<AtomicFile>),
    Gzip(Box<ParallelGzip<BufWriter<AtomicFile>>>),
}

impl FileWriter {
    /// A file that begins with a header.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be made.
    pub fn plain(path: &Path, header: &[u8]) -> Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 20, AtomicFile::create(path)?);
        file.write_all(header).map_err(|source| Error::io(path, "write", source))?;
        Ok(Self { path: path.to_path_buf(), stream: Stream::Plain(file) })
    }

    /// From here on what is written is packed.
    ///
    /// # Errors
    /// [`Error::Io`] when writing fails.
    pub fn gzip(self) -> Result<Self> {
        let Stream::Plain(file) = self.stream else { return Ok(self) };
        let packed = ParallelGzip::new(file, LEVEL);
        let packed = packed.map_err(|source| Error::io(&self.path, "write", source))?;
        Ok(Self { path: self.path, stream: Stream::Gzip(Box::new(packed)) })
    }

    /// As the writer of an image.
    pub fn boxed(self) -> Result<Box<dyn ImageWriter>> {
        Ok(Box::new(self))
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Plain(file) => file.write(bytes),
            Stream::Gzip(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(file) => file.flush(),
            Stream::Gzip(stream) => stream.flush(),
        }
    }
}

impl ImageWriter for FileWriter {
    fn commit(self: Box<Self>) -> Result<()> {
        let failed = |source| Error::io(&self.path, "write", source);
        let buffered = match self.stream {
            Stream::Plain(file) => file,
            Stream::Gzip(stream) => stream.finish().map_err(failed)?,
        };
        buffered.into_inner().map_err(|error| failed(error.into_error()))?.commit()
    }
}
