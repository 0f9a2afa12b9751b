//! `pairs.csv` and `labels.csv` of a `--data` folder.

use std::path::{Path, PathBuf};

use ffdp::{Error, Result};

/// What a pair is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Train,
    Validation,
    Test,
}

/// One line of `pairs.csv`; paths are resolved against its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub fixed: PathBuf,
    pub moving: PathBuf,
    pub fixed_labels: Option<PathBuf>,
    pub moving_labels: Option<PathBuf>,
    pub part: Part,
}

const COLUMNS: [&str; 5] = ["fixed", "moving", "fixed_labels", "moving_labels", "part"];

/// The rows of `folder/pairs.csv`.
///
/// # Errors
/// A missing file, an unknown column, or a line that does not fit the header; with its number.
pub fn read(folder: &Path) -> Result<Vec<Row>> {
    let path = folder.join("pairs.csv");
    let text = std::fs::read_to_string(&path).map_err(|error| Error::io(&path, "read", error))?;
    let in_file = |source| Error::InFile { path: path.clone(), source: Box::new(source) };
    parse(&text, folder).map_err(in_file)
}

/// The label ids of `folder/labels.csv` (one a line, a heading allowed), if the file is there.
///
/// # Errors
/// A line that is no integer.
pub fn read_labels(folder: &Path) -> Result<Option<Vec<i32>>> {
    let path = folder.join("labels.csv");
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&path).map_err(|error| Error::io(&path, "read", error))?;
    let first_field = |line: &str| line.split(',').next().unwrap_or("").trim().to_string();
    let fields = text.lines().map(first_field).filter(|field| !field.is_empty()).enumerate();
    let mut ids = Vec::new();
    for (number, field) in fields {
        match field.parse::<i32>() {
            Ok(id) => ids.push(id),
            Err(_) if number == 0 => {}
            Err(_) => {
                let what = format!("{}: a label id must be an integer", path.display());
                return Err(Error::invalid(what, field, "write one id a line"));
            }
        }
    }
    Ok(Some(ids))
}

fn parse(text: &str, folder: &Path) -> Result<Vec<Row>> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let example = "start with the line: fixed,moving,fixed_labels,moving_labels";
    let Some((_, header)) = lines.next() else {
        return Err(Error::invalid("the list of pairs must not be empty", "", example));
    };
    let header: Vec<&str> = header.split(',').map(str::trim).collect();
    for column in &header {
        if !COLUMNS.contains(column) {
            let what = format!("line 1: columns must be among {COLUMNS:?}");
            return Err(Error::invalid(what, column, example));
        }
    }
    if !["fixed", "moving"].iter().all(|needed| header.contains(needed)) {
        let what = "line 1: the columns fixed and moving are needed";
        return Err(Error::invalid(what, header, example));
    }
    let rows: Vec<Row> =
        lines.map(|(number, line)| row(number, line, &header, folder)).collect::<Result<_>>()?;
    if rows.is_empty() {
        return Err(Error::invalid("at least one pair must be listed", rows.len(), example));
    }
    Ok(rows)
}

fn row(number: usize, line: &str, header: &[&str], folder: &Path) -> Result<Row> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    if fields.len() != header.len() {
        let what = format!("line {number}: {} fields are needed, as in line 1", header.len());
        return Err(Error::invalid(what, line, "leave a field empty between its commas"));
    }
    let field = |column: &str| -> Option<&str> {
        let at = header.iter().position(|name| *name == column)?;
        Some(fields[at]).filter(|field| !field.is_empty())
    };
    let needed = |column: &str| {
        let missing = || {
            let what = format!("line {number}: {column} must name a file");
            Error::invalid(what, line, "write a path, relative to the list's folder or absolute")
        };
        field(column).map(|file| folder.join(file)).ok_or_else(missing)
    };
    let part = match field("part") {
        None | Some("train") => Part::Train,
        Some("validation") => Part::Validation,
        Some("test") => Part::Test,
        Some(other) => {
            let what = format!("line {number}: part must be train, validation or test");
            return Err(Error::invalid(what, other, "leave it empty for train"));
        }
    };
    let (fixed_labels, moving_labels) = (
        field("fixed_labels").map(|f| folder.join(f)),
        field("moving_labels").map(|f| folder.join(f)),
    );
    if fixed_labels.is_some() != moving_labels.is_some() {
        let what = format!("line {number}: labels must be given for both images or for neither");
        return Err(Error::invalid(what, line, "Dice compares two label maps"));
    }
    Ok(Row {
        fixed: needed("fixed")?,
        moving: needed("moving")?,
        fixed_labels,
        moving_labels,
        part,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_in_any_order_and_may_be_missing() {
        let text = "# two pairs\nmoving, fixed\na.nii.gz, b.nii.gz\n\n/c.nii,d.nii\n";
        let rows = parse(text, Path::new("data")).expect("well formed");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].moving, Path::new("data/a.nii.gz"));
        assert_eq!(rows[0].fixed, Path::new("data/b.nii.gz"));
        assert_eq!(rows[1].moving, Path::new("/c.nii"), "absolute paths stay");
        assert_eq!((rows[0].part, &rows[0].fixed_labels), (Part::Train, &None));
        let text = "fixed,moving,fixed_labels,moving_labels,part\na,b,c,d,test\na,b,,,\n";
        let rows = parse(text, Path::new("")).expect("well formed");
        assert_eq!(rows[0].part, Part::Test);
        assert_eq!(rows[0].moving_labels.as_deref(), Some(Path::new("d")));
        assert_eq!((rows[1].part, &rows[1].moving_labels), (Part::Train, &None));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, expected) in [
            ("", "must not be empty"),
            ("fixed,moving\n", "at least one pair"),
            ("fixed,movin\na,b\n", "movin"),
            ("fixed\na\n", "columns fixed and moving"),
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
