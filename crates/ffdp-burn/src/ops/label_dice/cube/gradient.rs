//! The gradient: the factor of every corner, and the slope of their interpolation.

use cubecl::prelude::*;

use super::corners::{column_of, lookup, membership, read_corners, sample, side};
use super::{Plan, Sizes};
use crate::ops::grid_sample::cube::{Sample, Tap, inside, len, offset, voxel_of_unit};
use crate::ops::label_dice::Denominator;
use ffdp_kit::launch::UNITS;

/// `dL/dw_c`, the factor of every corner: `alpha_k [fixed = k] + beta_k 2 a_k` of its label.
#[cube]
fn factors(
    labels: &Array<i32>,
    weights: &Array<f32>,
    here: i32,
    ids: &[i32],
    columns: &Shared<[u32]>,
    slopes: &Shared<[f32]>,
    #[comptime] plan: Plan,
) -> Array<f32> {
    let mut factors = Array::<f32>::new(8usize);
    let mut done = 0u32;
    #[unroll]
    for corner in 0..8u32 {
        if done & comptime!(1u32 << corner) == 0 {
            let (a, shared) = membership(labels, weights, corner);
            done |= shared;
            let label = labels[corner as usize];
            let column = column_of(ids, columns, label, plan);
            let mut factor = slopes[(2 * column + 1) as usize];
            if comptime!(plan.denominator == Denominator::Squared) {
                factor *= 2.0 * a;
            }
            factor += select(label == here, slopes[(2 * column) as usize], 0.0f32);
            factors[corner as usize] = factor;
            #[unroll]
            for other in corner + 1..8u32 {
                if shared & comptime!(1u32 << other) != 0 {
                    factors[other as usize] = factor;
                }
            }
        }
    }
    factors
}

/// The sum over the corners of `values`, each times its weight or slope along x, y and z.
#[cube]
fn contract(
    values: &Array<f32>,
    at: &Sample,
    #[comptime] steep_x: bool,
    #[comptime] steep_y: bool,
    #[comptime] steep_z: bool,
) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for z in 0..2u32 {
        let mut plane = 0.0f32;
        #[unroll]
        for y in 0..2u32 {
            let row = factor_of(&at.x, 0u32, steep_x) * values[comptime!((4 * z + 2 * y) as usize)]
                + factor_of(&at.x, 1u32, steep_x) * values[comptime!((4 * z + 2 * y + 1) as usize)];
            plane += factor_of(&at.y, y, steep_y) * row;
        }
        sum += factor_of(&at.z, z, steep_z) * plane;
    }
    sum
}

/// The weight or the slope of the lower (0) or higher (1) voxel of a tap.
#[cube]
fn factor_of(tap: &Tap, #[comptime] high: u32, #[comptime] steep: bool) -> f32 {
    let side = side(tap, comptime!(high == 0));
    if steep { side.slope } else { side.weight }
}

/// `dL/du`: each voxel owns its gradient, so no atomics.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn gradient_kernel(
    displacement: &[f32],
    moving: &[i32],
    fixed: &[i32],
    ids: &[i32],
    grad: &[f32],
    output: &mut [f32],
    sizes: Sizes,
    #[comptime] plan: Plan,
) {
    let at = voxel_of_unit(&sizes.output);
    let count = comptime!(plan.labels);
    let columns = lookup(ids, plan);
    // alpha and beta of every label, and zeros for those that do not count.
    let mut slopes = Shared::<[f32]>::new_slice(comptime!(2 * count as usize + 2));
    let first = (at.n * 3 * count) as usize;
    let mut label = UNIT_POS;
    while label <= count {
        let counts = label < count;
        let column = first + min(label, count - 1) as usize;
        slopes[(2 * label) as usize] = select(counts, grad[column], 0.0f32);
        slopes[(2 * label + 1) as usize] = select(counts, grad[column + count as usize], 0.0f32);
        label += UNITS;
    }
    sync_cube();
    if inside(&at, &sizes.output) {
        let output_len = len(&sizes.output);
        let voxel = offset(&at, &sizes.output);
        let here = fixed[at.n as usize * output_len + voxel];
        let taken = sample(displacement, &at, &sizes);
        let mut labels = Array::<i32>::new(8usize);
        let mut weights = Array::<f32>::new(8usize);
        let base = at.n as usize * len(&sizes.input);
        let differing = read_corners(moving, base, &sizes.input, &taken, &mut labels, &mut weights);
        let mut gx = 0.0f32;
        let mut gy = 0.0f32;
        let mut gz = 0.0f32;
        // The slopes of one label all around cancel, except where corners lie outside.
        if differing > 0 || !all_inside(&taken) {
            let factors = factors(&labels, &weights, here, ids, &columns, &slopes, plan);
            gx = contract(&factors, &taken, true, false, false);
            gy = contract(&factors, &taken, false, true, false);
            gz = contract(&factors, &taken, false, false, true);
        }
        let start = at.n as usize * 3 * output_len + voxel;
        output[start] = gx;
        output[start + output_len] = gy;
        output[start + 2 * output_len] = gz;
    }
}

/// Whether all eight corners lie inside: their slopes are whole.
#[cube]
fn all_inside(at: &Sample) -> bool {
    let x = at.x.slope_high - at.x.slope_low;
    let y = at.y.slope_high - at.y.slope_low;
    let z = at.z.slope_high - at.z.slope_low;
    x + y + z == 6.0
}
