//! FSL FLIRT's matrices.
//!
//! FLIRT maps points of the moving ("in") to points of the fixed ("ref") image, each in its own
//! *scaled voxels*: voxel index times spacing, with the x axis reversed where the voxel axes are
//! right-handed (positive determinant), because FSL keeps images left-handed ("radiological").
//! Source: FSL wiki, "FLIRT: what is the format of the matrix used by FLIRT".

use std::path::Path;

use super::{matrix, read_text};
use crate::error::Result;
use crate::image::{Affine, Geometry, Physical, Voxel};

/// Scaled voxels of FSL, mm.
enum Scaled {}

/// Reads a matrix of FLIRT, found for these two images, as the map from fixed to moving in RAS mm.
///
/// # Errors
/// As [`read_transform_file`](super::read_transform_file) for a matrix of text.
pub fn read_flirt(
    path: impl AsRef<Path>,
    moving: &Geometry,
    fixed: &Geometry,
) -> Result<Affine<Physical, Physical>> {
    let path = path.as_ref();
    let moving_to_fixed: Affine<Scaled, Scaled> = matrix::parse(path, &read_text(path)?)?;
    let to_scaled = fixed.mm_to_voxel().then(&scaled(fixed));
    let to_mm = scaled(moving).inverse()?.then(&moving.voxel_to_mm());
    Ok(to_scaled.then(&moving_to_fixed.inverse()?).then(&to_mm))
}

fn scaled(grid: &Geometry) -> Affine<Voxel, Scaled> {
    let [x, y, z] = grid.spacing_mm;
    let right_handed = grid.voxel_to_mm().determinant() > 0.0;
    let along_x = match right_handed {
        true => [-x, 0.0, 0.0, x * (grid.size[0] as f64 - 1.0)],
        false => [x, 0.0, 0.0, 0.0],
    };
    Affine::from_rows([along_x, [0.0, y, 0.0, 0.0], [0.0, 0.0, z, 0.0]])
}
