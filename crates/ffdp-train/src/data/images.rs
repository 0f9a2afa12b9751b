//! Single images, any two of which form a pair: `images.csv`, or a folder of files.

use std::path::{Path, PathBuf};

use ffdp_image::io::{FileList, FileRow};
use ffdp_image::{Error, Result};

use super::{Pair, Part, Subject};

/// Columns in which every line must name something.
pub const REQUIRED: [&str; 1] = ["image"];

/// The images of a list, and what each is used for.
///
/// # Errors
/// A line that cannot be understood, by its number.
pub fn of_list(list: &FileList) -> Result<Vec<(Subject, Part)>> {
    let subject = |row: &FileRow| {
        let image = row.file(REQUIRED[0]).expect("the list has none without");
        Ok((Subject::Files { image, labels: row.file("labels") }, Part::of(row)?))
    };
    list.rows.iter().map(subject).collect()
}

/// The NIfTI files of `folder` (of its `images/`, if there is one) by name, each with the file of the
/// same name in `labels/`; the last `hold_out` are for validation.
///
/// # Errors
/// A folder that cannot be read.
pub fn in_folder(folder: &Path, hold_out: usize) -> Result<Vec<(Subject, Part)>> {
    let images = Some(folder.join("images")).filter(|images| images.is_dir());
    let images = images.unwrap_or_else(|| folder.to_path_buf());
    let entries = std::fs::read_dir(&images).map_err(|error| Error::io(&images, "read", error))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_nifti(path)).collect();
    files.sort();
    if hold_out > files.len() {
        let what = format!("--hold-out must not exceed the {} images", files.len());
        return Err(Error::invalid(what, hold_out, "keep fewer for validation"));
    }
    let trained = files.len() - hold_out;
    let subject = |(index, image): (usize, PathBuf)| {
        let labels = folder.join("labels").join(image.file_name().unwrap_or_default());
        let labels = Some(labels).filter(|labels| labels.exists());
        let part = if index < trained { Part::Train } else { Part::Validation };
        (Subject::Files { image, labels }, part)
    };
    Ok(files.into_iter().enumerate().map(subject).collect())
}

fn is_nifti(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.is_file() && (name.ends_with(".nii") || name.ends_with(".nii.gz"))
}

/// Pairs to look at: each image with the next one, the last with the first; two images are one pair.
pub fn ring(subjects: &[Subject]) -> Vec<Pair> {
    let count = if subjects.len() == 2 { 1 } else { subjects.len() };
    let pair = |k: usize| Pair {
        moving: subjects[k].clone(),
        fixed: subjects[(k + 1) % subjects.len()].clone(),
    };
    (0..count).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_a_list_of_its_images() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = |name: &str| folder.path().join(name);
        std::fs::create_dir(file("labels")).expect("writable");
        for name in ["b.nii.gz", "a.nii", "notes.txt", "c.nii.gz", "labels/b.nii.gz"] {
            std::fs::write(file(name), "").expect("writable");
        }
        let found = in_folder(folder.path(), 1).expect("a folder");
        let found: Vec<_> = found
            .into_iter()
            .map(|(subject, part)| match subject {
                Subject::Files { image, labels } => (image, labels, part),
                Subject::Ready(_) => panic!("folders hold files"),
            })
            .collect();
        assert_eq!(
            found,
            [
                (file("a.nii"), None, Part::Train),
                (file("b.nii.gz"), Some(file("labels/b.nii.gz")), Part::Train),
                (file("c.nii.gz"), None, Part::Validation),
            ]
        );
        assert!(in_folder(folder.path(), 4).is_err(), "more than there are");
    }
}
