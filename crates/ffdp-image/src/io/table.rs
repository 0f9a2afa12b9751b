//! Lists of files as CSV: pairs of a cohort, images of a training.
//!
//! RFC 4180 as the crate `csv` reads it: fields in quotes may hold commas, quotes and line ends. Beyond it a byte order
//! mark, blanks around fields, empty lines and lines that begin with `#` are allowed. The first line names the columns.

use std::path::{Path, PathBuf};

use csv::{ReaderBuilder, StringRecord, Trim};

use super::words::closest;
use crate::error::{Error, Result};

/// What columns of lists of files may be called; others are ignored, unless they are nearly one of these.
pub const LIST_COLUMNS: [&str; 21] = [
    "fixed",
    "moving",
    "fixed_labels",
    "moving_labels",
    "fixed_mask",
    "moving_mask",
    "fixed_channels",
    "moving_channels",
    "fixed_landmarks",
    "moving_landmarks",
    "initial",
    "name",
    "image",
    "labels",
    "part",
    "transform",
    "reference",
    "output",
    "warp",
    "inverse_warp",
    "mask",
];

const FORM: &str = "the first line names the columns, every other line the files, relative to the list's folder; a \
                    field with a comma stands in quotes";

/// A list of files.
#[derive(Clone, Debug)]
pub struct FileList {
    /// At least one.
    pub rows: Vec<FileRow>,
    /// Columns that are not known, and are ignored.
    pub ignored: Vec<String>,
}

/// A line of a list.
#[derive(Clone, Debug)]
pub struct FileRow {
    /// Its number in the file, from 1.
    pub line: u64,
    folder: PathBuf,
    /// Column and field; fields that are empty are not there.
    fields: Vec<(String, String)>,
}

impl FileList {
    /// Reads a list that has the `required` columns, and something in each of them in every line.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be read; [`Error::InFile`] with the line's number for a column that is missing, is
    /// there twice or is nearly one of [`LIST_COLUMNS`], for a line with more or fewer fields than columns, an empty
    /// field of a required column, and a list without a line.
    pub fn read(path: impl AsRef<Path>, required: &[&str]) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read(path).map_err(|source| Error::io(path, "read", source))?;
        Self::parse(&text, path.parent().unwrap_or(Path::new("")), required)
            .map_err(Error::in_file(path))
    }

    /// The same of a text whose files are relative to `folder`.
    ///
    /// # Errors
    /// As [`FileList::read`].
    pub fn parse(text: &[u8], folder: &Path, required: &[&str]) -> Result<Self> {
        let mut records = separated(text, b',')?.into_iter();
        let Some((_, header)) = records.next() else {
            return Err(Error::invalid("the list must not be empty", "", FORM));
        };
        let (columns, ignored) = columns(&header, required)?;
        let row = |(line, record): (u64, StringRecord)| {
            if record.len() != columns.len() {
                let what =
                    format!("line {line}: {} fields are needed, one a column", columns.len());
                let fix =
                    "leave a field empty between its commas; put a field with a comma in quotes";
                return Err(Error::invalid(what, record.iter().collect::<Vec<_>>().join(","), fix));
            }
            let fields = columns.iter().zip(&record).filter(|(_, field)| !field.is_empty());
            let fields = fields.map(|(column, field)| (column.clone(), field.into())).collect();
            let row = FileRow { line, folder: folder.into(), fields };
            match required.iter().find(|column| row.text(column).is_none()) {
                None => Ok(row),
                Some(empty) => Err(row.error(&format!("{empty} must name a file"), FORM)),
            }
        };
        let rows = records.map(row).collect::<Result<Vec<_>>>()?;
        match rows.is_empty() {
            true => Err(Error::invalid("at least one line must follow the header", 0, FORM)),
            false => Ok(Self { rows, ignored }),
        }
    }
}

impl FileRow {
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

    /// What is wrong in the line.
    pub fn error(&self, what: &str, fix: &str) -> Error {
        let fields: Vec<&str> = self.fields.iter().map(|(_, field)| field.as_str()).collect();
        Error::invalid(format!("line {}: {what}", self.line), fields.join(","), fix)
    }
}

/// The names of the columns in lower case, and those of them that are not known.
fn columns(header: &StringRecord, required: &[&str]) -> Result<(Vec<String>, Vec<String>)> {
    let columns: Vec<String> = header.iter().map(str::to_lowercase).collect();
    for (at, column) in columns.iter().enumerate() {
        if LIST_COLUMNS.contains(&column.as_str()) || required.contains(&column.as_str()) {
            if columns[..at].contains(column) {
                let what = "line 1: every column must have a name of its own";
                return Err(Error::invalid(what, column, "remove or rename one of the two"));
            }
        } else if let Some(meant) = closest(column, LIST_COLUMNS) {
            let what = "line 1: the column is not known";
            return Err(Error::invalid(what, column, format!("did you mean {meant}?")));
        }
    }
    if let Some(missing) = required.iter().find(|name| columns.iter().all(|c| c != *name)) {
        let what = format!("line 1: the list has no column {missing}");
        return Err(Error::invalid(what, columns, FORM));
    }
    let unknown = columns.iter().filter(|column| !LIST_COLUMNS.contains(&column.as_str()));
    let ignored = unknown.filter(|column| !column.is_empty()).cloned().collect();
    Ok((columns, ignored))
}

/// The lines of a text of comma-separated values: the number of each, from 1, and its fields, at least one.
///
/// # Errors
/// [`Error::Invalid`] for a text that is not UTF-8.
pub fn csv_records(text: &[u8]) -> Result<Vec<(u64, Vec<String>)>> {
    let fields = |record: &StringRecord| record.iter().map(str::to_string).collect();
    Ok(separated(text, b',')?.iter().map(|(line, record)| (*line, fields(record))).collect())
}

/// The records of a text with this character between the fields, each with the number of its first line.
pub(crate) fn separated(text: &[u8], delimiter: u8) -> Result<Vec<(u64, StringRecord)>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .trim(Trim::All)
        .delimiter(delimiter)
        .from_reader(text);
    let number = |record: &StringRecord| record.position().map_or(0, |at| line_of(text, at));
    let record = |record: csv::Result<StringRecord>| {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            Error::invalid(
                format!("line {line}: a list must be text (UTF-8)"),
                error.to_string(),
                FORM,
            )
        })?;
        Ok((number(&record), record))
    };
    // A line of blanks alone has one empty field.
    let blank = |record: &StringRecord| record.len() == 1 && record[0].is_empty();
    let records = reader.records().map(record);
    records.filter(|record| !record.as_ref().is_ok_and(|(_, record)| blank(record))).collect()
}

/// The number of the line in which a record begins: its position is that of the lines before it which are skipped.
fn line_of(text: &[u8], at: &csv::Position) -> u64 {
    let rest = text.get(at.byte() as usize..).unwrap_or_default();
    let skipped = |line: &&[u8]| line.trim_ascii().is_empty() || line.starts_with(b"#");
    at.line() + rest.split(|&b| b == b'\n').take_while(skipped).count() as u64
}

/// Fields as a line of CSV, in quotes where they need them.
pub fn csv_line<Field: AsRef<[u8]>>(fields: impl IntoIterator<Item = Field>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(fields).expect("memory can be written to");
    let bytes = writer.into_inner().expect("memory can be written to");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, required: &[&str]) -> Result<FileList> {
        FileList::parse(text.as_bytes(), Path::new("data"), required)
    }

    #[test]
    fn quotes_commas_a_byte_order_mark_and_other_columns_are_understood() {
        let text = "\u{feff}# a list\nMoving,part, fixed ,site,fixed_labels\r\n\r\n\
            \"a, b.nii\",test,/f.nii,Basel,\r\n\
            \"say \"\"x\"\".nii\",  ,f.nii,\"Bern, CH\",l.nii\n";
        let list = parse(text, &["fixed", "moving"]).expect("well formed");
        let files = |column| list.rows.iter().map(|row| row.file(column)).collect::<Vec<_>>();
        let path = |name: &str| Some(PathBuf::from(name));
        assert_eq!(files("moving"), [path("data/a, b.nii"), path("data/say \"x\".nii")]);
        assert_eq!(files("fixed"), [path("/f.nii"), path("data/f.nii")]);
        assert_eq!(files("fixed_labels"), [None, path("data/l.nii")]);
        assert_eq!(list.rows[1].text("part"), None);
        assert_eq!(list.ignored, ["site"]);
        assert_eq!(list.rows.iter().map(|row| row.line).collect::<Vec<_>>(), [4, 5]);
    }

    #[test]
    fn several_files_stand_in_one_field() {
        let list = parse("image,transform\na.nii,w.nii;  a.txt;\n", &[]).expect("well formed");
        let files: Vec<PathBuf> = list.rows[0].several("transform").collect();
        assert_eq!(files, ["data/w.nii", "data/a.txt"].map(PathBuf::from));
    }

    #[test]
    fn mistakes_are_named_with_their_line_and_what_was_meant() {
        for (text, words) in [
            ("", ["must not be empty", ""]),
            ("# nothing\n\n", ["must not be empty", ""]),
            ("fixed,moving\n", ["at least one line", ""]),
            ("fixed,moving,fixed_lables\na,b,c\n", ["fixed_lables", "did you mean fixed_labels?"]),
            ("fixed,moving,fixed_channel\na,b,c\n", ["got", "did you mean fixed_channels?"]),
            (
                "fixed,moving,Moving Labels\na,b,c\n",
                ["moving labels", "did you mean moving_labels?"],
            ),
            ("fixed,moving,fixed\na,b,c\n", ["a name of its own", "fixed"]),
            ("fixed,part\na,b\n", ["no column moving", ""]),
            ("fixed,moving\na,b\na\n", ["line 3: 2 fields", ""]),
            ("fixed,moving\na,b,c.nii\n", ["line 2: 2 fields", "a,b,c.nii"]),
            ("fixed,moving\na,\n", ["line 2: moving must name a file", ""]),
        ] {
            let message = parse(text, &["fixed", "moving"]).expect_err(text).to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{text:?}: {message}");
        }
        let error = FileList::parse(b"fixed,moving\na,\xff\n", Path::new(""), &[]).unwrap_err();
        assert!(error.to_string().contains("line 2: a list must be text"), "{error}");
        let error = FileList::read("no/such.csv", &[]).unwrap_err().to_string();
        assert!(error.contains("no/such.csv"), "{error}");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let fields = ["a,b", "", "say \"x\"", "two\nlines", " plain"];
        let line = csv_line(fields);
        assert_eq!(line, "\"a,b\",,\"say \"\"x\"\"\",\"two\nlines\", plain\n");
        let read = csv_records(line.as_bytes()).unwrap();
        assert_eq!(read[0].1, fields.map(str::trim));
    }
}
