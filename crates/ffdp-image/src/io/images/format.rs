//! What an image format is: a type in a module of its own that implements [`ImageFormat`], and one line of the list in
//! `mod.rs`.

use std::io::{Error as IoError, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::header::{Header, Vectors};
use super::new_image::NewImage;
use super::source::Source;
use crate::error::{Error, Result};

/// A format of images: what it is recognised by, how an image is opened, how one is created, and its words for the help.
pub(super) trait ImageFormat: Sync {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Name and forms of names for the help of the command line.
    fn help(&self) -> String {
        self.name().to_string()
    }

    /// Ends of names, in lower case.
    fn endings(&self) -> &'static [&'static str];

    /// Those of the ends that images are written with.
    fn written(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the first bytes of a file, unpacked where it is gzip, are those of the format ([`START`] of them, where
    /// there are as many).
    fn begins(&self, _start: &[u8]) -> bool {
        false
    }

    /// Whether a name, or what a folder holds, is of the format; asked where the first bytes are of none.
    fn is_named(&self, path: &Path) -> bool {
        ends_in(path, self.endings())
    }

    /// Opens an image: its header, checked, and the stream of its voxels.
    ///
    /// # Errors
    /// Those of [`header()`](super::header()).
    fn open(&self, path: &Path) -> Result<(Source, Header)>;

    /// The files that an image consists of.
    ///
    /// # Errors
    /// As [`ImageFormat::open`].
    fn files(&self, path: &Path) -> Result<Vec<PathBuf>> {
        Ok(vec![path.to_path_buf()])
    }

    /// What can be written besides one volume of plain values.
    fn holds(&self) -> Holds {
        Holds::default()
    }

    /// Whether the voxels of a file of this name are compressed where it is written.
    fn packs(&self, _path: &Path) -> bool {
        true
    }

    /// Begins an image of one of the written endings; nothing appears under the name yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what the format does not hold, [`Error::Io`] when the file cannot be made.
    fn create(&self, path: &Path, _image: &NewImage) -> Result<Box<dyn ImageWriter>> {
        Err(Error::io(path, "write", IoError::from(ErrorKind::Unsupported)))
    }
}

/// What images of a format hold besides one volume of plain values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holds {
    /// Slope and intercept.
    pub scale: bool,
    /// Displacements, and in what their vectors are.
    pub displacement: Option<Vectors>,
}

/// An image under a temporary name that takes its voxels in order; dropped before the end, it leaves nothing.
pub(super) trait ImageWriter: Write + Send {
    /// Puts the complete image in place.
    ///
    /// # Errors
    /// [`Error::Io`] when writing fails.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// Bytes by which formats are recognised: DICOM has its four after 128.
pub(super) const START: usize = 132;

/// Whether a name ends in one of some ends, in any case.
pub(super) fn ends_in(path: &Path, ends: &[&str]) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    name.is_some_and(|name| ends.iter().any(|end| name.ends_with(end)))
}
