//! The gradient of the dense field, from the polynomial pieces of the table's gradient: no atomics.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::march::{Tiles, ask, look, march_of, own_map, tasks};
use crate::ops::grid_sample::cube::{SamplePlan, Space, len};
use crate::ops::joint_histogram::cube::Plan;
use crate::ops::joint_histogram::cube::pieces::{Row, fill, to_first};
use ffdp_kit::launch::Extent;

/// `S^T grad M dL/dM` at every voxel of volume `CUBE_POS_Y`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn gradient_kernel<A: Float, B: Float>(
    fixed: &[B],
    moving: &[A],
    affine: &[f32],
    coefficients: &[f32],
    tables: &[f32],
    grad: &[f32],
    output: &mut [f32],
    space: Space,
    controls: Extent,
    tiles: Tiles,
    #[comptime] ahead: u32,
    #[comptime] plan: Plan,
    #[comptime] sampling: SamplePlan,
    #[define(A, B)] _kinds: [ElemType; 2],
) {
    let side = comptime!(plan.inner() + 1);
    let mut rows = Shared::<[Row]>::new_slice(comptime!((3 * side * side) as usize));
    fill(&mut rows, grad, CUBE_POS_Y as usize * comptime!(plan.cells() as usize), 1u32, plan);
    sync_cube();
    let size = &space.output;
    let voxels = len(size);
    let map = own_map(affine, &space, sampling);
    let s = &space.scale;
    let mut task = CUBE_POS_X;
    while task < tasks(&tiles) {
        let mut march = march_of(coefficients, tables, size, &controls, &tiles, task);
        let area = size.h as usize * size.w as usize;
        let first = march.y as usize * size.w as usize + march.x as usize;
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
                    let shown = look(&asked, k);
                    let g = to_first(&rows, shown.value, asked.fixed[k as usize], plan);
                    let (x, y, w) = (g * shown.slope.x, g * shown.slope.y, g * shown.slope.z);
                    let sink = CUBE_POS_Y as usize * 3 * voxels + first + (z + k) as usize * area;
                    output[sink] = s.xx * x + s.yx * y + s.zx * w;
                    output[sink + voxels] = s.xy * x + s.yy * y + s.zy * w;
                    output[sink + 2 * voxels] = s.xz * x + s.yz * y + s.zz * w;
                }
            }
            z += ahead;
        }
        task += CUBE_COUNT_X;
    }
}
