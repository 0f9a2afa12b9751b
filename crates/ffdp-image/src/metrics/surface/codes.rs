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

/// The corners of a row that the surface passes through, and their codes.
pub(super) fn surface_of(row: &[u8]) -> impl Iterator<Item = (usize, u8)> + '_ {
    const LANES: usize = 8;
    // Most corners lie far from it, and so do those around them.
    let is_far = |codes: &[u8]| {
        let all = codes.try_into().map(u64::from_ne_bytes);
        all.is_ok_and(|all| all == 0 || all == u64::MAX)
    };
    let lanes = row.chunks(LANES).enumerate().filter(move |(_, codes)| !is_far(codes));
    lanes.flat_map(|(lane, codes)| {
        let corners = codes.iter().enumerate().filter(|(_, code)| is_surface(**code));
        corners.map(move |(x, &code)| (lane * LANES + x, code))
    })
}

pub(super) fn is_surface(code: u8) -> bool {
    code != 0 && code != u8::MAX
}

/// Marks the corners around each voxel of a row with the label.
fn add_voxels(corners: &mut [u8], voxels: &[i32], label: i32, [dy, dz]: [usize; 2]) {
    let (behind, ahead) = (1u8 << bit([0, dy, dz]), 1u8 << bit([1, dy, dz]));
    // Voxel x lies ahead of corner x and behind corner x + 1: one after the other, which is done in lanes.
    for (first, mark) in [(0, ahead), (1, behind)] {
        for (corner, &voxel) in corners[first..].iter_mut().zip(voxels) {
            *corner |= if voxel == label { mark } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_of_a_surface_are_found_whatever_lies_around_them() {
        // Alone in its lanes, next to others, at both ends, and in what is left of a row.
        let codes = |length: usize, seed: usize| {
            let code = |x: usize| match (x * 7 + seed) % 19 {
                0 => 1,
                1 => 254,
                other => {
                    if (x / 11 + other / 17).is_multiple_of(2) {
                        0
                    } else {
                        u8::MAX
                    }
                }
            };
            (0..length).map(code).collect::<Vec<u8>>()
        };
        for (length, seed) in (0..40).flat_map(|length| (0..19).map(move |seed| (length, seed))) {
            let row = codes(length, seed);
            let expected = row.iter().copied().enumerate().filter(|(_, code)| is_surface(*code));
            assert!(surface_of(&row).eq(expected), "{row:?}");
        }
        assert_eq!(surface_of(&[0, 0, 0, 0, 0, 0, 0, 255]).count(), 0);
        assert_eq!(surface_of(&[9; 8]).count(), 8);
    }
}
