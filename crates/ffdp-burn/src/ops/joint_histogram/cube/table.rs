//! Totals as votes, and the convolution of the approximate mode.

use cubecl::prelude::*;

use super::Plan;
use super::parzen::{Shape, value};

/// The kernel at whole bins `-reach ..= reach`, sum 1: `ParzenKernel::at_whole_bins`.
#[cube]
fn at_whole_bins(shape: &Shape, #[comptime] reach: u32, #[comptime] plan: Plan) -> Array<f32> {
    let mut shares = Array::<f32>::new(comptime!((2 * reach + 1) as usize));
    let mut sum = 0.0f32;
    #[unroll]
    for k in 0..comptime!(2 * reach + 1) {
        let t = comptime!(k as f32 - reach as f32);
        let share = value(t.runtime(), shape, comptime!(k != reach), plan.kernel);
        shares[k as usize] = share;
        sum += share;
    }
    #[unroll]
    for k in 0..comptime!(2 * reach + 1) {
        let share = shares[k as usize] / sum;
        shares[k as usize] = share;
    }
    shares
}

/// Votes from totals, convolved along both axes with `2 reach + 1` shares; one unit a cell.
#[cube(launch_unchecked)]
pub(super) fn table_kernel(
    totals: &[u32],
    output: &mut [f32],
    shape: Shape,
    #[comptime] plan: Plan,
    #[comptime] reach: u32,
) {
    let (bins, cells) = comptime!((plan.bins, plan.cells()));
    if ABSOLUTE_POS_X >= cells {
        terminate!();
    }
    let base = CUBE_POS_Y as usize * comptime!(2 * plan.cells() as usize);
    let (row, column) = (ABSOLUTE_POS_X / bins, ABSOLUTE_POS_X % bins);
    let unit = comptime!(1.0f32 / (1u64 << plan.places()) as f32);
    let word = comptime!((1u64 << 32) as f32 / (1u64 << plan.places()) as f32);
    let shares = at_whole_bins(&shape, reach, plan);
    let mut sum = 0.0f32;
    for i in 0..comptime!(2 * reach + 1) {
        for j in 0..comptime!(2 * reach + 1) {
            let (m, n) = (row + i, column + j);
            if m >= reach && n >= reach && m < bins + reach && n < bins + reach {
                let at = base + ((m - reach) * bins + n - reach) as usize;
                let low = f32::cast_from(totals[at]) * unit;
                let high = f32::cast_from(totals[at + comptime!(plan.cells() as usize)]) * word;
                sum += shares[i as usize] * shares[j as usize] * (high + low);
            }
        }
    }
    output[CUBE_POS_Y as usize * comptime!(plan.cells() as usize) + ABSOLUTE_POS_X as usize] = sum;
}
