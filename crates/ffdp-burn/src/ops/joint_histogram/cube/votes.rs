//! Counting: integers in shared memory, carried into totals of two words, and these as votes.

use cubecl::prelude::*;

use super::Plan;
use super::parzen::{Shape, bin, clamped, place, shares};

/// Splits `vote` by `shares` into integers that add up to it: what rounding down leaves goes to the
/// nearest bin, which has the largest share.
#[cube]
fn split(vote: u32, shares: &Array<f32>, fraction: f32, #[comptime] radius: u32) -> Array<u32> {
    let taps = comptime!(2 * radius);
    let mut parts = Array::<u32>::new(comptime!(taps as usize));
    let whole = f32::cast_from(vote);
    let mut rest = vote;
    #[unroll]
    for tap in 0..taps {
        let part = u32::cast_from(whole * shares[tap as usize]);
        parts[tap as usize] = part;
        rest -= part;
    }
    let nearest = select(fraction < 0.5f32, comptime!(radius - 1), radius);
    #[unroll]
    for tap in 0..taps {
        let part = parts[tap as usize];
        // Modulo 2^32 where the shares were rounded up and the rest is negative.
        parts[tap as usize] = part + select(tap == nearest, rest, 0u32);
    }
    parts
}

/// The table of a cube: copies of the low words, lane by lane, and the carries.
#[derive(CubeType)]
struct Table {
    low: Shared<[Atomic<u32>]>,
    high: Shared<[Atomic<u32>]>,
}

/// Whether a word that held `before` overflowed when `added` was added.
#[cube]
fn overflows(before: u32, added: u32) -> bool {
    let after = before + added;
    after < before
}

/// Adds to the two words of a cell of the totals.
#[cube]
fn add_to_totals(totals: &[Atomic<u32>], at: usize, low: u32, high: u32, #[comptime] cells: u32) {
    let before = totals[at].fetch_add(low);
    let carry = high + select(overflows(before, low), 1u32, 0u32);
    if carry > 0 {
        totals[at + comptime!(cells as usize)].fetch_add(carry);
    }
}

#[cube]
fn add(
    table: &Table,
    totals: &[Atomic<u32>],
    base: usize,
    cell: u32,
    votes: u32,
    #[comptime] plan: Plan,
) {
    if votes > 0 {
        if comptime!(plan.copies > 0) {
            let copy = UNIT_POS % comptime!(plan.copies);
            let before =
                table.low[(cell * comptime!(plan.copies) + copy) as usize].fetch_add(votes);
            if overflows(before, votes) {
                table.high[cell as usize].fetch_add(1u32);
            }
        } else {
            add_to_totals(totals, base + cell as usize, votes, 0u32, comptime!(plan.cells()));
        }
    }
}

/// Adds the voxels of one volume, `CUBE_POS_Y`, to its totals: a low and a high word a cell.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn votes_kernel(
    a: &[f32],
    b: &[f32],
    weights: &[f32],
    totals: &[Atomic<u32>],
    shape: Shape,
    len: usize,
    #[comptime] plan: Plan,
) {
    let (bins, cells) = comptime!((plan.bins, plan.cells()));
    let words = comptime!((plan.cells() * plan.copies).max(1));
    let table = Table {
        low: Shared::<[Atomic<u32>]>::new_slice(comptime!(words as usize)),
        high: Shared::<[Atomic<u32>]>::new_slice(comptime!(if plan.copies > 0 {
            plan.cells() as usize
        } else {
            1usize
        })),
    };
    if comptime!(plan.copies > 0) {
        let mut word = UNIT_POS;
        while word < words {
            table.low[word as usize].store(0u32);
            word += comptime!(plan.units);
        }
        let mut cell = UNIT_POS;
        while cell < cells {
            table.high[cell as usize].store(0u32);
            cell += comptime!(plan.units);
        }
        sync_cube();
    }
    let volume = CUBE_POS_Y as usize * len;
    let base = CUBE_POS_Y as usize * comptime!(2 * plan.cells() as usize);
    let at_once = comptime!(plan.at_once());
    let span = comptime!((plan.units * plan.at_once()) as usize);
    let mut first = Array::<f32>::new(comptime!(at_once as usize));
    let mut second = Array::<f32>::new(comptime!(at_once as usize));
    let mut shared = Array::<f32>::new(comptime!(at_once as usize));
    let mut start = CUBE_POS_X as usize * span;
    while start < len {
        #[unroll]
        for k in 0..at_once {
            let voxel = start + (k * comptime!(plan.units) + UNIT_POS) as usize;
            if voxel < len {
                first[k as usize] = a[volume + voxel];
                second[k as usize] = b[volume + voxel];
                if comptime!(plan.weighted) {
                    shared[k as usize] = weights[volume + voxel];
                }
            }
        }
        #[unroll]
        for k in 0..at_once {
            let voxel = start + (k * comptime!(plan.units) + UNIT_POS) as usize;
            if voxel < len {
                let one = comptime!(1u32 << plan.places);
                let mut vote = one.runtime();
                if comptime!(plan.weighted) {
                    let weight = clamped(shared[k as usize]);
                    vote = u32::cast_from((weight * comptime!(one as f32) + 0.5f32).floor());
                }
                if comptime!(plan.hard) {
                    let row = bin(first[k as usize], plan);
                    let cell = row * bins + bin(second[k as usize], plan);
                    add(&table, totals, base, cell, vote, plan);
                } else {
                    let row = place(first[k as usize], plan);
                    let column = place(second[k as usize], plan);
                    let along = shares(row.fraction, &shape, plan);
                    let across = shares(column.fraction, &shape, plan);
                    let parts = split(vote, &along, row.fraction, plan.radius);
                    #[unroll]
                    for i in 0..plan.taps() {
                        let cells = split(parts[i as usize], &across, column.fraction, plan.radius);
                        let start = (row.first + i) * bins + column.first;
                        #[unroll]
                        for j in 0..plan.taps() {
                            add(&table, totals, base, start + j, cells[j as usize], plan);
                        }
                    }
                }
            }
        }
        start += CUBE_COUNT_X as usize * span;
    }
    if comptime!(plan.copies > 0) {
        sync_cube();
        let mut cell = UNIT_POS;
        while cell < cells {
            let mut low = 0u32;
            let mut high = table.high[cell as usize].load();
            for step in 0..plan.copies {
                // Every lane begins with another copy: one bank each.
                let copy = (step + UNIT_POS) % comptime!(plan.copies);
                let part = table.low[(cell * comptime!(plan.copies) + copy) as usize].load();
                low += part;
                if low < part {
                    high += 1;
                }
            }
            if low > 0 || high > 0 {
                add_to_totals(totals, base + cell as usize, low, high, cells);
            }
            cell += comptime!(plan.units);
        }
    }
}

/// Votes from totals, convolved along both axes with `2 reach + 1` shares; one unit a cell.
#[cube(launch_unchecked)]
pub(super) fn table_kernel(
    totals: &[u32],
    shares: &[f32],
    output: &mut [f32],
    #[comptime] plan: Plan,
    #[comptime] reach: u32,
) {
    let (bins, cells) = comptime!((plan.bins, plan.cells()));
    if ABSOLUTE_POS_X >= cells {
        terminate!();
    }
    let base = CUBE_POS_Y as usize * comptime!(2 * plan.cells() as usize);
    let (row, column) = (ABSOLUTE_POS_X / bins, ABSOLUTE_POS_X % bins);
    let unit = comptime!(1.0f32 / (1u64 << plan.places) as f32);
    let word = comptime!((1u64 << 32) as f32 / (1u64 << plan.places) as f32);
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
