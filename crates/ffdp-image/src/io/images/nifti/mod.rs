//! NIfTI-1 and NIfTI-2: headers to bytes and back.
//!
//! Read `header.rs` first; `layout.rs` knows byte positions.

mod create;
mod header;
pub(super) mod layout;
mod orientation;

use std::io::Write;
use std::path::{Path, PathBuf};

use super::file_writer::FileWriter;
use super::format::{Holds, ImageFormat, ImageWriter, ends_in};
use super::header::{Header, Vectors};
use super::new_image::NewImage;
use super::source::{Source, other_of_pair};
use crate::error::{Error, Result};
use layout::is_header_size;

#[cfg(test)]
pub(super) use create::new_header;

/// The format.
pub(super) struct Nifti;

impl ImageFormat for Nifti {
    fn name(&self) -> &'static str {
        "NIfTI"
    }

    fn endings(&self) -> &'static [&'static str] {
        &[".nii", ".nii.gz", ".hdr", ".hdr.gz", ".img", ".img.gz"]
    }

    fn written(&self) -> &'static [&'static str] {
        &[".nii", ".nii.gz"]
    }

    fn begins(&self, start: &[u8]) -> bool {
        start.first_chunk().is_some_and(|size| is_header_size(*size))
    }

    fn open(&self, path: &Path) -> Result<(Source, Header)> {
        let mut source = Source::open(path)?;
        let header = header::read(&mut source)?;
        Ok((source, header))
    }

    fn files(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let other = other_of_pair(path).filter(|other| other.exists());
        Ok([path.to_path_buf()].into_iter().chain(other).collect())
    }

    fn holds(&self) -> Holds {
        Holds { scale: true, displacement: Some(Vectors::Lps) }
    }

    fn packs(&self, path: &Path) -> bool {
        ends_in(path, &[".gz"])
    }

    fn create(&self, path: &Path, image: &NewImage) -> Result<Box<dyn ImageWriter>> {
        let mut file = FileWriter::plain(path, &[])?;
        if self.packs(path) {
            file = file.gzip()?;
        }
        let header = create::header_of(image).to_bytes();
        file.write_all(&header).map_err(|source| Error::io(path, "write", source))?;
        file.boxed()
    }
}
