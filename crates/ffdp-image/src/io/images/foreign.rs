//! Files and folders of no format, with what converts them where that is known.

use std::fs;
use std::path::{Path, PathBuf};

use super::dicom::Dicom;
use super::format::{ImageFormat, START};
use super::formats::format_names;
use super::source::Source;
use crate::error::{Error, Result};

/// First bytes of a file, what it is, and what to do.
const KINDS: [(&[u8], &str, &str); 3] = [
    (b"BM", "a BMP", "convert it to PNG"),
    (b"\x93NUMPY", "an array of NumPy", ARRAY),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", ARRAY),
];
const ARRAY: &str = "write it as NIfTI with nibabel or SimpleITK, with its spacing and orientation";

fn of_kind(path: &Path, kind: &str, fix: &str) -> Error {
    Error::file(path, format!("the image must be a {}", format_names()), kind, fix)
}

/// Why a file or folder of no format is no image.
pub fn refusal(path: &Path) -> Error {
    if path.is_dir() {
        return match folder_of_dicom(path) {
            Some(folder) => {
                let fix = format!("name the folder of a series, as {}", folder.display());
                of_kind(path, "a folder with folders of DICOM files", &fix)
            }
            None => of_kind(
                path,
                "a folder that holds no image",
                "name a file, an OME-Zarr, or a folder with the planes of one image",
            ),
        };
    }
    match start(path) {
        Err(error) => error,
        Ok(start) => match KINDS.iter().find(|(first, _, _)| start.starts_with(first)) {
            Some((_, kind, fix)) => of_kind(path, kind, fix),
            None => {
                let first = &start[..start.len().min(4)];
                let value = format!("a file that starts with the bytes {first:02x?}");
                of_kind(path, &value, "convert it to .nii or .nii.gz")
            }
        },
    }
}

fn start(path: &Path) -> Result<Vec<u8>> {
    let mut start = vec![0; START];
    let known = Source::open_file(path)?.read_some(&mut start)?;
    start.truncate(known);
    Ok(start)
}

/// A folder in a folder that holds DICOM.
fn folder_of_dicom(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    folders.into_iter().find(|folder| folder.is_dir() && Dicom.is_named(folder))
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
        fs::create_dir(path("empty")).unwrap();
        for (name, bytes, expected) in [
            ("a.bmp", &b"BM\x08\0\0\0"[..], "PNG"),
            ("a.npy", b"\x93NUMPY\x01", "nibabel"),
            ("a.h5", b"\x89HDF\r\n\x1a\n", "nibabel"),
            ("a.txt", b"1 2 3 4", "starts with the bytes [31, 20, 32, 20]"),
        ] {
            fs::write(path(name), bytes).unwrap();
            let text = header(path(name)).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
        fs::write(path("series/1/IM0001"), dicom).unwrap();
        for (name, expected) in [
            ("series", "series/1"),
            ("series/1", "DICOM without pixels"),
            ("empty", "a folder that holds no image"),
        ] {
            let text = header(path(name)).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
    }
}
