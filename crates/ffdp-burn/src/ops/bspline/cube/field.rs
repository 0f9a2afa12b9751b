//! The dense field: a column of voxels a unit.

use cubecl::prelude::*;

use super::column::{column_at, component, march_to};
use ffdp_kit::launch::Extent;

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

    let volume = controls.d as usize * controls.h as usize * controls.w as usize;
    let area = size.h as usize * size.w as usize;
    let len = area * size.d as usize;
    let first = group * volume;
    let mut column =
        column_at(coefficients, tables, &size, &controls, first, x, y, start, together);
    let mut voxel = group * len + start as usize * area + y as usize * size.w as usize + x as usize;
    for z in start..stop {
        let entry = march_to(&mut column, coefficients, tables, &controls, z, together);
        #[unroll]
        for c in 0..together {
            output[voxel + comptime!(c as usize) * len] = component(&column, tables, entry, c);
        }
        voxel += area;
    }
}
