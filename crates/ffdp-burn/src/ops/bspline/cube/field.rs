//! The dense field: a column of voxels a unit, four control planes in registers.

use cubecl::prelude::*;

use super::ENTRY;
use crate::ops::launch::Extent;

/// The four control points around a position along x or y: where they lie, and their weights.
#[derive(CubeType)]
struct Around {
    at: Array<usize>,
    weight: Array<f32>,
}

/// Of position `p` of the axis whose table begins at `table`; `stride` elements between control points,
/// the last of `controls` for those that do not exist, whose weight is 0.
#[cube]
fn around(tables: &[f32], table: usize, p: u32, controls: u32, stride: usize) -> Around {
    let mut at = Array::<usize>::new(4usize);
    let mut weight = Array::<f32>::new(4usize);
    let entry = table + p as usize * comptime!(ENTRY);
    let first = u32::cast_from(tables[entry]);
    #[unroll]
    for tap in 0..4u32 {
        at[tap as usize] = min(first + tap, controls - 1) as usize * stride;
        weight[tap as usize] = tables[entry + comptime!(tap as usize + 1)];
    }
    Around { at, weight }
}

/// What control plane `k` says about a column: the paper's `phi~`, Eq. 11.
#[cube]
fn plane_at(coefficients: &[f32], plane: usize, x: &Around, y: &Around) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for m in 0..4usize {
        let row = plane + y.at[m];
        let mut along = 0.0f32;
        #[unroll]
        for l in 0..4usize {
            along += x.weight[l] * coefficients[row + x.at[l]];
        }
        sum += y.weight[m] * along;
    }
    sum
}

/// `together` components of `chunk` voxels of a column.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn field_kernel(
    coefficients: &[f32],
    tables: &[f32],
    output: &mut [f32],
    size: Extent,
    controls: Extent,
    chunk: u32,
    #[comptime] together: u32,
) {
    let (x, y) = (ABSOLUTE_POS_X, ABSOLUTE_POS_Y);
    if x >= size.w || y >= size.h {
        terminate!();
    }
    let chunks = size.d.div_ceil(chunk);
    let group = (CUBE_POS_Z / chunks) as usize * comptime!(together as usize);
    let start = (CUBE_POS_Z % chunks) * chunk;
    let stop = min(start + chunk, size.d);

    let table_y = size.w as usize * comptime!(ENTRY);
    let table_z = table_y + size.h as usize * comptime!(ENTRY);
    let around_x = around(tables, 0usize, x, controls.w, 1usize);
    let around_y = around(tables, table_y, y, controls.h, controls.w as usize);
    let control_area = controls.h as usize * controls.w as usize;
    let volume = control_area * controls.d as usize;
    let area = size.h as usize * size.w as usize;
    let len = area * size.d as usize;

    // The planes held .. held + 4, four for each component.
    let mut planes = Array::<f32>::new(comptime!(4 * together as usize));
    let mut held = u32::cast_from(tables[table_z + start as usize * comptime!(ENTRY)]);
    #[unroll]
    for k in 0..4u32 {
        let plane = min(held + k, controls.d - 1) as usize * control_area;
        #[unroll]
        for c in 0..together {
            let base = (group + comptime!(c as usize)) * volume + plane;
            planes[comptime!((4 * c + k) as usize)] =
                plane_at(coefficients, base, &around_x, &around_y);
        }
    }
    let mut voxel = group * len + start as usize * area + y as usize * size.w as usize + x as usize;
    let mut z = start;
    while z < stop {
        let entry = table_z + z as usize * comptime!(ENTRY);
        let first = u32::cast_from(tables[entry]);
        while held < first {
            let plane = min(held + 4, controls.d - 1) as usize * control_area;
            #[unroll]
            for c in 0..together {
                #[unroll]
                for k in 0..3u32 {
                    let next = planes[comptime!((4 * c + k + 1) as usize)];
                    planes[comptime!((4 * c + k) as usize)] = next;
                }
                let base = (group + comptime!(c as usize)) * volume + plane;
                planes[comptime!((4 * c + 3) as usize)] =
                    plane_at(coefficients, base, &around_x, &around_y);
            }
            held += 1;
        }
        #[unroll]
        for c in 0..together {
            let mut sum = 0.0f32;
            #[unroll]
            for k in 0..4u32 {
                sum += tables[entry + comptime!(k as usize + 1)]
                    * planes[comptime!((4 * c + k) as usize)];
            }
            output[voxel + comptime!(c as usize) * len] = sum;
        }
        voxel += area;
        z += 1;
    }
}
