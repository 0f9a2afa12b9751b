//! Landmarks: lists of points as CSV and as 3D Slicer's fiducials.
//!
//! A CSV file does not say in which space its points are, so the caller does ([`LandmarkSpace`]):
//! voxel indices (Learn2Reg, DIR-Lab), RAS mm, or LPS mm (ANTs' `antsApplyTransformsToPoints`, with
//! the header `x,y,z,t`). A Slicer file (`.fcsv`) says it itself. Read `read.rs` first.

mod read;
mod write;

#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::image::Geometry;
use crate::io::lps::flip;

pub use read::read_landmarks;
pub use write::write_landmarks;

/// The first words of a Slicer file.
const SLICER: &str = "# Markups fiducial file";

/// What the numbers of a landmark file mean.
#[derive(Clone, Debug, PartialEq)]
pub enum LandmarkSpace {
    /// Continuous voxel indices (i, j, k) of this grid, from 0, x fastest.
    Voxel(Geometry),
    /// RAS mm: NIfTI, FreeSurfer, this crate.
    Ras,
    /// LPS mm: ITK, ANTs, DICOM.
    Lps,
}

impl LandmarkSpace {
    /// A point of this space in RAS mm.
    pub fn to_ras(&self, point: [f64; 3]) -> [f64; 3] {
        match self {
            Self::Voxel(grid) => grid.voxel_to_mm().apply(point),
            Self::Ras => point,
            Self::Lps => flip(point),
        }
    }

    /// A point in RAS mm in this space.
    pub fn of_ras(&self, point: [f64; 3]) -> [f64; 3] {
        match self {
            Self::Voxel(grid) => grid.mm_to_voxel().apply(point),
            Self::Ras => point,
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
