//! Votes of any kernel.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::march::{Tiles, march_of, own_map, position_at, tasks, value_at};
use crate::ops::grid_sample::cube::{SamplePlan, Space, len};
use crate::ops::joint_histogram::cube::Plan;
use crate::ops::joint_histogram::cube::parzen::Shape;
use crate::ops::joint_histogram::cube::votes::{bring_in, empty_table, no_harvest, reap, vote};
use crate::ops::launch::Extent;

/// Adds the voxels of volume `CUBE_POS_Y` to its totals.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn votes_kernel<A: Float, B: Float>(
    fixed: &[B],
    moving: &[A],
    affine: &[f32],
    coefficients: &[f32],
    tables: &[f32],
    totals: &[Atomic<u32>],
    space: Space,
    controls: Extent,
    shape: Shape,
    tiles: Tiles,
    #[comptime] plan: Plan,
    #[comptime] sampling: SamplePlan,
    #[define(A, B)] _kinds: [ElemType; 2],
) {
    let table = empty_table(plan);
    let mut harvest = no_harvest(plan);
    let base = CUBE_POS_Y as usize * comptime!(2 * plan.cells() as usize);
    let size = &space.output;
    let volume = CUBE_POS_Y as usize * len(size);
    let map = own_map(affine, &space, sampling);
    let one = comptime!(1u32 << plan.places());
    let mut seen = 0u32;
    let mut task = CUBE_POS_X;
    while task < tasks(&tiles) {
        let mut march = march_of(coefficients, tables, size, &controls, &tiles, task);
        let area = size.h as usize * size.w as usize;
        let first = volume + march.y as usize * size.w as usize + march.x as usize;
        for z in march.start..march.stop {
            let at =
                position_at(&mut march, coefficients, tables, &map, &space, &controls, z, sampling);
            if march.exists {
                let shown = value_at(moving, &space, &at, sampling);
                let stays = f32::cast_from(fixed[first + z as usize * area]);
                let units = one.runtime();
                vote(&table, totals, base, shown, stays, units, &shape, plan);
            }
            if comptime!(plan.every > 0) {
                seen += 1u32;
                if seen == comptime!(4 * plan.every) {
                    seen = 0u32;
                    reap(&table, &mut harvest, plan);
                }
            }
        }
        task += CUBE_COUNT_X;
    }
    bring_in(&table, &mut harvest, totals, base, plan);
}
