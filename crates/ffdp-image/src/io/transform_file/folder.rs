//! The folder that a registration has written: which of its files are its transform.

use std::fs;
use std::path::{Path, PathBuf};

use super::ngff;
use crate::error::{Error, Result};

/// How the names of displacements end, of which the first that is there is taken: of `ffdp register`, of ANTs.
const DISPLACEMENTS: [&str; 4] = ["bspline.tfm", "warp.nii.gz", "warp.zarr", "1Warp.nii.gz"];
/// The same of matrices.
const MATRICES: [&str; 2] = ["affine.txt", "0GenericAffine.mat"];
/// What a folder has that is an image of its own.
const STORES: [&str; 4] = ["zarr.json", ".zgroup", ".zattrs", ".zarray"];

/// The files of a transform, in the order in which a point of the fixed image goes through them: of a folder that `ffdp
/// register` or ANTs has written its displacement and its matrix, of an OME-Zarr that holds a transform and no image its
/// metadata, anything else is its own and only file.
///
/// # Errors
/// [`Error::Io`] when the folder cannot be read, [`Error::File`] when it has none of them, or several of ANTs.
pub fn transform_files(path: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let path = path.as_ref();
    if let Some(document) = ngff::document(path) {
        return Ok(vec![document]);
    }
    if !path.is_dir() || STORES.iter().any(|name| path.join(name).exists()) {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(|source| Error::io(path, "read the folder", source))? {
        let entry = entry.map_err(|source| Error::io(path, "read the folder", source))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let first_of = |endings: &[&str]| {
        let found = endings.iter().find_map(|ending| {
            let is_ours = !ending.starts_with(|c: char| c.is_ascii_digit());
            let matches = |name: &&String| match is_ours {
                true => name == ending,
                false => name.ends_with(ending),
            };
            let named: Vec<_> = names.iter().filter(matches).collect();
            (!named.is_empty()).then_some(named)
        });
        match found.as_deref() {
            None => Ok(None),
            Some([name]) => Ok(Some(path.join(name))),
            Some(several) => Err(Error::file(
                path,
                "the transform of a folder must be that of one registration",
                format!("{several:?}"),
                "name the files: -t 1Warp.nii.gz -t 0GenericAffine.mat",
            )),
        }
    };
    let files = [first_of(&DISPLACEMENTS)?, first_of(&MATRICES)?];
    let files: Vec<_> = files.into_iter().flatten().collect();
    if files.is_empty() {
        return Err(Error::file(
            path,
            "a folder that is given as a transform must hold one: affine.txt, and warp.nii.gz, warp.zarr or bspline.tfm, \
             of ffdp register; 0GenericAffine.mat and 1Warp.nii.gz of ANTs",
            format!("{} other files", names.len()),
            "name the output folder of a registration, or a file",
        ));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str, files: &[&str]) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("ffdp-folder-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        files.iter().for_each(|file| fs::write(folder.join(file), "").expect("a file"));
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let files = transform_files(folder).expect("a transform");
        files
            .iter()
            .map(|file| file.file_name().expect("a name").to_string_lossy().into())
            .collect()
    }

    #[test]
    fn the_displacement_comes_before_the_matrix() {
        let ours =
            ["affine.mat", "affine.txt", "inverse_warp.nii.gz", "warp.nii.gz", "warped.nii.gz"];
        assert_eq!(names(&folder("ours", &ours)), ["warp.nii.gz", "affine.txt"]);
        let spline = ["affine.txt", "bspline.tfm", "warp.nii.gz"];
        assert_eq!(names(&folder("spline", &spline)), ["bspline.tfm", "affine.txt"]);
        assert_eq!(names(&folder("rigid", &["affine.txt"])), ["affine.txt"]);
        let ants = ["s0GenericAffine.mat", "s1InverseWarp.nii.gz", "s1Warp.nii.gz"];
        assert_eq!(names(&folder("ants", &ants)), ["s1Warp.nii.gz", "s0GenericAffine.mat"]);
        assert_eq!(names(&folder("i.zarr", &["zarr.json"])).len(), 1);
    }

    #[test]
    fn a_folder_without_a_transform_is_refused_with_what_is_missing() {
        let error = transform_files(folder("none", &["a.nii.gz"])).expect_err("no transform");
        assert!(error.to_string().contains("affine.txt"), "{error}");
        let two = ["a1Warp.nii.gz", "b1Warp.nii.gz"];
        let error = transform_files(folder("two", &two)).expect_err("of two registrations");
        assert!(error.to_string().contains("a1Warp.nii.gz"), "{error}");
    }
}
