//! Points with what else their file says of them.

use std::io::Write;
use std::path::Path;

use super::{LandmarkSpace, elastix, in_space, read, slicer};
use crate::error::Result;
use crate::io::{csv_line, write_atomically};

/// Landmarks, with the other columns of their file.
#[derive(Clone, Debug, PartialEq)]
pub struct LandmarkTable {
    /// RAS mm, in the order of the file.
    pub points: Vec<[f64; 3]>,
    /// In which the file has them; never [`LandmarkSpace::OfFile`].
    pub(super) space: LandmarkSpace,
    /// What the file calls the coordinates.
    pub(super) coordinates: Option<[String; 3]>,
    /// Names of the other columns.
    pub(super) columns: Vec<String>,
    /// Their fields, a row for each point.
    pub(super) rows: Vec<Vec<String>>,
    pub(super) kind: Kind,
}

/// What a file has beyond a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Table,
    /// All of a `.mrk.json`.
    Markups(serde_json::Value),
    /// elastix: a word, the number of points, a point a line.
    Elastix,
}

impl LandmarkTable {
    /// Points in RAS mm without anything else.
    pub fn of_points(points: Vec<[f64; 3]>) -> Self {
        let rows = vec![Vec::new(); points.len()];
        let (space, columns, kind) = (LandmarkSpace::Ras, Vec::new(), Kind::Table);
        Self { points, space, coordinates: None, columns, rows, kind }
    }

    /// Reads landmarks.
    ///
    /// CSV with commas, semicolons (then with decimal commas, too), tabs or blanks: three columns, or any with a
    /// header line that names `x`, `y`, `z` or `i`, `j`, `k`; lines that start with `#` and empty lines are skipped.
    /// Files of Slicer and elastix are known by their content. A `.fcsv` or `.mrk.json` says its space itself, and
    /// `space` is that of all others.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when the file cannot be read, [`Error::File`](crate::Error::File) with the
    /// line's number for a line of other columns or a coordinate that is no finite number, for voxel indices without a
    /// grid, and for a file without any landmark.
    pub fn read(path: impl AsRef<Path>, space: &LandmarkSpace) -> Result<Self> {
        read::read(path.as_ref(), space)
    }

    /// The same table with other points, one for each.
    ///
    /// # Panics
    /// If there are more or fewer.
    pub fn with_points(self, points: Vec<[f64; 3]>) -> Self {
        assert_eq!(points.len(), self.points.len(), "a point for each row of landmarks");
        Self { points, ..self }
    }

    /// Writes the points in a space ([`LandmarkSpace::OfFile`]: that of the file that was read), by the name as `.fcsv`
    /// or `.mrk.json` of Slicer, and otherwise as the text of elastix if it was one, or as CSV: three columns with the
    /// names that they had (`i,j,k` for voxels, `x,y,z` for mm; for LPS followed by a column `t`, as ANTs wants it),
    /// then all others as they were.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when writing fails.
    pub fn write(&self, path: impl AsRef<Path>, space: &LandmarkSpace) -> Result<()> {
        let path = path.as_ref();
        let name = path.to_string_lossy().to_lowercase();
        let space = match space {
            LandmarkSpace::OfFile => &self.space,
            other => other,
        };
        let text = if name.ends_with(".fcsv") {
            slicer::fcsv(self, space)?
        } else if name.ends_with(".mrk.json") {
            slicer::markups(self, space)?
        } else if self.kind == Kind::Elastix && name.ends_with(".txt") {
            elastix::text(&in_space(&self.points, space)?, space)
        } else {
            self.csv(space)?
        };
        write_atomically(path, |file| file.write_all(text.as_bytes()))
    }

    fn csv(&self, space: &LandmarkSpace) -> Result<String> {
        let is_voxel = |space: &LandmarkSpace| matches!(space, LandmarkSpace::Voxel(_));
        let usual =
            if is_voxel(space) { ["i", "j", "k"] } else { ["x", "y", "z"] }.map(String::from);
        let same = is_voxel(space) == is_voxel(&self.space);
        let names = self.coordinates.clone().filter(|_| same).unwrap_or(usual);
        let timed = self.column(&["t"]).is_none() && *space == LandmarkSpace::Lps;
        let t = |field: &str| timed.then(|| field.to_string());
        let mut text = csv_line(names.into_iter().chain(t("t")).chain(self.columns.clone()));
        for (point, row) in in_space(&self.points, space)?.iter().zip(&self.rows) {
            let point = point.iter().map(f64::to_string);
            text += &csv_line(point.chain(t("0")).chain(row.clone()));
        }
        Ok(text)
    }

    /// The place of the first column with one of these names.
    pub(super) fn column(&self, names: &[&str]) -> Option<usize> {
        let of = |name: &&str| self.columns.iter().position(|c| c.eq_ignore_ascii_case(name));
        names.iter().find_map(of)
    }
}
