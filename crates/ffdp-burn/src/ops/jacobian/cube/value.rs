//! The determinants, or the sum of what they lack to the margin; everything in registers.

use cubecl::prelude::*;

use super::matrix::{COMPONENTS, cross, dot, per_distance, row};
use ffdp_kit::launch::{Extent, sum_over_cube};
use ffdp_kit::march::{Tile, column, load, neighbours, plane, rows, shift};

/// Neighbours along x are read again, so no margin.
pub(super) const TILE: Tile = Tile { units_x: 64, rows: 4, margin: 0, row_margin: 0 };

/// `output`: the determinants; for the penalty `partials[cube]`, the sum of `max(0, margin - det)`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn determinant_kernel(
    field: &[f32],
    output: &mut [f32],
    size: Extent,
    chunk: u32,
    margin: f32,
    #[comptime] is_penalty: bool,
) {
    let own = comptime!(TILE.rows as usize);
    let count = comptime!(own + 2);
    let all = comptime!(COMPONENTS * count);
    let at = column(&size, chunk, TILE);
    let len = size.d as usize * size.h as usize * size.w as usize;
    let first = at.volume * comptime!(COMPONENTS as u32);
    let offsets = rows(&size, &at, comptime!(-1), count);
    let neighbours = neighbours(&size, &at);
    let scale_x = per_distance(at.x, size.w);

    let mut behind = Array::<f32>::new(all);
    let mut here = Array::<f32>::new(all);
    let mut ahead = Array::<f32>::new(all);
    let mut coming = Array::<f32>::new(all);
    let mut left = Array::<f32>::new(all);
    let mut right = Array::<f32>::new(all);
    let mut z = at.start;
    load(field, &mut behind, &offsets, plane(&size, first, z - 1), len, COMPONENTS, count);
    load(field, &mut here, &offsets, plane(&size, first, z), len, COMPONENTS, count);
    load(field, &mut ahead, &offsets, plane(&size, first, z + 1), len, COMPONENTS, count);
    // Kahan: a column has thousands of terms.
    let mut total = 0.0f32;
    let mut lost = 0.0f32;
    while z < at.stop {
        load(field, &mut coming, &offsets, plane(&size, first, z + 2), len, COMPONENTS, count);
        let this = plane(&size, first, z);
        load(field, &mut left, &offsets, this - neighbours.left, len, COMPONENTS, count);
        load(field, &mut right, &offsets, this + neighbours.right, len, COMPONENTS, count);
        let scale_z = per_distance(z, size.d);
        let mut sum = 0.0f32;
        #[unroll]
        for j in 0..own {
            let y = at.y + comptime!(j as i32);
            let i = comptime!(j + 1);
            let scale_y = per_distance(y, size.h);
            let along_x = row(&right, &left, scale_x, 0u32, comptime!((i, i)), count);
            let along_y = row(&here, &here, scale_y, 1u32, comptime!((i + 1, j)), count);
            let along_z = row(&ahead, &behind, scale_z, 2u32, comptime!((i, i)), count);
            let det = dot(&along_x, &cross(&along_y, &along_z));
            if at.writes && y < size.h as i32 {
                if is_penalty {
                    sum += max(0.0f32, margin - det);
                } else {
                    output[plane(&size, at.volume, z) + offsets[i]] = det;
                }
            }
        }
        if is_penalty {
            let term = sum - lost;
            let longer = total + term;
            lost = (longer - total) - term;
            total = longer;
        }
        shift(&mut behind, &here, all);
        shift(&mut here, &ahead, all);
        shift(&mut ahead, &coming, all);
        z += 1;
    }
    if is_penalty {
        let total = sum_over_cube(total);
        if UNIT_POS == 0 {
            let cube = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) * CUBE_COUNT_X + CUBE_POS_X;
            output[cube as usize] = total;
        }
    }
}
