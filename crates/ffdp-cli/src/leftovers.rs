//! What a killed process could not tidy up.

use std::fs;
use std::path::Path;

/// Removes the temporary files, and folders of an OME-Zarr, that [`write_atomically`](ffdp_image::io::write_atomically)
/// left next to `path` (`.NAME.*.part`) when its process was killed. What cannot be removed stays.
pub fn remove_leftovers(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
    let prefix = format!(".{}.", name.to_string_lossy());
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&prefix) && name.ends_with(".part") {
            let path = entry.path();
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_one_file_go_and_everything_else_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("warp.nii.gz");
        // What a process that is killed in the middle of a write leaves.
        let written = ffdp_image::io::write_atomically(&path, |_| {
            for entry in fs::read_dir(folder.path())?.flatten() {
                let name = entry.file_name().to_string_lossy().replace(".part", "x.part");
                fs::copy(entry.path(), folder.path().join(name))?;
            }
            Ok(())
        });
        written.expect("writable");
        for name in [".warped.nii.gz.a.part", "warp.nii.gz.part", ".warp.nii.gz.a"] {
            fs::write(folder.path().join(name), "").expect("writable");
        }
        let count = || fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(count(), 5);
        remove_leftovers(&path);
        assert_eq!(count(), 4);
        assert!(path.exists());
    }
}
