//! The pairs of a list (CSV): what `ffdp synth` writes as `pairs.csv`, and what `--pairs` and `ffdp bench` take.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use ffdp_image::io::{FileList, FileRow, LIST_COLUMNS};

use crate::failure::{Failure, Result};
use crate::printer::Printer;

/// The file that a request names, where it is for one pair.
pub fn named(file: &Option<PathBuf>) -> &Path {
    file.as_deref().expect("demanded where there is no list, and read from it where there is")
}

/// What a line is called: by the column `name`, otherwise by its result or its files; a pair `MOVING_to_FIXED`.
pub fn name_of(row: &FileRow) -> String {
    if let Some(name) = row.text("name") {
        return name.to_string();
    }
    let naming: [&[&str]; 5] = [
        &["output"],
        &["moving", "fixed"],
        &["moving_labels", "fixed_labels"],
        &["warp"],
        &["image"],
    ];
    let stems = naming.into_iter().map(|columns| -> Vec<String> {
        columns.iter().filter_map(|column| Some(stem(&row.file(column)?))).collect()
    });
    stems.into_iter().find(|stems| !stems.is_empty()).unwrap_or_default().join("_to_")
}

/// The lines of a list, in each of which the `required` columns name something, with names that differ and can be
/// those of folders.
///
/// # Errors
/// As [`FileList::read`], and for names that are the same or cannot be those of folders.
pub fn read_named(
    list: &Path,
    required: &[&str],
    printer: Printer,
) -> Result<Vec<(String, FileRow)>> {
    let FileList { rows, ignored } = FileList::read(list, required)?;
    if !ignored.is_empty() {
        let (list, ignored) = (list.display(), ignored.join(", "));
        printer.note(&format!("{list}: columns that are not known are ignored: {ignored}"));
    }
    let mut known = BTreeSet::new();
    let named = rows.into_iter().map(|row| {
        let name = name_of(&row);
        let mut parts = Path::new(&name).components();
        let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        let line = row.line;
        let what = match (plain, known.insert(name.clone())) {
            (true, true) => return Ok((name, row)),
            (false, _) => format!("line {line}: {name:?} cannot be the name of a folder"),
            _ => format!("line {line}: two pairs are both {name}"),
        };
        Err(Failure::user(what, "distinguish pairs by a column `name`").about(list))
    });
    named.collect()
}

/// Notes the columns that lists may have, of which this one fills some that its command does not read.
pub fn note_unread(list: &Path, rows: &[(String, FileRow)], read: &[&str], printer: Printer) {
    // `part` is that of a training: lists are shared with it.
    let is_read = |column: &str| read.contains(&column) || ["name", "part"].contains(&column);
    let fills = |column: &&str| rows.iter().any(|(_, row)| row.text(column).is_some());
    let unread = LIST_COLUMNS.into_iter().filter(|column| !is_read(column)).filter(fills);
    let unread: Vec<&str> = unread.collect();
    if !unread.is_empty() {
        let (list, unread) = (list.display(), unread.join(", "));
        printer.note(&format!(
            "{list}: columns that this command does not read are ignored: {unread}"
        ));
    }
}

/// Demands of a line that what it fills in has an effect: of each column, that one of those that it goes with is filled.
///
/// # Errors
/// For the first that has none.
pub fn check_effects(row: &FileRow, needs: &[(&str, &[&str])]) -> Result<()> {
    let fills = |column: &str| row.text(column).is_some();
    let idle = needs
        .iter()
        .find(|(column, others)| fills(column) && !others.iter().any(|other| fills(other)));
    match idle {
        None => Ok(()),
        Some((column, others)) => {
            let what = format!("{column} has no effect without {}", others.join(" or "));
            Err(row.error(&what, "fill in both, or neither").into())
        }
    }
}

/// The name of a NIfTI file without what says that it is one.
pub fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.strip_suffix(".nii").unwrap_or(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_have_names_of_their_own_that_folders_can_have() {
        let folder = tempfile::tempdir().expect("a folder");
        let list = folder.path().join("pairs.csv");
        let named = |text: &str| {
            std::fs::write(&list, text).expect("writable");
            read_named(&list, &["fixed", "moving"], Printer::new(true, false))
        };
        let pairs = named("fixed,moving,name\nf.nii,m.nii.gz,\nf.nii,m.nii.gz,again\n");
        let names: Vec<String> = pairs.expect("fine").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["m_to_f", "again"]);
        assert_eq!(stem(Path::new("a/b.c.nii.gz")), "b.c");
        for text in [
            "fixed,moving\na/f.nii,a/m.nii\nb/f.nii,b/m.nii\n",
            "fixed,moving,name\nf.nii,m.nii,../x\n",
            "fixed,moving,name\nf.nii,m.nii,..\n",
        ] {
            let failure = named(text).expect_err(text);
            assert!(failure.help_text().is_some_and(|help| help.contains("`name`")), "{failure}");
        }
    }
}
