//! Votes of any kernel.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::march::{Tiles, ask, look, march_of, own_map, tasks};
use crate::ops::grid_sample::cube::{SamplePlan, Space};
use crate::ops::joint_histogram::cube::Plan;
use crate::ops::joint_histogram::cube::parzen::Shape;
use crate::ops::joint_histogram::cube::votes::{bring_in, empty_table, no_harvest, reap, vote};
use ffdp_kit::launch::Extent;

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
    #[comptime] ahead: u32,
    #[comptime] plan: Plan,
    #[comptime] sampling: SamplePlan,
    #[define(A, B)] _kinds: [ElemType; 2],
) {
    let table = empty_table(plan);
    let mut harvest = no_harvest(plan);
    let base = CUBE_POS_Y as usize * comptime!(2 * plan.cells() as usize);
    let map = own_map(affine, &space, sampling);
    let one = comptime!(1u32 << plan.places());
    let mut seen = 0u32;
    let mut task = CUBE_POS_X;
    while task < tasks(&tiles) {
        let mut march = march_of(coefficients, tables, &space.output, &controls, &tiles, task);
        let mut z = march.start;
        while z < march.stop {
            let asked = ask(
                &mut march,
                fixed,
                moving,
                coefficients,
                tables,
                &map,
                &space,
                &controls,
                z,
                ahead,
                sampling,
            );
            #[unroll]
            for k in 0..ahead {
                if march.exists && z + k < march.stop {
                    let shown = look(&asked, k).value;
                    let units = one.runtime();
                    let stays = asked.fixed[k as usize];
                    vote(&table, totals, base, shown, stays, units, &shape, plan);
                }
            }
            z += ahead;
            if comptime!(plan.every > 0) {
                seen += ahead;
                // The next planes must have room.
                if seen > comptime!(4 * plan.every - ahead) {
                    seen = 0u32;
                    reap(&table, &mut harvest, plan);
                }
            }
        }
        task += CUBE_COUNT_X;
    }
    bring_in(&table, &mut harvest, totals, base, plan);
}
