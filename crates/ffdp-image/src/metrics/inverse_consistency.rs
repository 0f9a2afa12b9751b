//! Whether two maps undo each other.

use rayon::prelude::*;
use serde::Serialize;

use super::percentile::percentiles;
use super::warp::Warp;

/// Distances `|phi(phi^-1(x)) - x|` in mm over the voxel centres x of the inverse's grid.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InverseConsistency {
    /// Mean; NaN when no voxel could be followed.
    pub mean_mm: f64,
    /// 95th percentile.
    pub p95_mm: f64,
    /// Largest.
    pub max_mm: f64,
    /// Voxels whose point `phi^-1(x)` lies in the image of `phi`: those measured.
    pub voxels: u64,
    /// Voxels whose point does not, where `phi` is not known.
    pub outside: u64,
}

/// How well `forward` undoes `inverse`; the two may lie on different grids.
pub fn inverse_consistency(forward: &Warp, inverse: &Warp) -> InverseConsistency {
    let grid = inverse.geometry();
    let to_mm = grid.voxel_to_mm();
    let residual = |offset: usize| {
        let x = to_mm.apply(grid.index_of(offset).map(|i| i as f64));
        let y = inverse.apply(x);
        forward.covers(y).then(|| {
            let back = forward.apply(y);
            (0..3).map(|i| (back[i] - x[i]).powi(2)).sum::<f64>().sqrt() as f32
        })
    };
    let mut residuals: Vec<f32> = (0..grid.len()).into_par_iter().filter_map(residual).collect();
    let voxels = residuals.len();
    let sum: f64 = residuals.iter().map(|&r| f64::from(r)).sum();
    let [p95_mm, max_mm] = percentiles(&mut residuals, [95.0, 100.0]);
    InverseConsistency {
        mean_mm: sum / voxels as f64,
        p95_mm,
        max_mm,
        voxels: voxels as u64,
        outside: (grid.len() - voxels) as u64,
    }
}
