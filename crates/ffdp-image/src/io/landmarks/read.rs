//! Reading landmarks, line by line.

use std::path::Path;

use super::{LandmarkSpace, SLICER};
use crate::error::{Error, Result};

const FIX: &str =
    "give three numbers a line, or a header line that names the columns x, y, z or i, j, k";

/// Reads landmarks as points in RAS mm, in the order of the file.
///
/// CSV with commas, semicolons, tabs or blanks: three columns, or any with a header line that names
/// `x`, `y`, `z` or `i`, `j`, `k`; lines that start with `#` and empty lines are skipped. A Slicer file
/// is known by its first line; its coordinate system counts, not `space`.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read, [`Error::File`] with the line's number for a line of
/// other columns or a coordinate that is no finite number, and for a file without any landmark.
pub fn read_landmarks(path: impl AsRef<Path>, space: &LandmarkSpace) -> Result<Vec<[f64; 3]>> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|source| Error::io(path, "read", source))?;
    let slicer = text.starts_with(SLICER);
    let space = if slicer { slicer_space(path, &text)? } else { space.clone() };
    let mut columns = slicer.then_some([1, 2, 3]);
    let mut points = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim().trim_start_matches('\u{feff}');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| reject(path, format!("line {number}: {what}"), line, FIX);
        let cells = cells(line);
        let Some(columns) = columns else {
            let (named, is_header) = first_line(&cells);
            columns = Some(named.ok_or_else(|| wrong("landmarks have three coordinates"))?);
            if !is_header {
                points.push(
                    point(&cells, [0, 1, 2]).ok_or_else(|| wrong("coordinates must be finite"))?,
                );
            }
            continue;
        };
        let point = point(&cells, columns);
        points.push(point.ok_or_else(|| wrong("the coordinates must be finite numbers"))?);
    }
    if points.is_empty() {
        return Err(reject(path, "a landmark file must hold a landmark".into(), "none", FIX));
    }
    Ok(points.into_iter().map(|point| space.to_ras(point)).collect())
}

fn cells(line: &str) -> Vec<&str> {
    let separator = [',', ';', '\t'].into_iter().find(|&s| line.contains(s));
    match separator {
        Some(separator) => {
            line.split(separator).map(|cell| cell.trim().trim_matches('"')).collect()
        }
        None => line.split_whitespace().collect(),
    }
}

/// The columns of the coordinates by the first line, and whether that line is a header.
fn first_line(cells: &[&str]) -> (Option<[usize; 3]>, bool) {
    if cells.iter().all(|cell| cell.parse::<f64>().is_ok()) {
        return ((cells.len() == 3).then_some([0, 1, 2]), false);
    }
    let column = |name: &str| cells.iter().position(|cell| cell.eq_ignore_ascii_case(name));
    let named = |[x, y, z]: [&str; 3]| Some([column(x)?, column(y)?, column(z)?]);
    (named(["x", "y", "z"]).or_else(|| named(["i", "j", "k"])), true)
}

fn point(cells: &[&str], columns: [usize; 3]) -> Option<[f64; 3]> {
    let coordinate =
        |column: usize| cells.get(column)?.parse().ok().filter(|v: &f64| v.is_finite());
    let [x, y, z] = columns.map(coordinate);
    Some([x?, y?, z?])
}

/// `# CoordinateSystem = LPS`; older files have 0 for RAS and 1 for LPS. Without it, RAS.
fn slicer_space(path: &Path, text: &str) -> Result<LandmarkSpace> {
    let named = |line: &str| {
        let (key, value) = line.strip_prefix('#')?.split_once('=')?;
        (key.trim() == "CoordinateSystem").then(|| value.trim().to_string())
    };
    match text.lines().find_map(named).as_deref() {
        None | Some("0" | "RAS") => Ok(LandmarkSpace::Ras),
        Some("1" | "LPS") => Ok(LandmarkSpace::Lps),
        Some(other) => {
            let what = "CoordinateSystem must be RAS (0) or LPS (1)".to_string();
            Err(reject(path, what, other, "save the fiducials in RAS or LPS"))
        }
    }
}

fn reject(path: &Path, what: String, value: &str, fix: &str) -> Error {
    let value = format!("{:?}", value.chars().take(80).collect::<String>());
    Error::File { path: path.to_path_buf(), what, value, fix: fix.to_string() }
}
