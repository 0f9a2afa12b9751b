//! Images of kinds that are not read, by their content or name, with what converts them.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::format::{ImageFormat, START, ends_in, format_names};
use super::header::Header;
use super::refuse::refuse;
use super::source::Source;
use crate::error::{Error, Result};

/// First bytes of a file, what it is, and what to do.
const KINDS: [(&[u8], &str, &str); 6] = [
    (b"II*\0", "a TIFF", TIFF),
    (b"MM\0*", "a TIFF", TIFF),
    (b"II+\0", "a BigTIFF", TIFF),
    (b"\x89PNG", "a PNG", PICTURE),
    (b"\xff\xd8\xff", "a JPEG", PICTURE),
    (b"BM", "a BMP", PICTURE),
];
const TIFF: &str = "convert it to OME-Zarr with bioformats2raw, or to NIfTI with 3D Slicer or SimpleITK, with the spacing of its voxels";
const PICTURE: &str =
    "convert it to NIfTI with 3D Slicer or SimpleITK, with the spacing of its pixels";
const DICOM: &str = "convert it to NIfTI: dcm2niix -z y -o OUTPUT_FOLDER DICOM_FOLDER";

/// What is recognised to be refused.
pub struct Foreign;

impl ImageFormat for Foreign {
    fn name(&self) -> &'static str {
        ""
    }

    fn endings(&self) -> &'static [&'static str] {
        &[]
    }

    fn begins(&self, start: &[u8]) -> bool {
        begins_as_dicom(start) || kind(start).is_some()
    }

    /// Any folder.
    fn is_named(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn open(&self, path: &Path) -> Result<(Source, Header)> {
        Err(refusal(path))
    }
}

fn begins_as_dicom(start: &[u8]) -> bool {
    start.get(128..132) == Some(b"DICM")
}

/// What a file is, and what to do.
fn kind(start: &[u8]) -> Option<(&'static str, &'static str)> {
    let kind = KINDS.iter().find(|(first, _, _)| start.starts_with(first));
    kind.map(|(_, kind, fix)| (*kind, *fix))
}

fn of_kind(path: &Path, kind: &str, fix: &str) -> Error {
    refuse(path, &format!("the image must be a {}", format_names()), kind, fix)
}

/// Why a file or folder of a known other kind is no image.
fn refusal(path: &Path) -> Error {
    if path.is_dir() {
        return match holds_dicom(path) {
            true => of_kind(path, "a folder of DICOM files", DICOM),
            false => of_kind(
                path,
                "a folder that holds no image",
                "name a file, an OME-Zarr, or a folder with the planes of one image",
            ),
        };
    }
    let start = start(path).unwrap_or_default();
    match kind(&start) {
        _ if begins_as_dicom(&start) => of_kind(path, "a DICOM file", DICOM),
        Some((kind, fix)) => of_kind(path, kind, fix),
        None => unknown(path),
    }
}

/// Why a file is no image whose first bytes and name say nothing.
pub fn unknown(path: &Path) -> Error {
    match start(path) {
        Err(error) => error,
        Ok(start) => {
            let first = &start[..start.len().min(4)];
            let value = format!("a file that starts with the bytes {first:02x?}");
            of_kind(path, &value, "convert it to .nii or .nii.gz")
        }
    }
}

fn start(path: &Path) -> Result<Vec<u8>> {
    let mut start = vec![0; START];
    let known = Source::open_file(path)?.read_some(&mut start)?;
    start.truncate(known);
    Ok(start)
}

/// Files of a folder that are looked at.
const LOOKED_AT: usize = 100;

/// Whether one of the first files of a folder, or of a folder in it, is of DICOM.
fn holds_dicom(folder: &Path) -> bool {
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(LOOKED_AT);
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let is_dicom = |path: &Path| {
        let mut start = [0; START];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
        ends_in(path, &[".dcm", ".ima"]) || read.is_ok() && begins_as_dicom(&start)
    };
    entries(folder).iter().any(|path| match path.is_dir() {
        true => entries(path).iter().any(|path| is_dicom(path)),
        false => is_dicom(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::images::header;

    #[test]
    fn images_of_other_kinds_are_refused_with_what_converts_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("series/1")).unwrap();
        let dicom = [&[0; 128][..], b"DICM"].concat();
        for (name, bytes, expected) in [
            ("a.tif", &b"II*\0\x08\0\0\0"[..], "bioformats2raw"),
            ("a.png", b"\x89PNG\r\n", "SimpleITK"),
            ("a.dcm", &dicom, "dcm2niix"),
            ("series/1/IM0001", &dicom, "dcm2niix"),
        ] {
            fs::write(path(name), bytes).unwrap();
            let text = header(path(name)).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
        let text = header(path("series")).unwrap_err().to_string();
        assert!(text.contains("a folder of DICOM files") && text.contains("dcm2niix"), "{text}");
    }
}
