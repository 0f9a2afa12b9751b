//! The lists of pairs: what `ffdp synth` writes as `pairs.csv`, one list for each resolution.

use std::path::{Path, PathBuf};

use ffdp_burn::Error;
use ffdp_burn::io::nifti::header;

use crate::failure::{Failure, Outcome};

/// Two images with labels.
#[derive(Clone, Debug)]
pub struct Pair {
    /// `moving to fixed`, by the names of the image files: the same at every resolution.
    pub name: String,
    /// The finest spacing of the fixed image.
    pub spacing_mm: f64,
    pub fixed: PathBuf,
    pub moving: PathBuf,
    pub fixed_labels: PathBuf,
    pub moving_labels: PathBuf,
}

const COLUMNS: [&str; 4] = ["fixed", "moving", "fixed_labels", "moving_labels"];
const FORM: &str = "the first line names the columns fixed,moving,fixed_labels,moving_labels (others are \
                    ignored), every other line the files of a pair, relative to the list's folder";

/// The pairs of all lists, coarse to fine.
pub fn read(lists: &[PathBuf]) -> Outcome<Vec<Pair>> {
    let mut pairs = Vec::new();
    for list in lists {
        let text = std::fs::read_to_string(list).map_err(|e| Error::io(list, "read", e))?;
        let folder = list.parent().unwrap_or(Path::new(""));
        for [fixed, moving, fixed_labels, moving_labels] in
            rows(&text, folder).map_err(|failure| failure.about(list))?
        {
            let spacing_mm = header(&fixed)?.geometry.spacing_mm;
            let spacing_mm = spacing_mm.into_iter().fold(f64::INFINITY, f64::min);
            // Headers hold f32: 0.2 is 0.2.
            let spacing_mm = (spacing_mm * 1e6).round() / 1e6;
            let name = format!("{} to {}", stem(&moving), stem(&fixed));
            pairs.push(Pair { name, spacing_mm, fixed, moving, fixed_labels, moving_labels });
        }
    }
    pairs.sort_by(|a, b| b.spacing_mm.total_cmp(&a.spacing_mm));
    for (index, pair) in pairs.iter().enumerate() {
        let same = |other: &&Pair| other.name == pair.name && other.spacing_mm == pair.spacing_mm;
        if let Some(other) = pairs[..index].iter().find(same) {
            let [one, two] = [&other.fixed, &pair.fixed].map(|path| path.display().to_string());
            return Err(Failure::user(
                format!(
                    "two pairs at {} mm are both {}: {one} and {two}",
                    pair.spacing_mm, pair.name
                ),
                "rows are told apart by the names of the image files: name them differently",
            ));
        }
    }
    Ok(pairs)
}

/// The files of every line, in the order of [`COLUMNS`].
fn rows(text: &str, folder: &Path) -> Outcome<Vec<[PathBuf; 4]>> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let Some((_, heading)) = lines.next() else {
        return Err(Failure::user("the list of pairs is empty", FORM));
    };
    let heading: Vec<&str> = heading.split(',').map(str::trim).collect();
    let column = |name: &str| {
        let missing = || Failure::user(format!("the list has no column {name}"), FORM);
        heading.iter().position(|other| *other == name).ok_or_else(missing)
    };
    let mut columns = [0; 4];
    for (column_index, name) in columns.iter_mut().zip(COLUMNS) {
        *column_index = column(name)?;
    }
    let mut rows = Vec::new();
    for (number, line) in lines {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or("");
        if let Some(empty) = columns.iter().position(|&index| field(index).is_empty()) {
            let what = format!("line {number}: {} must name a file", COLUMNS[empty]);
            return Err(Failure::user(what, FORM));
        }
        rows.push(columns.map(|index| folder.join(field(index))));
    }
    if rows.is_empty() {
        return Err(Failure::user("the list holds no pair", FORM));
    }
    Ok(rows)
}

/// The name of a NIfTI file without what says that it is one.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.strip_suffix(".nii").unwrap_or(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_in_any_order_and_others_are_ignored() {
        let text =
            "# a list\nmoving,part,fixed, fixed_labels,moving_labels\n\nm.nii,test,/f.nii,a,b\n";
        let rows = rows(text, Path::new("data")).expect("well formed");
        let expected = ["/f.nii", "data/m.nii", "data/a", "data/b"].map(PathBuf::from);
        assert_eq!(rows, [expected]);
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
            let failure = rows(text, Path::new("")).expect_err(text).to_string();
            assert!(failure.contains(expected), "{text:?}: {failure}");
        }
    }
}
