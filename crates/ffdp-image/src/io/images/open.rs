//! The one way in: an image in a file or folder of any format, as its header and the stream of its voxels.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::formats::recognise;
use super::header::Header;
use super::source::Source;
use super::{foreign, zarr};
use crate::error::{Error, Result};

/// Opens an image of any format.
pub(super) fn open(path: &Path) -> Result<(Source, Header)> {
    match recognise(path) {
        Some(format) => format.open(path),
        None => Err(foreign::refusal(path)),
    }
}

/// Whether a file is an image of a format that is read; folders are images or nothing.
pub(in crate::io) fn is_image(path: &Path) -> bool {
    path.is_dir() || recognise(path).is_some()
}

/// Reads and checks the header of an image; of a compressed file only the beginning is read.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) when the file cannot be read, [`Error::Nifti`](crate::Error::Nifti),
/// [`Error::File`](crate::Error::File) or [`Error::InFile`](crate::Error::InFile) when it is no image that can be
/// read here.
pub fn header(path: impl AsRef<Path>) -> Result<Header> {
    Ok(open(path.as_ref())?.1)
}

/// The files that an image consists of, in a fixed order: of an OME-Zarr those of the level, of a pair both. Of an
/// OME-Zarr behind an address the metadata alone, for nothing lists the chunks there.
///
/// # Errors
/// As [`header`].
pub fn files(path: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let path = path.as_ref();
    recognise(path).map_or_else(|| Ok(vec![path.to_path_buf()]), |format| format.files(path))
}

/// One of the [`files`] of an image from its start, whether it is on a disk or behind an address.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io).
pub fn open_file(path: impl AsRef<Path>) -> Result<Box<dyn Read>> {
    let path = path.as_ref();
    zarr::open_file(path).map_err(|source| Error::io(path, "read", source))
}
