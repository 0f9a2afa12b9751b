//! Which voxels around each voxel corner lie inside a label.

use rayon::prelude::*;

use super::boxes::Box3;
use super::surfel::bit;

/// The codes of [`surfel_areas`](super::surfel::surfel_areas) at the corners of a box of voxels,
/// `[D + 1, H + 1, W + 1]`: corner (i, j, k) lies between the voxels i - 1 and i of the box. What is
/// outside the box counts as outside the label, so that a label ends where the image does.
pub(super) struct Codes {
    pub data: Vec<u8>,
    /// Corners along (x, y, z).
    pub size: [usize; 3],
}

impl Codes {
    pub fn of(label: i32, labels: &[i32], size: [usize; 3], within: Box3) -> Self {
        let [nx, ny, nz] = within.size().map(|n| n + 1);
        let mut data = vec![0u8; nx * ny * nz];
        data.par_chunks_mut(nx * ny).enumerate().for_each(|(k, plane)| {
            for (j, row) in plane.chunks_mut(nx).enumerate() {
                // The four voxel rows that meet in this row of corners.
                for (dy, dz) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                    let (y, z) = (j + dy, k + dz);
                    if (1..ny).contains(&y) && (1..nz).contains(&z) {
                        let (y, z) = (within.low[1] + y - 1, within.low[2] + z - 1);
                        let start = (z * size[1] + y) * size[0] + within.low[0];
                        add_voxels(row, &labels[start..][..nx - 1], label, [dy, dz]);
                    }
                }
            }
        });
        Self { data, size: [nx, ny, nz] }
    }

    /// Whether the surface passes through a corner.
    pub fn is_surface(&self, offset: usize) -> bool {
        is_surface(self.data[offset])
    }

    pub fn row(&self, y: usize, z: usize) -> &[u8] {
        let [nx, ny, _] = self.size;
        &self.data[(z * ny + y) * nx..][..nx]
    }
}

pub(super) fn is_surface(code: u8) -> bool {
    code != 0 && code != u8::MAX
}

/// Marks the corners around each voxel of a row with the label.
fn add_voxels(corners: &mut [u8], voxels: &[i32], label: i32, [dy, dz]: [usize; 2]) {
    let (behind, ahead) = (1u8 << bit([0, dy, dz]), 1u8 << bit([1, dy, dz]));
    for (x, &voxel) in voxels.iter().enumerate() {
        let inside = u8::from(voxel == label);
        // Voxel x lies ahead of corner x and behind corner x + 1.
        corners[x] |= inside * ahead;
        corners[x + 1] |= inside * behind;
    }
}
