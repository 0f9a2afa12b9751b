//! A march along a column of voxels that keeps what the four control planes around it say in registers: the paper's
//! `phi~`, Eq. 10 and 11. Whoever needs the field of control points voxel by voxel, and not in memory, marches.

use cubecl::prelude::*;

use super::ENTRY;
use ffdp_kit::launch::Extent;

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

/// What control plane `k` says about a column.
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

/// A column of voxels, and what the four control planes around the march say of some components.
#[derive(CubeType)]
pub(crate) struct Column {
    x: Around,
    y: Around,
    /// Of the planes `held .. held + 4`, four for each component.
    planes: Array<f32>,
    held: u32,
    /// The coefficients of the first component.
    first: usize,
    /// Where the table of z begins.
    table: usize,
}

/// The column at (x, y), with the planes around voxel `start`; of the components from element `first` of the
/// coefficients on.
#[cube]
pub(crate) fn column_at(
    coefficients: &[f32],
    tables: &[f32],
    size: &Extent,
    controls: &Extent,
    first: usize,
    x: u32,
    y: u32,
    start: u32,
    #[comptime] together: u32,
) -> Column {
    let table_y = size.w as usize * comptime!(ENTRY);
    let table_z = table_y + size.h as usize * comptime!(ENTRY);
    let around_x = around(tables, 0usize, x, controls.w, 1usize);
    let around_y = around(tables, table_y, y, controls.h, controls.w as usize);
    let area = controls.h as usize * controls.w as usize;
    let volume = area * controls.d as usize;
    let mut planes = Array::<f32>::new(comptime!(4 * together as usize));
    let held = u32::cast_from(tables[table_z + start as usize * comptime!(ENTRY)]);
    #[unroll]
    for k in 0..4u32 {
        let plane = min(held + k, controls.d - 1) as usize * area;
        #[unroll]
        for c in 0..together {
            let base = first + comptime!(c as usize) * volume + plane;
            planes[comptime!((4 * c + k) as usize)] =
                plane_at(coefficients, base, &around_x, &around_y);
        }
    }
    Column { x: around_x, y: around_y, planes, held, first, table: table_z }
}

/// On to voxel `z`, above the one before or the same; the entry of the table there.
#[cube]
pub(crate) fn march_to(
    column: &mut Column,
    coefficients: &[f32],
    tables: &[f32],
    controls: &Extent,
    z: u32,
    #[comptime] together: u32,
) -> usize {
    let entry = column.table + z as usize * comptime!(ENTRY);
    let first = u32::cast_from(tables[entry]);
    let area = controls.h as usize * controls.w as usize;
    let volume = area * controls.d as usize;
    while column.held < first {
        let plane = min(column.held + 4, controls.d - 1) as usize * area;
        #[unroll]
        for c in 0..together {
            #[unroll]
            for k in 0..3u32 {
                let next = column.planes[comptime!((4 * c + k + 1) as usize)];
                column.planes[comptime!((4 * c + k) as usize)] = next;
            }
            let base = column.first + comptime!(c as usize) * volume + plane;
            column.planes[comptime!((4 * c + 3) as usize)] =
                plane_at(coefficients, base, &column.x, &column.y);
        }
        column.held += 1u32;
    }
    entry
}

/// Component `c` where the march has come to.
#[cube]
pub(crate) fn component(column: &Column, tables: &[f32], entry: usize, #[comptime] c: u32) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for k in 0..4u32 {
        sum += tables[entry + comptime!(k as usize + 1)]
            * column.planes[comptime!((4 * c + k) as usize)];
    }
    sum
}
