//! Whether a file is the one that it was: by its size and the time of its last change, as `make` has it.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use ffdp_image::io::images::files;
use ffdp_image::io::transform_files;
use serde::{Deserialize, Serialize};

/// What a file has another one of once it was written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    /// Of an image in several files, or a folder of results, all bytes.
    pub bytes: u64,
    /// When the newest of them was changed, ns since 1970.
    pub modified_ns: u64,
}

impl FileVersion {
    /// That of a file, an image in several files (DICOM, OME-Zarr, `.hdr/.img`) or a folder of results. `None` where there
    /// is no such file on a disk.
    pub fn of(path: &Path) -> Option<Self> {
        let named = transform_files(path).unwrap_or_else(|_| vec![path.to_path_buf()]);
        let all = named.iter().flat_map(|file| files(file).unwrap_or_else(|_| vec![file.clone()]));
        let mut all = all.map(|file| Self::of_one(&file));
        let first = all.next()??;
        all.try_fold(first, |sum, next| {
            let next = next?;
            let bytes = sum.bytes + next.bytes;
            Some(Self { bytes, modified_ns: sum.modified_ns.max(next.modified_ns) })
        })
    }

    fn of_one(path: &Path) -> Option<Self> {
        let data = fs::metadata(path).ok()?;
        let since = data.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let modified_ns = u64::try_from(since.as_nanos()).ok()?;
        Some(Self { bytes: data.len(), modified_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_written_anew_has_another_version() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, other) = (folder.path().join("image.nii"), folder.path().join("other.nii"));
        assert_eq!(FileVersion::of(&file), None, "it is not there");
        fs::write(&file, "one").expect("writable");
        let first = FileVersion::of(&file).expect("it is there");
        assert_eq!((first.bytes, FileVersion::of(&file)), (3, Some(first)));
        // Another size at the same time, and the same size at another time.
        fs::write(&other, "another").expect("writable");
        let set_time = |path: &Path, ns: u64| {
            let time = UNIX_EPOCH + std::time::Duration::from_nanos(ns);
            let opened = fs::File::options().write(true).open(path).expect("writable");
            opened.set_modified(time).expect("a time of the file system");
        };
        set_time(&other, first.modified_ns);
        assert_ne!(FileVersion::of(&other), Some(first));
        set_time(&file, first.modified_ns - 1_000_000_000);
        assert_ne!(FileVersion::of(&file), Some(first), "an older file is another one");
    }
}
