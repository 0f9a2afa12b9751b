//! Images of kinds that are not read, by their content or name, with what converts them.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::zarr_name::{address, holds_zarr, is_zarr_name};

/// First bytes of a file, what it is, and what to do.
const KINDS: [(&[u8], &str, &str); 6] = [
    (b"II*\0", "TIFF", TIFF),
    (b"MM\0*", "TIFF", TIFF),
    (b"II+\0", "BigTIFF", TIFF),
    (b"\x89PNG", "PNG", PICTURE),
    (b"\xff\xd8\xff", "JPEG", PICTURE),
    (b"BM", "BMP", PICTURE),
];
const TIFF: &str = "convert it to OME-Zarr with bioformats2raw, or to NIfTI with 3D Slicer or SimpleITK, with the spacing of its voxels";
const PICTURE: &str =
    "convert it to NIfTI with 3D Slicer or SimpleITK, with the spacing of its pixels";
const DICOM: &str = "convert it to NIfTI: dcm2niix -z y -o OUTPUT_FOLDER DICOM_FOLDER";
const FREESURFER: &str = "convert it to NIfTI: mri_convert IMAGE.mgz IMAGE.nii.gz";

/// Refuses files and folders of known other kinds.
///
/// # Errors
/// [`Error::File`] with what converts them.
pub fn check(path: &Path) -> Result<()> {
    let refuse = |kind: &str, fix: &str| {
        let what = "the image must be a NIfTI, OME-Zarr, NRRD or MetaImage".to_string();
        let (value, fix) = (kind.to_string(), fix.to_string());
        Err(Error::File { path: path.to_path_buf(), what, value, fix })
    };
    if address(path).is_some() {
        return Ok(());
    }
    if path.is_dir() {
        if holds_zarr(path) || is_zarr_name(path) {
            return Ok(());
        }
        return match holds_dicom(path) {
            true => refuse("a folder of DICOM files", DICOM),
            false => refuse(
                "a folder that is no OME-Zarr",
                "name a file; of DICOM files, convert the folder with dcm2niix",
            ),
        };
    }
    let mut start = [0; 132];
    // What cannot be opened is an error where it is read.
    let known = File::open(path).and_then(|mut file| file.read(&mut start)).unwrap_or(0);
    let start = &start[..known];
    if start.get(128..132) == Some(b"DICM") {
        return refuse("a DICOM file", DICOM);
    }
    if has_end(path, &["mgz", "mgh"]) {
        return refuse("an image of FreeSurfer (MGH)", FREESURFER);
    }
    match KINDS.iter().find(|(first, _, _)| start.starts_with(first)) {
        Some((_, kind, fix)) => refuse(&format!("a {kind}"), fix),
        None => Ok(()),
    }
}

fn has_end(path: &Path, ends: &[&str]) -> bool {
    let end = path.extension().map(|end| end.to_string_lossy().to_lowercase());
    end.is_some_and(|end| ends.contains(&end.as_str()))
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
        let mut start = [0; 132];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
        has_end(path, &["dcm", "ima"]) || read.is_ok() && &start[128..] == b"DICM"
    };
    entries(folder).iter().any(|path| match path.is_dir() {
        true => entries(path).iter().any(|path| is_dicom(path)),
        false => is_dicom(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_other_kinds_are_refused_with_what_converts_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("series/1")).unwrap();
        let dicom = [&[0; 128][..], b"DICM"].concat();
        for (name, bytes, expected) in [
            ("a.tif", &b"II*\0\x08\0\0\0"[..], "bioformats2raw"),
            ("a.png", b"\x89PNG\r\n", "SimpleITK"),
            ("a.mgz", b"\x1f\x8b", "mri_convert"),
            ("a.dcm", &dicom, "dcm2niix"),
            ("series/1/IM0001", &dicom, "dcm2niix"),
        ] {
            fs::write(path(name), bytes).unwrap();
            let text = check(&path(name)).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
        let text = check(&path("series")).unwrap_err().to_string();
        assert!(text.contains("a folder of DICOM files") && text.contains("dcm2niix"), "{text}");
        for name in ["there.zarr", "none"] {
            assert!(check(&path(name)).is_ok(), "{name}: others say what is wrong");
        }
    }
}
