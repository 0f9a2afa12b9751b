//! A matrix as plain text: 3x4 or 4x4 numbers, one row a line, in RAS mm from fixed to moving.

use std::path::Path;

use super::extension;
use crate::error::{Error, Result};
use crate::image::{Affine, Physical};

/// How far the last row may be from 0 0 0 1: FSL multiplies matrices in f32, each product rounds by up to 1.2e-7, and
/// chains of some tens of them are written with 8 to 10 digits (1.00000012). A projection is far beyond it.
pub(super) const LAST_ROW: f64 = 1e-5;

const FIX: &str = "give four numbers a line, in three or four lines, the fourth 0 0 0 1";

/// The map of a matrix in RAS mm.
pub(super) fn read(path: &Path, text: &str) -> Result<Affine<Physical, Physical>> {
    // ITK's .mat files are binary; a text of this name is FLIRT's, in units of its own.
    if extension(path) == "mat" {
        let what = "a matrix in a text file named .mat is one of FSL FLIRT, which means nothing \
                    without its two images";
        let fix = "give it as flirt:MATRIX,MOVING,FIXED; rename it to .txt if it is in RAS mm";
        return Err(Error::file(path, what, "only the matrix", fix));
    }
    parse(path, text)
}

/// The numbers as a map, whatever its spaces.
pub(super) fn parse<From, To>(path: &Path, text: &str) -> Result<Affine<From, To>> {
    let mut rows: Vec<[f64; 4]> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let entries: Option<Vec<f64>> = line
            .split(|c: char| c.is_whitespace() || c == ',')
            .filter(|entry| !entry.is_empty())
            .map(|entry| entry.parse().ok().filter(|v: &f64| v.is_finite()))
            .collect();
        let Some(row) = entries.and_then(|entries| <[f64; 4]>::try_from(entries).ok()) else {
            let what = format!("line {number}: a row of a matrix has four finite numbers");
            return Err(Error::file(path, &what, format!("{:?}", line), FIX));
        };
        rows.push(row);
    }
    let unit = [0.0, 0.0, 0.0, 1.0];
    let near = |row: &[f64; 4]| row.iter().zip(unit).all(|(v, unit)| (v - unit).abs() <= LAST_ROW);
    let last_is_unit = rows.get(3).is_none_or(near);
    if !(rows.len() == 3 || rows.len() == 4) || !last_is_unit {
        let what = "a matrix has three rows, or four of which the last is 0 0 0 1";
        return Err(Error::file(path, what, format!("{} rows, {rows:?}", rows.len()), FIX));
    }
    let map = Affine::from_rows([rows[0], rows[1], rows[2]]);
    map.inverse().map_err(Error::in_file(path))?;
    Ok(map)
}
