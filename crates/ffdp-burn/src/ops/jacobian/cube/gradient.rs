//! The gradient: each voxel passes the cofactors of its Jacobian, times `dL/d det`, to both ends of
//! its differences; who is at an end takes them, so no atomics.
//!
//! ```text
//! P_ac(q) = g(q) C_ac(q) / distance_a(q)
//! dL/du_c(p) = sum_a P_ac(p - e_a) - P_ac(p + e_a)
//! ```
//! At the border a difference ends at its own voxel: there `-P(p)` stands for the missing
//! `P(p - e)` and for the missing `P(p + e)`.

use cubecl::prelude::*;

use super::matrix::{COMPONENTS, component, cross, dot, per_distance, row};
use ffdp_kit::launch::{Extent, UNITS};
use ffdp_kit::march::{Tile, column, load, neighbours, plane, rows, shift};

/// A column and a row on either side pass on what they have, and are written by other cubes.
pub(super) const TILE: Tile = Tile { units_x: 32, rows: 2, margin: 1, row_margin: 1 };

/// What the penalty's gradient needs.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Hinge {
    margin: f32,
    /// One over the number of voxels.
    mean: f32,
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn gradient_kernel(
    field: &[f32],
    grad: &[f32],
    output: &mut [f32],
    size: Extent,
    chunk: u32,
    hinge: Hinge,
    #[comptime] is_penalty: bool,
) {
    let (own, pitch, words) = comptime!((TILE.rows as usize, TILE.units_x, TILE.words()));
    let count = comptime!(own + 2);
    let all = comptime!(COMPONENTS * count);
    let at = column(&size, chunk, TILE);
    let (w, h, d) = (size.w as i32, size.h as i32, size.d as i32);
    let len = size.d as usize * size.h as usize * size.w as usize;
    let first = at.volume * comptime!(COMPONENTS as u32);
    let offsets = rows(&size, &at, comptime!(-1), count);
    let neighbours = neighbours(&size, &at);
    let scale_x = per_distance(at.x, size.w);
    // What is taken from the left, from the right, and of the own at the border.
    let take_left = select(at.x > 0, 1.0f32, 0.0f32);
    let take_right = select(at.x + 1 < w, -1.0f32, 0.0f32);
    let take_own = select(at.x == 0, -1.0f32, 0.0f32) + select(at.x + 1 == w, 1.0f32, 0.0f32);
    let group = UNIT_POS / pitch;
    let unit_below = select(group > 0, UNIT_POS - pitch, UNIT_POS);
    let unit_above = select(group + 1 < comptime!(TILE.groups()), UNIT_POS + pitch, UNIT_POS);

    // Two planes, alternating, component after component: what is passed on along x, and along y by
    // the first and the last row of each unit.
    let mut passed_x = Shared::<[f32]>::new_slice(comptime!(2 * COMPONENTS * words as usize));
    let mut passed_y = Shared::<[f32]>::new_slice(comptime!(4 * COMPONENTS * UNITS as usize));
    let mut turn = 0u32;
    let mut behind = Array::<f32>::new(all);
    let mut here = Array::<f32>::new(all);
    let mut ahead = Array::<f32>::new(all);
    let mut coming = Array::<f32>::new(all);
    let mut left = Array::<f32>::new(all);
    let mut right = Array::<f32>::new(all);
    // Along y and z in the plane here; along z in the one behind; the gradient so far.
    let mut along_y = Array::<f32>::new(comptime!(COMPONENTS * own));
    let mut from_behind = Array::<f32>::new(comptime!(COMPONENTS * own));
    let mut sums = Array::<f32>::new(comptime!(COMPONENTS * own));
    #[unroll]
    for i in 0..COMPONENTS * own {
        from_behind[i] = 0.0f32;
        sums[i] = 0.0f32;
    }
    let mut z = at.start - 1;
    load(field, &mut behind, &offsets, plane(&size, first, z - 1), len, COMPONENTS, count);
    load(field, &mut here, &offsets, plane(&size, first, z), len, COMPONENTS, count);
    load(field, &mut ahead, &offsets, plane(&size, first, z + 1), len, COMPONENTS, count);
    while z <= at.stop {
        load(field, &mut coming, &offsets, plane(&size, first, z + 2), len, COMPONENTS, count);
        let this = plane(&size, first, z);
        load(field, &mut left, &offsets, this - neighbours.left, len, COMPONENTS, count);
        load(field, &mut right, &offsets, this + neighbours.right, len, COMPONENTS, count);
        let plane_behind = plane(&size, first, z - 1);
        let scale_z = per_distance(z, size.d);
        let slot = at.slot + turn * comptime!(COMPONENTS as u32 * words);
        let seam = turn * comptime!(2 * COMPONENTS as u32 * UNITS);
        #[unroll]
        for j in 0..own {
            let i = comptime!(j + 1);
            let y = at.y + comptime!(j as i32);
            let scale_y = per_distance(y, size.h);
            let x_row = row(&right, &left, scale_x, 0u32, comptime!((i, i)), count);
            let y_row = row(&here, &here, scale_y, 1u32, comptime!((i + 1, j)), count);
            let z_row = row(&ahead, &behind, scale_z, 2u32, comptime!((i, i)), count);
            let of_x = cross(&y_row, &z_row);
            let of_y = cross(&z_row, &x_row);
            let of_z = cross(&x_row, &y_row);
            let g = if is_penalty {
                let det = dot(&x_row, &of_x);
                select(det < hinge.margin, -grad[0] * hinge.mean, 0.0f32)
            } else {
                grad[plane(&size, at.volume, z) + offsets[i]]
            };
            let (gx, gy, gz) = (g * scale_x, g * scale_y, g * scale_z);
            let row_of_tile = group * comptime!(TILE.rows) + comptime!(j as u32);
            let own_row = row_of_tile > 0 && row_of_tile + 1 < comptime!(TILE.groups() * TILE.rows);
            let exists = at.writes && own_row && y < h && z > at.start;
            #[unroll]
            for c in 0..COMPONENTS {
                let n = comptime!(c * own + j);
                let px = gx * component(&of_x, c);
                let py = gy * component(&of_y, c);
                let pz = gz * component(&of_z, c);
                // The plane behind is complete but for what comes from here.
                if exists {
                    let from_here = select(z < d, pz, -from_behind[n]);
                    output[plane_behind + c * len + offsets[i]] = sums[n] - from_here;
                }
                sums[n] = take_own * px + select(z > 0, from_behind[n], -pz);
                from_behind[n] = pz;
                along_y[n] = py;
                passed_x[(slot + comptime!(c as u32 * words + j as u32 * pitch)) as usize] = px;
                if comptime!(j == 0) {
                    passed_y[(seam + comptime!(c as u32 * UNITS) + UNIT_POS) as usize] = py;
                }
                if comptime!(j + 1 == own) {
                    let last = comptime!((COMPONENTS + c) as u32 * UNITS);
                    passed_y[(seam + last + UNIT_POS) as usize] = py;
                }
            }
        }
        sync_cube();
        if at.writes {
            #[unroll]
            for c in 0..COMPONENTS {
                let last = comptime!((COMPONENTS + c) as u32 * UNITS);
                let below = passed_y[(seam + last + unit_below) as usize];
                let above = passed_y[(seam + comptime!(c as u32 * UNITS) + unit_above) as usize];
                #[unroll]
                for j in 0..own {
                    let n = comptime!(c * own + j);
                    let y = at.y + comptime!(j as i32);
                    let place = slot + comptime!(c as u32 * words + j as u32 * pitch);
                    let from_left = take_left * passed_x[(place - 1) as usize];
                    let from_right = take_right * passed_x[(place + 1) as usize];
                    let mut from_below = below;
                    let mut from_above = above;
                    if comptime!(j > 0) {
                        from_below = along_y[comptime!(n - 1)];
                    }
                    if comptime!(j + 1 < own) {
                        from_above = along_y[comptime!(n + 1)];
                    }
                    from_below = select(y > 0, from_below, -along_y[n]);
                    from_above = select(y + 1 < h, from_above, -along_y[n]);
                    sums[n] += from_left + from_right + from_below - from_above;
                }
            }
        }
        shift(&mut behind, &here, all);
        shift(&mut here, &ahead, all);
        shift(&mut ahead, &coming, all);
        turn = 1 - turn;
        z += 1;
    }
}
