//! The gradients of any kernel: every voxel gathers from the gradient of the table, no atomics.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::Plan;
use super::parzen::{Shape, clamped, place, shares, slopes};

/// The wanted gradients of the voxels of one volume, `CUBE_POS_Y`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn gradient_kernel<A: Float, B: Float>(
    a: &[A],
    b: &[B],
    weights: &[f32],
    grad: &[f32],
    to_a: &mut [f32],
    to_b: &mut [f32],
    shape: Shape,
    len: usize,
    #[comptime] plan: Plan,
    #[comptime] needs: [bool; 2],
    #[define(A, B)] _kinds: [ElemType; 2],
) {
    let (bins, cells) = comptime!((plan.bins, plan.cells()));
    let (wants_a, wants_b) = comptime!((needs[0], needs[1]));
    let copied = comptime!(plan.copies > 0);
    let mut table = Shared::<[f32]>::new_slice(comptime!(if plan.copies > 0 {
        plan.cells() as usize
    } else {
        1usize
    }));
    let base = CUBE_POS_Y as usize * comptime!(plan.cells() as usize);
    if copied {
        let mut cell = UNIT_POS;
        while cell < cells {
            table[cell as usize] = grad[base + cell as usize];
            cell += comptime!(plan.units);
        }
        sync_cube();
    }
    let volume = CUBE_POS_Y as usize * len;
    let mut voxel = CUBE_POS_X as usize * comptime!(plan.units as usize) + UNIT_POS as usize;
    while voxel < len {
        let first = f32::cast_from(a[volume + voxel]);
        let second = f32::cast_from(b[volume + voxel]);
        let row = place(first, plan);
        let column = place(second, plan);
        let along = shares(row.fraction, &shape, plan);
        let across = shares(column.fraction, &shape, plan);
        let steep_along = slopes(first, row.fraction, &shape, plan);
        let steep_across = slopes(second, column.fraction, &shape, plan);
        let mut sum_a = 0.0f32;
        let mut sum_b = 0.0f32;
        #[unroll]
        for i in 0..plan.taps() {
            let start = (row.first + i) * bins + column.first;
            let mut flat = 0.0f32;
            let mut steep = 0.0f32;
            #[unroll]
            for j in 0..plan.taps() {
                let cell = (start + j) as usize;
                let g = if copied { table[cell] } else { grad[base + cell] };
                if comptime!(wants_a) {
                    flat += g * across[j as usize];
                }
                if comptime!(wants_b) {
                    steep += g * steep_across[j as usize];
                }
            }
            sum_a += steep_along[i as usize] * flat;
            sum_b += along[i as usize] * steep;
        }
        if comptime!(plan.weighted) {
            let weight = clamped(weights[volume + voxel]);
            sum_a *= weight;
            sum_b *= weight;
        }
        if comptime!(wants_a) {
            to_a[volume + voxel] = sum_a;
        }
        if comptime!(wants_b) {
            to_b[volume + voxel] = sum_b;
        }
        voxel += CUBE_COUNT_X as usize * comptime!(plan.units as usize);
    }
}
