//! Reading landmarks, line by line.

use std::path::Path;

use super::table::{LandmarkTable, needs_grid, others};
use super::{LandmarkSpace, elastix, reject, slicer};
use crate::error::{Error, Result};
use crate::io::table::separated;

const FIX: &str =
    "give three numbers a line, or a header line that names the columns x, y, z or i, j, k";

pub(super) fn read(path: &Path, space: &LandmarkSpace) -> Result<LandmarkTable> {
    let bytes = std::fs::read(path).map_err(|source| Error::io(path, "read", source))?;
    let table = if bytes.starts_with(slicer::FCSV.as_bytes()) {
        slicer::read_fcsv(path, &text(path, &bytes)?)?
    } else if bytes.trim_ascii_start().starts_with(b"{") {
        slicer::read_markups(path, &bytes)?
    } else if let Some(word) = elastix::first_word(&bytes) {
        elastix::read(path, &text(path, &bytes)?, word, space)?
    } else {
        let (lines, separator) = lines(&bytes).map_err(Error::in_file(path))?;
        of_lines(path, lines, separator, space)?
    };
    match table.points.is_empty() {
        true => Err(reject(path, "a landmark file must hold a landmark", "none", FIX)),
        false => Ok(table),
    }
}

fn text<'a>(path: &Path, bytes: &'a [u8]) -> Result<std::borrow::Cow<'a, str>> {
    let what = |at: usize| format!("bytes that are none after {at}");
    std::str::from_utf8(bytes).map(Into::into).map_err(|error| {
        let value = what(error.valid_up_to());
        reject(path, "a landmark file must be text (UTF-8)", &value, "save it again as UTF-8")
    })
}

/// Lines with their numbers and fields.
pub(super) type Lines = Vec<(u64, Vec<String>)>;

/// The fields of all lines by the first separator that gives the first line coordinates, blanks if none does; a comma
/// may be part of numbers, so that it comes after the semicolon.
fn lines(bytes: &[u8]) -> Result<(Lines, u8)> {
    for separator in *b";,\t" {
        let records = separated(bytes, separator)?;
        let lines: Lines = records
            .iter()
            .map(|(line, record)| (*line, record.iter().map(str::to_string).collect()))
            .collect();
        if lines.first().is_some_and(|(_, first)| Header::of(first, separator).is_some()) {
            return Ok((lines, separator));
        }
    }
    // Quotes, comments and empty lines are gone, a line is one field.
    let whole = separated(bytes, 0)?;
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect();
    Ok((whole.iter().map(|(number, line)| (*number, words(&line[0]))).collect(), b' '))
}

/// What the first line says.
struct Header {
    /// Columns of the coordinates.
    at: [usize; 3],
    /// Whether it names them.
    named: bool,
}

impl Header {
    /// `None` for a line that neither names coordinates nor is three numbers.
    fn of(first: &[String], separator: u8) -> Option<Self> {
        if first.iter().all(|field| number(field, separator).is_some()) {
            return (first.len() == 3).then_some(Self { at: [0, 1, 2], named: false });
        }
        let column = |name: &str| first.iter().position(|field| field.eq_ignore_ascii_case(name));
        let all = |[x, y, z]: [&str; 3]| Some([column(x)?, column(y)?, column(z)?]);
        let at = all(["x", "y", "z"]).or_else(|| all(["i", "j", "k"]))?;
        Some(Self { at, named: true })
    }
}

/// A number; with a comma before its decimals where that separates no fields.
fn number(field: &str, separator: u8) -> Option<f64> {
    let is_decimal = separator != b',' && field.matches(',').count() == 1 && !field.contains('.');
    match is_decimal {
        true => field.replace(',', ".").parse().ok(),
        false => field.parse().ok(),
    }
}

fn of_lines(
    path: &Path,
    lines: Lines,
    separator: u8,
    space: &LandmarkSpace,
) -> Result<LandmarkTable> {
    let mut lines = lines.into_iter().peekable();
    let Some((line, first)) = lines.peek().cloned() else {
        return Ok(LandmarkTable::of_points(Vec::new()));
    };
    let Some(Header { at, named }) = Header::of(&first, separator) else {
        let what = format!("line {line}: landmarks have three coordinates");
        return Err(reject(path, what, &first.join(","), FIX));
    };
    let mut table = LandmarkTable::of_points(Vec::new());
    if named {
        lines.next();
        table.coordinates = Some(at.map(|column| first[column].clone()));
        table.columns = others(&first, at);
    }
    table.space = by_header(path, table.coordinates.as_ref(), &first, space)?;
    for (line, fields) in lines {
        let value = |column: usize| {
            fields.get(column).and_then(|field| number(field, separator)).filter(|v| v.is_finite())
        };
        let [Some(x), Some(y), Some(z)] = at.map(value) else {
            let what = format!("line {line}: the coordinates must be finite numbers");
            return Err(reject(path, what, &fields.join(","), FIX));
        };
        let mut row = others(&fields, at);
        if !named && !row.is_empty() {
            let what = format!("line {line}: landmarks have three coordinates");
            return Err(reject(path, what, &fields.join(","), FIX));
        }
        row.resize(table.columns.len().max(row.len()), String::new());
        table.points.push(table.space.to_ras([x, y, z]));
        table.rows.push(row);
    }
    Ok(table)
}

/// The space that is asked for, or else what the names of the columns say.
fn by_header(
    path: &Path,
    coordinates: Option<&[String; 3]>,
    first: &[String],
    space: &LandmarkSpace,
) -> Result<LandmarkSpace> {
    if *space != LandmarkSpace::OfFile {
        return Ok(space.clone());
    }
    let Some([x, _, _]) = coordinates else { return Ok(LandmarkSpace::Ras) };
    if x.eq_ignore_ascii_case("i") {
        return Err(needs_grid(path, "the columns i, j, k are voxel indices"));
    }
    let ants = ["x", "y", "z", "t"];
    let is_ants =
        first.len() >= 4 && first.iter().zip(ants).all(|(a, b)| a.eq_ignore_ascii_case(b));
    Ok(if is_ants { LandmarkSpace::Lps } else { LandmarkSpace::Ras })
}
