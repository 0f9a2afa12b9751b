//! What NRRD and MetaImage have in common: a header of text, with its voxels after it or in a file of their own.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::header::Header;
use super::source::{Packing, Source};
use crate::error::{Error, Result};

/// An [`Error::File`] on a header that can be repaired.
pub(super) fn refuse(path: &Path, what: &str, value: impl ToString) -> Error {
    Error::file(path, what, value, "repair the header, or convert the image to NIfTI")
}

/// The start of a file, where its header is: `longest` bytes at most.
pub(super) fn start_of_file(path: &Path, longest: usize) -> Result<Vec<u8>> {
    let failed = |source| Error::io(path, "read", source);
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(longest as u64).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// The file of a header and that of its voxels, where they have one of their own.
pub(super) fn both_files(path: &Path, data: Option<PathBuf>) -> Vec<PathBuf> {
    [path.to_path_buf()].into_iter().chain(data).collect()
}

/// Where the voxels of a header are.
pub(super) struct Voxels {
    pub file: PathBuf,
    /// Their first byte.
    pub start: u64,
    pub packing: Packing,
}

impl Voxels {
    /// Moves their first byte as a header says: by `skip` bytes, or with -1 so that they end with the file.
    pub fn skip(&mut self, skip: i64, header: &Header) -> Result<()> {
        self.start = match u64::try_from(skip) {
            Ok(skip) => self.start + skip,
            Err(_) => self.file_bytes()?.saturating_sub(header.data_bytes()),
        };
        Ok(())
    }

    /// The length of their file.
    pub fn file_bytes(&self) -> Result<u64> {
        Ok(fs::metadata(&self.file).map_err(|e| Error::io(&self.file, "open", e))?.len())
    }

    /// Opens them.
    pub fn open(self, mut header: Header) -> Result<(Source, Header)> {
        let source = Source::of_part(&self.file, self.start, self.packing)?;
        header.vox_offset = if self.packing == Packing::Plain { self.start } else { 0 };
        let warning = source.check_length(header.vox_offset, header.data_bytes())?;
        header.warnings.extend(warning);
        Ok((source, header))
    }
}
