//! The gradients of diffusion and bending energy: linear stencils, one component at a time.
//!
//! With `L_a u = 2 u(p) - u(p - e_a) - u(p + e_a)` and beyond the border the value at the border,
//! `L_a` is the first difference along `a` followed by its adjoint, and `L_a L_b` the mixed second
//! difference followed by its own. The second difference along an axis, `S_a u = -L_a u` where
//! both neighbours exist and 0 elsewhere, is its own adjoint but for that:
//! ```text
//! diffusion         2 sum_a w_a L_a u
//! bending energy    2 sum_a w_a S_a^T S_a u + 2 sum_(a < b) w_ab L_a L_b u
//! ```

use cubecl::prelude::*;

use super::{Numbers, between_neighbours};
use ffdp_kit::launch::Extent;
use ffdp_kit::march::{Tile, column, load, neighbours, plane, rows, shift};

/// Neighbours along x are read again, so no margin.
pub(super) const DIFFUSION: Tile = Tile { units_x: 64, rows: 4, margin: 0, row_margin: 0 };

/// Two neighbours along x on either side.
pub(super) const BENDING: Tile = Tile { units_x: 64, rows: 4, margin: 2, row_margin: 0 };

/// The gradient of diffusion.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn diffusion_kernel(
    field: &[f32],
    grad: &[f32],
    output: &mut [f32],
    size: Extent,
    chunk: u32,
    numbers: Numbers,
) {
    let own = comptime!(DIFFUSION.rows as usize);
    let count = comptime!(own + 2);
    let at = column(&size, chunk, DIFFUSION);
    let scale = 2.0 * grad[0];
    let offsets = rows(&size, &at, comptime!(-1), count);
    let neighbours = neighbours(&size, &at);
    let mut behind = Array::<f32>::new(count);
    let mut here = Array::<f32>::new(count);
    let mut ahead = Array::<f32>::new(count);
    let mut coming = Array::<f32>::new(count);
    let mut z = at.start;
    load(field, &mut behind, &offsets, plane(&size, at.volume, z - 1), 0usize, 1usize, count);
    load(field, &mut here, &offsets, plane(&size, at.volume, z), 0usize, 1usize, count);
    load(field, &mut ahead, &offsets, plane(&size, at.volume, z + 1), 0usize, 1usize, count);
    while z < at.stop {
        load(field, &mut coming, &offsets, plane(&size, at.volume, z + 2), 0usize, 1usize, count);
        let this = plane(&size, at.volume, z);
        #[unroll]
        for j in 0..own {
            let (below, i, above) = comptime!((j, j + 1, j + 2));
            let u = here[i];
            let place = this + offsets[i];
            let lx = (u - field[place - neighbours.left]) - (field[place + neighbours.right] - u);
            let ly = (u - here[below]) - (here[above] - u);
            let lz = (u - behind[i]) - (ahead[i] - u);
            if at.writes && at.y + comptime!(j as i32) < size.h as i32 {
                output[place] = scale * (numbers.x * lx + numbers.y * ly + numbers.z * lz);
            }
        }
        shift(&mut behind, &here, count);
        shift(&mut here, &ahead, count);
        shift(&mut ahead, &coming, count);
        z += 1;
    }
}

/// The gradient of the bending energy. `S_z^T S_z` in transposed form: each plane's second
/// difference is added to the three planes that it belongs to, and completes the one behind.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn bending_kernel(
    field: &[f32],
    grad: &[f32],
    output: &mut [f32],
    size: Extent,
    chunk: u32,
    numbers: Numbers,
) {
    let tile = comptime!(BENDING);
    let (own, pitch, words) = comptime!((tile.rows as usize, tile.units_x, tile.words()));
    // Two rows on either side.
    let count = comptime!(own + 4);
    let at = column(&size, chunk, tile);
    let scale = 2.0 * grad[0];
    let offsets = rows(&size, &at, comptime!(-2), count);
    let (wxy, wxz, wyz) = (scale * numbers.xy, scale * numbers.xz, scale * numbers.yz);
    // S_x^T S_x at this x, from the weights of the second differences around it.
    let left = between_neighbours(at.x - 1, size.w, scale * numbers.x);
    let middle = between_neighbours(at.x, size.w, scale * numbers.x);
    let right = between_neighbours(at.x + 1, size.w, scale * numbers.x);
    let near_left = (left + middle) * (-2.0f32);
    let centre = left + 4.0 * middle + right;
    let near_right = (middle + right) * (-2.0f32);
    // The weights of the second differences along y of the rows from -1 on.
    let mut weights_y = Array::<f32>::new(comptime!(own + 2));
    #[unroll]
    for j in 0..own + 2 {
        let y = at.y + comptime!(j as i32 - 1);
        weights_y[j] = between_neighbours(y, size.h, scale * numbers.y);
    }

    // Two planes, alternating, of u and of what is to be differenced along x.
    let mut values = Shared::<[f32]>::new_slice(comptime!(2 * words as usize));
    let mut mixed = Shared::<[f32]>::new_slice(comptime!(2 * words as usize));
    let mut slot = at.slot;
    let mut behind = Array::<f32>::new(count);
    let mut here = Array::<f32>::new(count);
    let mut ahead = Array::<f32>::new(count);
    let mut coming = Array::<f32>::new(count);
    // -L_y u and -L_z u.
    let mut along_y = Array::<f32>::new(count);
    let mut along_z = Array::<f32>::new(count);
    // The gradient so far of the plane behind, and S_z u there.
    let mut sums = Array::<f32>::new(own);
    let mut second_behind = Array::<f32>::new(own);
    #[unroll]
    for j in 0..own {
        sums[j] = 0.0f32;
        second_behind[j] = 0.0f32;
    }
    let mut z = at.start - 1;
    load(field, &mut behind, &offsets, plane(&size, at.volume, z - 1), 0usize, 1usize, count);
    load(field, &mut here, &offsets, plane(&size, at.volume, z), 0usize, 1usize, count);
    load(field, &mut ahead, &offsets, plane(&size, at.volume, z + 1), 0usize, 1usize, count);
    while z <= at.stop {
        load(field, &mut coming, &offsets, plane(&size, at.volume, z + 2), 0usize, 1usize, count);
        #[unroll]
        for i in 1..count - 1 {
            let u = here[i];
            along_z[i] = (ahead[i] - u) - (u - behind[i]);
            along_y[i] = (here[comptime!(i + 1)] - u) - (u - here[comptime!(i - 1)]);
        }
        #[unroll]
        for j in 0..own {
            let place = (slot + comptime!(j as u32 * pitch)) as usize;
            let i = comptime!(j + 2);
            values[place] = here[i];
            mixed[place] = wxy * along_y[i] + wxz * along_z[i];
        }
        sync_cube();
        if at.writes {
            let weight_z = between_neighbours(z, size.d, numbers.z) * scale;
            let plane_behind = plane(&size, at.volume, z - 1);
            #[unroll]
            for j in 0..own {
                let i = comptime!(j + 2);
                let second = weight_z * along_z[i];
                if z > at.start && at.y + comptime!(j as i32) < size.h as i32 {
                    output[plane_behind + offsets[i]] = sums[j] + second;
                }
                let mut sum = second_behind[j] - 2.0 * second;
                second_behind[j] = second;
                sum += weights_y[j] * along_y[comptime!(i - 1)]
                    - 2.0 * weights_y[comptime!(j + 1)] * along_y[i]
                    + weights_y[comptime!(j + 2)] * along_y[comptime!(i + 1)];
                sum += wyz
                    * (along_z[comptime!(i - 1)] - 2.0 * along_z[i] + along_z[comptime!(i + 1)]);
                let place = slot + comptime!(j as u32 * pitch);
                sum += left * values[(place - 2) as usize]
                    + near_left * values[(place - 1) as usize]
                    + centre * here[i]
                    + near_right * values[(place + 1) as usize]
                    + right * values[(place + 2) as usize];
                sum += mixed[(place - 1) as usize] - 2.0 * mixed[place as usize]
                    + mixed[(place + 1) as usize];
                sums[j] = sum;
            }
        }
        shift(&mut behind, &here, count);
        shift(&mut here, &ahead, count);
        shift(&mut ahead, &coming, count);
        slot = select(slot < words, slot + words, at.slot);
        z += 1;
    }
}
