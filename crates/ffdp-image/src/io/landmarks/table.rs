//! Points with what else their file says of them.

use std::path::Path;

use super::{LandmarkSpace, in_space, reject};
use crate::error::{Error, Result};
use crate::io::csv_line;

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
    /// A `.fcsv`.
    Fiducials,
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

    /// The same table with other points, one for each.
    ///
    /// # Panics
    /// If there are more or fewer.
    pub fn with_points(self, points: Vec<[f64; 3]>) -> Self {
        assert_eq!(points.len(), self.points.len(), "a point for each row of landmarks");
        Self { points, ..self }
    }

    /// As CSV.
    pub(super) fn csv(&self, space: &LandmarkSpace) -> Result<String> {
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

/// The fields of all columns but those of the coordinates.
pub(super) fn others(fields: &[String], at: [usize; 3]) -> Vec<String> {
    let others = fields.iter().enumerate().filter(|(column, _)| !at.contains(column));
    others.map(|(_, field)| field.clone()).collect()
}

pub(super) fn needs_grid(path: &Path, what: &str) -> Error {
    let fix = "name the grid: --landmark-space voxel with the image whose voxels they are, or ras or lps if they are mm";
    reject(path, what, "no grid", fix)
}
