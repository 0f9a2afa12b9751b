//! The roughness itself: squares of differences, plane by plane, everything in registers.

use cubecl::prelude::*;

use super::{Kind, Numbers, between_neighbours};
use ffdp_kit::launch::{Extent, sum_over_cube};
use ffdp_kit::march::{Tile, column, load, neighbours, plane, rows, shift};

/// Four rows a unit, no margin: neighbours along x are read again.
pub(super) const TILE: Tile = Tile { units_x: 64, rows: 4, margin: 0, row_margin: 0 };

/// `partials[cube]`: the sum over the columns of a cube.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn value_kernel(
    field: &[f32],
    partials: &mut [f32],
    size: Extent,
    chunk: u32,
    numbers: Numbers,
    #[comptime] kind: Kind,
) {
    let own = comptime!(TILE.rows as usize);
    let bends = comptime!(kind == Kind::Bending);
    // Total variation needs the three components together.
    let channels = comptime!(if kind == Kind::TotalVariation { 3usize } else { 1usize });
    // A row above the own ones, and for second differences one below.
    let below = comptime!(if bends { 1usize } else { 0usize });
    let count = comptime!(own + 1 + below);
    let all = comptime!(channels * count);
    let at = column(&size, chunk, TILE);
    let len = size.d as usize * size.h as usize * size.w as usize;
    let first = at.volume * comptime!(channels as u32);
    let offsets = rows(&size, &at, comptime!(-(below as i32)), count);
    let neighbours = neighbours(&size, &at);
    let weight_x = between_neighbours(at.x, size.w, numbers.x);

    let mut behind = Array::<f32>::new(all);
    let mut here = Array::<f32>::new(all);
    let mut ahead = Array::<f32>::new(all);
    let mut coming = Array::<f32>::new(all);
    // Differences along x in the planes here and ahead.
    let mut slopes = Array::<f32>::new(all);
    let mut slopes_ahead = Array::<f32>::new(all);
    let mut z = at.start;
    load(field, &mut behind, &offsets, plane(&size, first, z - 1), len, channels, count);
    load(field, &mut here, &offsets, plane(&size, first, z), len, channels, count);
    load(field, &mut ahead, &offsets, plane(&size, first, z + 1), len, channels, count);
    #[unroll]
    for i in 0..all {
        let right = plane(&size, first, z) + comptime!(i / count) * len + neighbours.right;
        slopes[i] = field[right + offsets[comptime!(i % count)]] - here[i];
    }

    // Kahan: a column has thousands of terms.
    let mut total = 0.0f32;
    let mut lost = 0.0f32;
    while z < at.stop {
        load(field, &mut coming, &offsets, plane(&size, first, z + 2), len, channels, count);
        let this = plane(&size, first, z);
        let next = plane(&size, first, z + 1);
        #[unroll]
        for i in 0..all {
            let right = next + comptime!(i / count) * len + neighbours.right;
            slopes_ahead[i] = field[right + offsets[comptime!(i % count)]] - ahead[i];
        }
        let weight_z = between_neighbours(z, size.d, numbers.z);
        let mut sum = 0.0f32;
        #[unroll]
        for j in 0..own {
            let y = at.y + comptime!(j as i32);
            let mut squares = 0.0f32;
            #[unroll]
            for c in 0..channels {
                let i = comptime!(c * count + j + below);
                let u = here[i];
                let dx = slopes[i];
                let dy = here[comptime!(i + 1)] - u;
                let dz = ahead[i] - u;
                if bends {
                    let left = field[this + offsets[comptime!(j + below)] - neighbours.left];
                    let xx = dx - (u - left);
                    let yy = dy - (u - here[comptime!(i - below)]);
                    let zz = dz - (u - behind[i]);
                    let weight_y = between_neighbours(y, size.h, numbers.y);
                    squares += weight_x * xx * xx + weight_y * yy * yy + weight_z * zz * zz;
                    let xy = slopes[comptime!(i + 1)] - dx;
                    let xz = slopes_ahead[i] - dx;
                    let yz = ahead[comptime!(i + 1)] - ahead[i] - dy;
                    squares += numbers.xy * xy * xy + numbers.xz * xz * xz + numbers.yz * yz * yz;
                } else if comptime!(kind == Kind::Diffusion) {
                    squares += numbers.x * dx * dx + numbers.y * dy * dy + numbers.z * dz * dz;
                } else {
                    squares += dx * dx + dy * dy + dz * dz;
                }
            }
            if comptime!(kind == Kind::TotalVariation) {
                // sqrt(s + e^2) - e, without the cancellation.
                let epsilon = numbers.epsilon;
                let length = (squares + epsilon * epsilon).sqrt() + epsilon;
                squares = numbers.x * (squares / length);
            }
            sum += select(at.writes && y < size.h as i32, squares, 0.0f32);
        }
        let term = sum - lost;
        let longer = total + term;
        lost = (longer - total) - term;
        total = longer;
        if bends {
            shift(&mut behind, &here, all);
        }
        shift(&mut here, &ahead, all);
        shift(&mut ahead, &coming, all);
        shift(&mut slopes, &slopes_ahead, all);
        z += 1;
    }
    let total = sum_over_cube(total);
    if UNIT_POS == 0 {
        let cube = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) * CUBE_COUNT_X + CUBE_POS_X;
        partials[cube as usize] = total;
    }
}
