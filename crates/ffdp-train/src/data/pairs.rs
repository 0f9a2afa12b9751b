//! `pairs.csv`: which two images are registered.

use std::path::Path;

use ffdp_burn::Result;

use super::csv::{Columns, Part, lines};
use super::{Pair, Subject};

const COLUMNS: Columns = Columns {
    known: &["fixed", "moving", "fixed_labels", "moving_labels", "part"],
    needed: &["fixed", "moving"],
    example: "fixed,moving,fixed_labels,moving_labels",
};

/// The pairs that a text lists, and what each is used for.
///
/// # Errors
/// A line that cannot be understood, by its number.
pub fn parse(text: &str, folder: &Path) -> Result<Vec<(Pair, Part)>> {
    let pair = |line: super::csv::Line| {
        let (fixed_labels, moving_labels) = (line.file("fixed_labels"), line.file("moving_labels"));
        if fixed_labels.is_some() != moving_labels.is_some() {
            return Err(line.error(
                "labels must be given for both images or for neither",
                "Dice compares two label maps",
            ));
        }
        let subject = |column, labels| {
            Ok::<_, ffdp_burn::Error>(Subject::Files { image: line.needed_file(column)?, labels })
        };
        let fixed = subject("fixed", fixed_labels)?;
        Ok((Pair { fixed, moving: subject("moving", moving_labels)? }, line.part()?))
    };
    lines(text, folder, &COLUMNS)?.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("fixed\na\n", "columns [\"fixed\", \"moving\"]"),
            ("fixed,moving\na,b\na\n", "line 3: 2 fields"),
            ("fixed,moving\na,\n", "line 2: moving must name a file"),
            ("fixed,moving,part\na,b,tests\n", "line 2: part"),
            ("fixed,moving,fixed_labels,moving_labels\na,b,c,\n", "line 2: labels"),
        ] {
            let error = parse(text, Path::new("")).expect_err(text).to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
