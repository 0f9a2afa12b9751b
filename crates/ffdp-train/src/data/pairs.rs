//! `pairs.csv`: which two images are registered.

use ffdp_image::Result;
use ffdp_image::io::{FileList, FileRow};

use super::{Pair, Part, Subject};

/// Columns in which every line must name something.
pub const REQUIRED: [&str; 2] = ["fixed", "moving"];

/// The pairs of a list, and what each is used for.
///
/// # Errors
/// A line that cannot be understood, by its number.
pub fn of_list(list: &FileList) -> Result<Vec<(Pair, Part)>> {
    list.rows.iter().map(pair).collect()
}

fn pair(row: &FileRow) -> Result<(Pair, Part)> {
    let labels = ["fixed_labels", "moving_labels"].map(|column| row.file(column));
    if labels[0].is_some() != labels[1].is_some() {
        let what = "labels must be given for both images or for neither";
        return Err(row.error(what, "Dice compares two label maps"));
    }
    let images = REQUIRED.map(|column| row.file(column).expect("the list has none without"));
    let ([fixed, moving], [fixed_labels, moving_labels]) = (images, labels);
    let pair = Pair {
        fixed: Subject::Files { image: fixed, labels: fixed_labels },
        moving: Subject::Files { image: moving, labels: moving_labels },
    };
    Ok((pair, Part::of(row)?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str, folder: &Path) -> Result<Vec<(Pair, Part)>> {
        of_list(&FileList::parse(text.as_bytes(), folder, &REQUIRED)?)
    }

    fn files(subject: &Subject) -> (&Path, Option<&Path>) {
        match subject {
            Subject::Files { image, labels } => (image, labels.as_deref()),
            Subject::Ready(_) => panic!("lists name files"),
        }
    }

    #[test]
    fn columns_come_in_any_order_and_may_be_missing() {
        let text = "# two pairs\nmoving, fixed\na.nii.gz, b.nii.gz\n\n/c.nii,d.nii\n";
        let rows = parse(text, Path::new("data")).expect("well formed");
        assert_eq!(rows.len(), 2);
        assert_eq!(files(&rows[0].0.moving), (Path::new("data/a.nii.gz"), None));
        assert_eq!(files(&rows[0].0.fixed), (Path::new("data/b.nii.gz"), None));
        assert_eq!(files(&rows[1].0.moving).0, Path::new("/c.nii"), "absolute paths stay");
        assert_eq!(rows[0].1, Part::Train);
        let text = "fixed,moving,fixed_labels,moving_labels,part\na,b,c,d,test\na,b,,,\n";
        let rows = parse(text, Path::new("")).expect("well formed");
        assert_eq!(rows[0].1, Part::Test);
        assert_eq!(files(&rows[0].0.moving).1, Some(Path::new("d")));
        assert_eq!((rows[1].1, files(&rows[1].0.moving).1), (Part::Train, None));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, expected) in [
            ("", "must not be empty"),
            ("fixed,moving\n", "at least one line"),
            ("fixed,movin\na,b\n", "movin"),
            ("fixed\na\n", "no column moving"),
            ("fixed,moving\na,b\na\n", "line 3: 2 fields"),
            ("fixed,moving\na,\n", "line 2: moving must name a file"),
            ("fixed,moving,part\na,b,tests\n", "line 2: part"),
            ("fixed,moving,fixed_lables\na,b,c\n", "did you mean fixed_labels?"),
            ("fixed,moving,fixed_labels,moving_labels\na,b,c,\n", "line 2: labels"),
        ] {
            let error = parse(text, Path::new("")).expect_err(text).to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
