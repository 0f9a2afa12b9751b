//! The one way in: an image in a file or folder of any format, as its header and the stream of its voxels.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::header::Header;
use super::source::{Source, other_of_pair};
use super::{foreign, metaimage, nifti, nrrd, zarr};
use crate::error::{Error, Result};
use crate::io::zarr_name::is_named;

/// Bytes by which the formats of single files are distinguished.
const KNOWN: usize = 16;

/// Opens an image: OME-Zarr where the name (without `#..`) is a folder or ends in `.zarr`, else by content.
pub(super) fn open(path: &Path) -> Result<(Source, Header)> {
    foreign::check(path)?;
    if is_named(path) {
        let (voxels, header) = zarr::open(path)?;
        return Ok((Source::of_zarr(path, voxels), header));
    }
    let mut start = [0; KNOWN];
    let known = Source::open(path)?.read_some(&mut start).unwrap_or(0);
    let start = &start[..known];
    if nrrd::begins(start) {
        return nrrd::open(path);
    }
    if metaimage::begins(path, start) {
        return metaimage::open(path);
    }
    let mut source = Source::open(path)?;
    let header = nifti::read(&mut source)?;
    Ok((source, header))
}

/// Whether a file that begins so is an image whose header is text: NRRD or MetaImage.
pub(in crate::io) fn is_text_headed(path: &Path, start: &[u8]) -> bool {
    nrrd::begins(start) || metaimage::begins(path, start)
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
    if is_named(path) {
        return zarr::files(path);
    }
    let other = other_of_pair(path).filter(|other| other.exists());
    let other = other.or_else(|| nrrd::data_file(path)).or_else(|| metaimage::data_file(path));
    Ok([path.to_path_buf()].into_iter().chain(other).collect())
}

/// One of the [`files`] of an image from its start, whether it is on a disk or behind an address.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io).
pub fn open_file(path: impl AsRef<Path>) -> Result<Box<dyn Read>> {
    let path = path.as_ref();
    zarr::open_file(path).map_err(|source| Error::io(path, "read", source))
}
