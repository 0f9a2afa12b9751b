//! What a voxel sees: the labels and weights of its eight corners, and the columns of labels.

use cubecl::prelude::*;

use super::{Plan, Sizes};
use crate::ops::grid_sample::cube::{Sample, Tap, Voxel, len, offset, tap};
use crate::ops::grid_sample::{Interpolation, Padding};
use ffdp_kit::launch::{Extent, UNITS};

/// The columns of all labels from the smallest id to the largest, where these are close together; that
/// of a label that does not count is the number of labels. `ids` holds the ascending ids, then their
/// columns.
#[cube]
pub(super) fn lookup(ids: &[i32], #[comptime] plan: Plan) -> Shared<[u32]> {
    let count = comptime!(plan.labels);
    let mut columns = Shared::<[u32]>::new_slice(comptime!(plan.span.max(1) as usize));
    if comptime!(plan.span > 0) {
        let mut at = UNIT_POS;
        while at < plan.span {
            columns[at as usize] = count.runtime();
            at += UNITS;
        }
        sync_cube();
        let mut rank = UNIT_POS;
        while rank < count {
            let at = u32::cast_from(ids[rank as usize] - ids[0]);
            columns[at as usize] = u32::cast_from(ids[(count + rank) as usize]);
            rank += UNITS;
        }
    }
    sync_cube();
    columns
}

/// The column of a label in the table of sums, or the number of labels where it does not count.
#[cube]
pub(super) fn column_of(
    ids: &[i32],
    columns: &Shared<[u32]>,
    label: i32,
    #[comptime] plan: Plan,
) -> u32 {
    let count = comptime!(plan.labels);
    let mut column = count.runtime();
    if comptime!(plan.span > 0) {
        // Modulo 2^32: labels below the smallest id are far above.
        let at = u32::cast_from(label) - u32::cast_from(ids[0]);
        if at < plan.span {
            column = columns[at as usize];
        }
    } else {
        let mut low = 0u32;
        let mut high = count.runtime();
        while low < high {
            let middle = (low + high) / 2;
            if ids[middle as usize] < label {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low < count && ids[low as usize] == label {
            column = u32::cast_from(ids[(count + low) as usize]);
        }
    }
    column
}

/// Where a voxel samples the moving labels.
#[cube]
pub(super) fn sample(displacement: &[f32], at: &Voxel, sizes: &Sizes) -> Sample {
    let len = len(&sizes.output);
    let voxel = at.n as usize * 3 * len + offset(at, &sizes.output);
    let x = f32::cast_from(at.x) + displacement[voxel];
    let y = f32::cast_from(at.y) + displacement[voxel + len];
    let z = f32::cast_from(at.z) + displacement[voxel + 2 * len];
    Sample {
        x: tap(x, sizes.input.w, Interpolation::Linear, Padding::Zeros),
        y: tap(y, sizes.input.h, Interpolation::Linear, Padding::Zeros),
        z: tap(z, sizes.input.d, Interpolation::Linear, Padding::Zeros),
    }
}

/// One voxel of a tap.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Side {
    pub index: u32,
    pub weight: f32,
    pub slope: f32,
}

#[cube]
pub(super) fn side(tap: &Tap, #[comptime] low: bool) -> Side {
    if low {
        Side { index: tap.low, weight: tap.weight_low, slope: tap.slope_low }
    } else {
        Side { index: tap.high, weight: tap.weight_high, slope: tap.slope_high }
    }
}

/// Reads the labels and weights of the eight corners; returns how many differ from the first.
#[cube]
pub(super) fn read_corners(
    moving: &[i32],
    base: usize,
    size: &Extent,
    at: &Sample,
    labels: &mut Array<i32>,
    weights: &mut Array<f32>,
) -> u32 {
    let mut differing = 0u32;
    #[unroll]
    for corner in 0..8u32 {
        let x = side(&at.x, comptime!(corner & 1 == 0));
        let y = side(&at.y, comptime!(corner & 2 == 0));
        let z = side(&at.z, comptime!(corner & 4 == 0));
        let row = (z.index as usize * size.h as usize + y.index as usize) * size.w as usize;
        let label = moving[base + row + x.index as usize];
        labels[corner as usize] = label;
        weights[corner as usize] = x.weight * y.weight * z.weight;
        differing += select(label != labels[0], 1u32, 0u32);
    }
    differing
}

/// The membership of the label of a corner that no earlier corner has, and the later corners that have
/// it too, one bit each.
#[cube]
pub(super) fn membership(
    labels: &Array<i32>,
    weights: &Array<f32>,
    #[comptime] corner: u32,
) -> (f32, u32) {
    let label = labels[corner as usize];
    let mut a = weights[corner as usize];
    let mut shared = 0u32;
    #[unroll]
    for other in corner + 1..8u32 {
        let same = labels[other as usize] == label;
        a += select(same, weights[other as usize], 0.0f32);
        shared |= select(same, comptime!(1u32 << other), 0u32);
    }
    (a, shared)
}
