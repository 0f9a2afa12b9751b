//! Small tables of file names: a header line, then one line each; `#` starts a remark.

use std::path::{Path, PathBuf};

use ffdp_burn::{Error, Result};

/// What an image or a pair is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Train,
    Validation,
    Test,
}

/// What may stand in a table.
pub struct Columns {
    pub known: &'static [&'static str],
    pub needed: &'static [&'static str],
    /// A header line to start with.
    pub example: &'static str,
}

/// One line, its fields by the names of the header.
pub struct Line<'a> {
    number: usize,
    text: &'a str,
    header: Vec<&'a str>,
    fields: Vec<&'a str>,
    folder: &'a Path,
}

/// The lines of a table; paths in it are relative to `folder`.
///
/// # Errors
/// An unknown or missing column, or a line that does not fit the header; with its number.
pub fn lines<'a>(text: &'a str, folder: &'a Path, columns: &Columns) -> Result<Vec<Line<'a>>> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let example = format!("start with the line: {}", columns.example);
    let Some((_, header)) = lines.next() else {
        return Err(Error::invalid("the list must not be empty", "", example));
    };
    let header: Vec<&str> = header.split(',').map(str::trim).collect();
    for column in &header {
        if !columns.known.contains(column) {
            let what = format!("line 1: columns must be among {:?}", columns.known);
            return Err(Error::invalid(what, column, example));
        }
    }
    if !columns.needed.iter().all(|needed| header.contains(needed)) {
        let what = format!("line 1: columns {:?} are needed", columns.needed);
        return Err(Error::invalid(what, header, example));
    }
    let line = |(number, text): (usize, &'a str)| {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        if fields.len() == header.len() {
            return Ok(Line { number, text, header: header.clone(), fields, folder });
        }
        let what = format!("line {number}: {} fields are needed, as in line 1", header.len());
        Err(Error::invalid(what, text, "leave a field empty between its commas"))
    };
    let lines = lines.map(line).collect::<Result<Vec<_>>>()?;
    if lines.is_empty() {
        return Err(Error::invalid("at least one line must follow the header", 0, example));
    }
    Ok(lines)
}

impl Line<'_> {
    fn field(&self, column: &str) -> Option<&str> {
        let at = self.header.iter().position(|name| *name == column)?;
        Some(self.fields[at]).filter(|field| !field.is_empty())
    }

    /// The file in a column, if there is one.
    pub fn file(&self, column: &str) -> Option<PathBuf> {
        self.field(column).map(|file| self.folder.join(file))
    }

    /// The file in a column that must not be empty.
    ///
    /// # Errors
    /// An empty field.
    pub fn needed_file(&self, column: &str) -> Result<PathBuf> {
        self.file(column).ok_or_else(|| {
            let what = format!("{column} must name a file");
            self.error(&what, "write a path, relative to the list's folder or absolute")
        })
    }

    /// What the line is used for; training where it is not said.
    ///
    /// # Errors
    /// Another word.
    pub fn part(&self) -> Result<Part> {
        match self.field("part") {
            None | Some("train") => Ok(Part::Train),
            Some("validation") => Ok(Part::Validation),
            Some("test") => Ok(Part::Test),
            Some(_) => {
                Err(self
                    .error("part must be train, validation or test", "leave it empty for train"))
            }
        }
    }

    /// What is wrong in the line.
    pub fn error(&self, what: &str, fix: &str) -> Error {
        Error::invalid(format!("line {}: {what}", self.number), self.text, fix)
    }
}
