//! The gradient of total variation, where the components meet in one length.
//!
//! ```text
//! k = 1 / sqrt(sum_(a, c) (d_a u_c)^2 + eps^2)
//! dL/du_c(p) = sum_a k(p - e_a) d_a u_c(p - e_a) - k(p) d_a u_c(p)
//! ```

use cubecl::prelude::*;

use super::Numbers;
use ffdp_kit::launch::Extent;
use ffdp_kit::march::{Tile, column, load, neighbours, plane, rows, shift};

/// Each unit takes the difference that its left neighbour passes on.
pub(super) const TILE: Tile = Tile { units_x: 64, rows: 2, margin: 1, row_margin: 0 };

const COMPONENTS: usize = 3;

#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn variation_kernel(
    field: &[f32],
    grad: &[f32],
    output: &mut [f32],
    size: Extent,
    chunk: u32,
    numbers: Numbers,
) {
    let (own, pitch, words) = comptime!((TILE.rows as usize, TILE.units_x, TILE.words()));
    // A row on either side: the one below passes on its difference along y.
    let count = comptime!(own + 2);
    let all = comptime!(COMPONENTS * count);
    let at = column(&size, chunk, TILE);
    let len = size.d as usize * size.h as usize * size.w as usize;
    let first = at.volume * comptime!(COMPONENTS as u32);
    let scale = grad[0] * numbers.x;
    let least = numbers.epsilon * numbers.epsilon;
    let offsets = rows(&size, &at, comptime!(-1), count);
    // At the border the voxel is its own neighbour: the difference beyond it is 0.
    let neighbours = neighbours(&size, &at);

    // Two planes, alternating, of what is passed on along x, component after component.
    let mut passed = Shared::<[f32]>::new_slice(comptime!(2 * COMPONENTS * words as usize));
    let mut slot = at.slot;
    let mut here = Array::<f32>::new(all);
    let mut ahead = Array::<f32>::new(all);
    let mut coming = Array::<f32>::new(all);
    let mut right = Array::<f32>::new(all);
    // 1 / length of the rows from -1 on.
    let mut stiffness = Array::<f32>::new(comptime!(own + 1));
    let mut sums = Array::<f32>::new(comptime!(COMPONENTS * own));
    let mut from_behind = Array::<f32>::new(comptime!(COMPONENTS * own));
    #[unroll]
    for i in 0..COMPONENTS * own {
        from_behind[i] = 0.0f32;
    }
    // The plane before the first passes on its difference along z.
    let mut z = at.start - 1;
    load(field, &mut here, &offsets, plane(&size, first, z), len, COMPONENTS, count);
    load(field, &mut ahead, &offsets, plane(&size, first, z + 1), len, COMPONENTS, count);
    while z < at.stop {
        load(field, &mut coming, &offsets, plane(&size, first, z + 2), len, COMPONENTS, count);
        let this = plane(&size, first, z);
        load(
            field,
            &mut right,
            &offsets,
            this + neighbours.right,
            len,
            COMPONENTS,
            comptime!(own + 1),
        );
        #[unroll]
        for j in 0..own + 1 {
            let mut squares = least;
            #[unroll]
            for c in 0..COMPONENTS {
                let i = comptime!(c * count + j);
                let dx = right[comptime!(c * (own + 1) + j)] - here[i];
                let dy = here[comptime!(i + 1)] - here[i];
                let dz = ahead[i] - here[i];
                squares += dx * dx + dy * dy + dz * dz;
            }
            stiffness[j] = scale / squares.sqrt();
        }
        #[unroll]
        for c in 0..COMPONENTS {
            #[unroll]
            for j in 0..own {
                let i = comptime!(c * count + j + 1);
                let n = comptime!(c * own + j);
                let below = stiffness[j];
                let k = stiffness[comptime!(j + 1)];
                let along_x = k * (right[comptime!(c * (own + 1) + j + 1)] - here[i]);
                let along_y = k * (here[comptime!(i + 1)] - here[i]);
                let along_z = k * (ahead[i] - here[i]);
                let from_below = below * (here[i] - here[comptime!(i - 1)]);
                let place = slot + comptime!(c as u32 * words + j as u32 * pitch);
                passed[place as usize] = along_x;
                sums[n] = from_behind[n] + from_below - along_x - along_y - along_z;
                from_behind[n] = along_z;
            }
        }
        sync_cube();
        if at.writes && z >= at.start {
            #[unroll]
            for c in 0..COMPONENTS {
                #[unroll]
                for j in 0..own {
                    let place = slot + comptime!(c as u32 * words + j as u32 * pitch);
                    if at.y + comptime!(j as i32) < size.h as i32 {
                        let from_left = select(at.x > 0, passed[(place - 1) as usize], 0.0f32);
                        output[this + c * len + offsets[comptime!(j + 1)]] =
                            sums[comptime!(c * own + j)] + from_left;
                    }
                }
            }
        }
        shift(&mut here, &ahead, all);
        shift(&mut ahead, &coming, all);
        let other = comptime!(COMPONENTS as u32 * words);
        slot = select(slot < other, slot + other, at.slot);
        z += 1;
    }
}
