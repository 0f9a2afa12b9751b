//! Landmarks: lists of points as CSV, of 3D Slicer (`.fcsv`, `.mrk.json`) and of elastix.
//!
//! | file | space |
//! |---|---|
//! | CSV, columns `x,y,z` or three without names | RAS mm, unless the caller says otherwise |
//! | CSV whose header begins with `x,y,z,t`: points of ANTs (`antsApplyTransformsToPoints`) | LPS mm, likewise |
//! | elastix, first line `point` | LPS mm, likewise |
//! | CSV, columns `i,j,k`; elastix, first line `index` | voxel indices: the caller gives the grid |
//! | `.fcsv`, `.mrk.json` | what the file says, whatever the caller |
//!
//! A [`LandmarkTable`] keeps what else a file says of its points (labels, weights). Read `table.rs` first.

mod elastix;
mod files;
mod read;
mod slicer;
mod table;

#[cfg(test)]
mod tests;

use std::path::Path;

use crate::error::{Error, Result};
use crate::image::Geometry;
use crate::io::lps::flip;

pub use table::LandmarkTable;

/// What the numbers of a landmark file mean.
#[derive(Clone, Debug, PartialEq)]
pub enum LandmarkSpace {
    /// What the file says of itself, by the table of this module.
    OfFile,
    /// Continuous voxel indices (i, j, k) of this grid, from 0, x fastest.
    Voxel(Geometry),
    /// RAS mm: NIfTI, FreeSurfer, this crate.
    Ras,
    /// LPS mm: ITK, ANTs, DICOM.
    Lps,
}

impl LandmarkSpace {
    /// A point of this space in RAS mm; of a file that says nothing, the point itself.
    pub fn to_ras(&self, point: [f64; 3]) -> [f64; 3] {
        match self {
            Self::Voxel(grid) => grid.voxel_to_mm().apply(point),
            Self::Ras | Self::OfFile => point,
            Self::Lps => flip(point),
        }
    }

    /// A point in RAS mm in this space.
    pub fn of_ras(&self, point: [f64; 3]) -> [f64; 3] {
        match self {
            Self::Voxel(grid) => grid.mm_to_voxel().apply(point),
            Self::Ras | Self::OfFile => point,
            Self::Lps => flip(point),
        }
    }
}

/// Points in a space, all at once: the matrix of a grid is inverted once only.
fn in_space(points: &[[f64; 3]], space: &LandmarkSpace) -> Result<Vec<[f64; 3]>> {
    Ok(match space {
        LandmarkSpace::Voxel(grid) => {
            let to_voxel = grid.voxel_to_mm().inverse()?;
            points.iter().map(|&p| to_voxel.apply(p)).collect()
        }
        _ => points.iter().map(|&p| space.of_ras(p)).collect(),
    })
}

/// The points of a file in RAS mm, in its order.
///
/// # Errors
/// As [`LandmarkTable::read`].
pub fn read_landmarks(path: impl AsRef<Path>, space: &LandmarkSpace) -> Result<Vec<[f64; 3]>> {
    Ok(LandmarkTable::read(path, space)?.points)
}

/// Writes points in RAS mm in a space, as [`LandmarkTable::write`] does.
///
/// # Errors
/// [`Error::Io`] when writing fails.
pub fn write_landmarks(
    path: impl AsRef<Path>,
    points: &[[f64; 3]],
    space: &LandmarkSpace,
) -> Result<()> {
    LandmarkTable::of_points(points.to_vec()).write(path, space)
}

fn reject(path: &Path, what: impl Into<String>, value: &str, fix: &str) -> Error {
    let value = format!("{:?}", value.chars().take(80).collect::<String>());
    Error::file(path, what, value, fix)
}
