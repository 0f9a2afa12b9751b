//! The distance of single points to a surface: rows of the grid around the point, nearest ones first.
//!
//! Surfaces that are compared lie a few voxels apart. A map of the distances of all points of their box
//! ([`Planes`](crate::metrics::distance_transform::Planes)) is much more than what is asked.

use rayon::prelude::*;

use super::codes::{Codes, is_surface};

/// No surface in this row.
const NONE: u32 = u32::MAX;

/// How many steps along x the nearest surface of the same row lies from every corner.
pub(super) struct Rows {
    steps: Vec<u32>,
    /// Corners along (x, y, z).
    size: [usize; 3],
    spacing: [f64; 3],
}

impl Rows {
    pub fn new(codes: &Codes, spacing: [f64; 3]) -> Self {
        let [nx, ny, _] = codes.size;
        let mut steps = vec![NONE; codes.data.len()];
        steps.par_chunks_mut(nx * ny).enumerate().for_each(|(z, plane)| {
            for (y, row) in plane.chunks_mut(nx).enumerate() {
                sweep(row, codes.row(y, z));
            }
        });
        Self { steps, size: codes.size, spacing }
    }

    /// The squared distance of a corner (x, y, z) to the surface; none where that would take more than `left`
    /// rows, which it lowers by those that were looked at.
    pub fn squared_distance(&self, [x, y, z]: [usize; 3], left: &mut usize) -> Option<f32> {
        let [nx, ny, nz] = self.size;
        let [sx, sy, sz] = self.spacing;
        let square = |spacing: f64, steps: usize| (spacing * steps as f64).powi(2);
        let mut best = f64::INFINITY;
        let mut look = |y: usize, z: usize, across: f64| {
            if across < best {
                let steps = self.steps[(z * ny + y) * nx + x];
                if steps != NONE {
                    best = best.min(square(sx, steps as usize) + across);
                }
            }
            best
        };
        // Squares of rows around the point, each farther away than the last.
        for ring in 0..ny.max(nz) {
            if look(y, z, 0.0) <= square(sy.min(sz), ring) {
                break;
            }
            *left = left.checked_sub(8 * ring)?;
            for dz in 0..=ring.min(nz) {
                // Whole sides far along z, the two ends elsewhere.
                let first = if dz == ring { 0 } else { ring };
                for dy in first..=ring {
                    let across = square(sy, dy) + square(sz, dz);
                    for (y, z) in [
                        (y.checked_sub(dy), z.checked_sub(dz)),
                        (y.checked_sub(dy), Some(z + dz)),
                        (Some(y + dy), z.checked_sub(dz)),
                        (Some(y + dy), Some(z + dz)),
                    ] {
                        if let (Some(y), Some(z)) = (y, z)
                            && y < ny
                            && z < nz
                        {
                            look(y, z, across);
                        }
                    }
                }
            }
        }
        Some(best as f32)
    }
}

fn sweep(row: &mut [u32], codes: &[u8]) {
    let mut far = NONE;
    for (steps, &code) in row.iter_mut().zip(codes) {
        far = if is_surface(code) { 0 } else { far.saturating_add(1) };
        *steps = far;
    }
    let mut far = NONE;
    for steps in row.iter_mut().rev() {
        far = if *steps == 0 { 0 } else { far.saturating_add(1) };
        *steps = far.min(*steps);
    }
}
