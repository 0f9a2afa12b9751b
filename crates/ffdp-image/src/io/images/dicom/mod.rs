//! DICOM, read: one series of planes in a folder, or one file as one plane. CT, MR, PET and the like, grey, one frame a
//! file; pixels as they are, packed by RLE, or JPEG of 8 bits. A series with several planes at each place (times,
//! directions) is an image of four axes.
//!
//! The planes lie along the normal of their common orientation (`ImageOrientationPatient`), in the order of
//! `ImagePositionPatient`; names do not count, `InstanceNumber` only for the order of volumes. Gaps, several series and planes of another size or
//! orientation are refused by name. Positions are LPS mm and become RAS.
//!
//! A reader of our own: of some twenty elements an image needs, it reads those, and compares each length with that of the
//! file. The crates `dicom-object` and `dicom-pixeldata` (0.10) bring 20 packages, and allocate what a length of up to
//! 4 GiB asks for before they read it.
//!
//! Source: DICOM PS3.3 C.7.6 (image plane, image pixel) and C.11.1 (modality LUT), 2024.
//! Read `slice.rs` first, then `series.rs`; `elements.rs` knows the encoding.

mod elements;
mod rle;
mod series;
mod slice;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::format::ImageFormat;
use super::header::Header;
use super::source::Source;
use crate::error::{Error, Result};

const DAMAGED: &str = "it is damaged: copy or download it again";
const CONVERT: &str = "convert it to NIfTI: dcm2niix -z y -o OUTPUT_FOLDER DICOM_FOLDER";

/// The format.
pub struct Dicom;

impl ImageFormat for Dicom {
    fn name(&self) -> &'static str {
        "DICOM"
    }

    fn help(&self) -> String {
        "DICOM (the folder of a series)".to_string()
    }

    fn endings(&self) -> &'static [&'static str] {
        &[]
    }

    fn begins(&self, start: &[u8]) -> bool {
        start.get(128..132) == Some(b"DICM")
    }

    /// A folder whose first files are, or some of them.
    fn is_named(&self, path: &Path) -> bool {
        entries(path).iter().take(LOOKED_AT).any(|path| is_dicom(path))
    }

    fn open(&self, path: &Path) -> Result<(Source, Header)> {
        series::open(path)
    }

    fn files(&self, path: &Path) -> Result<Vec<PathBuf>> {
        series::files(path)
    }
}

/// Files of a folder that are looked at to recognise it.
const LOOKED_AT: usize = 100;

/// The files of a folder in the order of their names; none of a file.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Whether a file begins as one of DICOM.
pub(super) fn is_dicom(path: &Path) -> bool {
    let mut start = [0; 132];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && Dicom.begins(&start)
}

/// Refuses an encoding that is not read.
fn refuse_syntax(path: &Path, syntax: &str) -> Error {
    let what =
        "the transfer syntax must be little endian, its pixels as they are, RLE or JPEG of 8 bits";
    let fix = "unpack it: gdcmconv --raw IN OUT, or convert the series with dcm2niix";
    Error::file(path, what, syntax, fix)
}
