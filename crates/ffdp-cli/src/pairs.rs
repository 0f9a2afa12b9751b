//! Lists of pairs (CSV): what `ffdp synth` writes as `pairs.csv`, and what `--pairs` and `ffdp bench` take.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use ffdp_burn::Error;

use crate::failure::{Failure, Outcome};

const FORM: &str = "the first line names the columns (those that are not known are ignored), every other line the \
                    files of a pair, relative to the list's folder";

/// A line of a list.
#[derive(Clone, Debug)]
pub struct Row {
    folder: PathBuf,
    /// Column and field; fields that are empty are not there.
    fields: Vec<(String, String)>,
}

impl Row {
    /// What stands in a column, if anything does.
    pub fn text(&self, column: &str) -> Option<&str> {
        self.fields.iter().find(|(name, _)| name == column).map(|(_, field)| field.as_str())
    }

    /// The file that a column names, if it does.
    pub fn file(&self, column: &str) -> Option<PathBuf> {
        self.text(column).map(|file| self.folder.join(file))
    }

    /// What a column names that may name several files, with semicolons between.
    pub fn several(&self, column: &str) -> impl Iterator<Item = PathBuf> {
        let names = self.text(column).unwrap_or_default().split(';').map(str::trim);
        names.filter(|name| !name.is_empty()).map(|name| self.folder.join(name))
    }

    /// What a pair is called: by the column `name`, otherwise by its result or its files, `MOVING_to_FIXED`.
    fn name(&self) -> String {
        if let Some(name) = self.text("name") {
            return name.to_string();
        }
        let naming: [&[&str]; 4] =
            [&["output"], &["moving", "fixed"], &["moving_labels", "fixed_labels"], &["warp"]];
        let stems = naming.into_iter().map(|columns| -> Vec<String> {
            columns.iter().filter_map(|column| Some(stem(&self.file(column)?))).collect()
        });
        stems.into_iter().find(|stems| !stems.is_empty()).unwrap_or_default().join("_to_")
    }
}

/// The lines of a list, in each of which the `required` columns name something.
///
/// # Errors
/// When the list cannot be read, lacks a column, a field of one or any line.
pub fn read(list: &Path, required: &[&str]) -> Outcome<Vec<Row>> {
    let text = std::fs::read_to_string(list).map_err(|error| Error::io(list, "read", error))?;
    let folder = list.parent().unwrap_or(Path::new(""));
    rows(&text, folder, required).map_err(|failure| failure.about(list))
}

/// As [`read`], with names that tell the pairs apart and can be those of folders.
pub fn read_named(list: &Path, required: &[&str]) -> Outcome<Vec<(String, Row)>> {
    let mut known = BTreeSet::new();
    let named = read(list, required)?.into_iter().map(|row| {
        let name = row.name();
        let mut parts = Path::new(&name).components();
        let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        let what = match (plain, known.insert(name.clone())) {
            (true, true) => return Ok((name, row)),
            (false, _) => format!("{name:?} cannot be the name of a folder"),
            _ => format!("two pairs are both {name}"),
        };
        Err(Failure::user(what, "tell pairs apart with a column `name`").about(list))
    });
    named.collect()
}

fn rows(text: &str, folder: &Path, required: &[&str]) -> Outcome<Vec<Row>> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let Some((_, heading)) = lines.next() else {
        return Err(Failure::user("the list of pairs is empty", FORM));
    };
    let heading: Vec<&str> = heading.split(',').map(str::trim).collect();
    if let Some(missing) = required.iter().find(|name| !heading.contains(name)) {
        return Err(Failure::user(format!("the list has no column {missing}"), FORM));
    }
    let mut rows = Vec::new();
    for (number, line) in lines {
        let fields = heading.iter().zip(line.split(',').map(str::trim));
        let fields = fields.filter(|(_, field)| !field.is_empty());
        let fields = fields.map(|(name, field)| (name.to_string(), field.to_string())).collect();
        let row = Row { folder: folder.to_path_buf(), fields };
        if let Some(empty) = required.iter().find(|name| row.text(name).is_none()) {
            return Err(Failure::user(format!("line {number}: {empty} must name a file"), FORM));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Err(Failure::user("the list holds no pair", FORM));
    }
    Ok(rows)
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

    const LABELLED: [&str; 4] = ["fixed", "moving", "fixed_labels", "moving_labels"];

    #[test]
    fn columns_come_in_any_order_and_others_are_ignored() {
        let text =
            "# a list\nmoving,part,fixed, fixed_labels,moving_labels\n\nm.nii,test,/f.nii,a,b\n";
        let rows = rows(text, Path::new("data"), &LABELLED).expect("well formed");
        let files = LABELLED.map(|column| rows[0].file(column).expect("demanded"));
        assert_eq!(files, ["/f.nii", "data/m.nii", "data/a", "data/b"].map(PathBuf::from));
        assert_eq!(rows[0].file("initial"), None);
        assert_eq!(stem(Path::new("a/b.c.nii.gz")), "b.c");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("\n", "empty"),
            ("fixed,moving\na,b\n", "no column fixed_labels"),
            ("fixed,moving,fixed_labels,moving_labels\n", "no pair"),
            ("fixed,moving,fixed_labels,moving_labels\na,b,c\n", "line 2: moving_labels"),
            ("fixed,moving,fixed_labels,moving_labels\na,b,c,d\na,,c,d\n", "line 3: moving must"),
        ] {
            let failure = rows(text, Path::new(""), &LABELLED).expect_err(text).to_string();
            assert!(failure.contains(expected), "{text:?}: {failure}");
        }
    }

    #[test]
    fn pairs_are_told_apart_by_names_that_folders_can_have() {
        let folder = tempfile::tempdir().expect("a folder");
        let list = folder.path().join("pairs.csv");
        let named = |text: &str| {
            std::fs::write(&list, text).expect("writable");
            read_named(&list, &["fixed", "moving"])
        };
        let pairs = named("fixed,moving,name\nf.nii,m.nii.gz,\nf.nii,m.nii.gz,again\n");
        let names: Vec<String> = pairs.expect("fine").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["m_to_f", "again"]);
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
