//! Points as elastix and transformix read them: `point` (LPS mm) or `index` (voxels), their number, a point a line.

use std::path::Path;

use super::table::{Kind, LandmarkTable, needs_grid};
use super::{LandmarkSpace, reject};
use crate::error::Result;

const FIX: &str =
    "write `point` or `index`, the number of points, and a line of three numbers for each";

/// `point` or `index`, if the file begins with one of them alone in its line.
pub fn first_word(bytes: &[u8]) -> Option<&'static str> {
    let line = bytes.split(|&b| b == b'\n').next()?.trim_ascii();
    ["point", "index"].into_iter().find(|word| line.eq_ignore_ascii_case(word.as_bytes()))
}

/// Reads a file that begins with a `word`.
pub fn read(path: &Path, text: &str, word: &str, space: &LandmarkSpace) -> Result<LandmarkTable> {
    let space = match (word, space) {
        ("point", LandmarkSpace::OfFile) => LandmarkSpace::Lps,
        ("index", LandmarkSpace::Voxel(_)) | ("point", LandmarkSpace::Ras | LandmarkSpace::Lps) => {
            space.clone()
        }
        ("index", _) => return Err(needs_grid(path, "`index` begins a list of voxel indices")),
        _ => {
            let fix = "leave --landmark-space out";
            return Err(reject(path, "`point` begins a list of points in mm", "voxels", fix));
        }
    };
    let mut lines =
        (1..).zip(text.lines().map(str::trim)).filter(|(_, line)| !line.is_empty()).skip(1);
    let (_, count) = lines.next().unwrap_or((0, ""));
    let Ok(count) = count.parse::<usize>() else {
        return Err(reject(path, "the second line must be the number of points", count, FIX));
    };
    let mut table = LandmarkTable::of_points(Vec::new());
    for (number, line) in lines {
        let numbers =
            line.split_whitespace().map(|word| word.parse().ok().filter(|v: &f64| v.is_finite()));
        let numbers: Option<Vec<f64>> = numbers.collect();
        let Some(point) = numbers.and_then(|numbers| <[f64; 3]>::try_from(numbers).ok()) else {
            let what = format!("line {number}: a point has three finite numbers");
            return Err(reject(path, what, line, FIX));
        };
        table.points.push(space.to_ras(point));
        table.rows.push(Vec::new());
    }
    if table.points.len() != count {
        let there = table.points.len().to_string();
        return Err(reject(path, format!("{count} points are announced"), &there, FIX));
    }
    Ok(LandmarkTable { space, kind: Kind::Elastix, ..table })
}

/// The text of points in a space.
pub fn text(points: &[[f64; 3]], space: &LandmarkSpace) -> String {
    let word = if matches!(space, LandmarkSpace::Voxel(_)) { "index" } else { "point" };
    let line = |[x, y, z]: &[f64; 3]| format!("{x} {y} {z}\n");
    let lines: String = points.iter().map(line).collect();
    format!("{word}\n{}\n{lines}", points.len())
}
