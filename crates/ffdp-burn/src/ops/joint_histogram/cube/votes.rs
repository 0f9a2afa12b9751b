//! Counting: integers in shared memory, moved into totals of two words before they can overflow.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::Plan;
use super::images::{copy, read};
use super::parzen::{Kernel, Shape, bin, clamped, place, shares};

/// Splits `vote` by `shares` into integers that add up to it. One bin, whose share is never small,
/// gets what the others leave: with the B-spline the bin below the intensity (a share of 1/6 at
/// least, so that rounding the others to nearest leaves something for every `vote`), else the nearest
/// bin, after rounding down.
#[cube]
fn split(vote: u32, shares: &Array<f32>, fraction: f32, #[comptime] plan: Plan) -> Array<u32> {
    let taps = comptime!(plan.taps());
    let below = comptime!(plan.radius - 1);
    let spline = comptime!(plan.kernel == Kernel::BSpline3);
    let small = comptime!(plan.kernel == Kernel::BSpline3 && plan.places() <= 23);
    let half = comptime!(if plan.kernel == Kernel::BSpline3 { 0.5f32 } else { 0.0f32 });
    let mut parts = Array::<u32>::new(comptime!(taps as usize));
    let whole = f32::cast_from(vote);
    let mut rest = vote;
    #[unroll]
    for tap in 0..taps {
        if comptime!(!(spline && tap == below)) {
            let mut part = 0u32;
            if small {
                // Adding 2^23 leaves the nearest integer in the low bits: cheaper than a conversion.
                part += u32::reinterpret(whole * shares[tap as usize] + 8_388_608.0f32)
                    - 0x4B00_0000u32;
            } else {
                part += u32::cast_from(whole * shares[tap as usize] + half);
            }
            parts[tap as usize] = part;
            rest -= part;
        }
    }
    if spline {
        parts[below as usize] = rest;
    } else {
        let nearest = select(fraction < 0.5f32, below, plan.radius);
        #[unroll]
        for tap in 0..taps {
            let part = parts[tap as usize];
            // Modulo 2^32 where the shares were rounded up and the rest is negative.
            parts[tap as usize] = part + select(tap == nearest, rest, 0u32);
        }
    }
    parts
}

/// The table of a cube: copies of the low words, lane by lane, and the carries.
#[derive(CubeType)]
pub(in crate::ops) struct Table {
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
pub(in crate::ops) fn add_to_totals(
    totals: &[Atomic<u32>],
    at: usize,
    low: u32,
    high: u32,
    #[comptime] cells: u32,
) {
    let before = totals[at].fetch_add(low);
    let carry = high + select(overflows(before, low), 1u32, 0u32);
    if carry > 0 {
        totals[at + comptime!(cells as usize)].fetch_add(carry);
    }
}

/// Adds to a cell, counted from the first of the voxel's support.
#[cube]
fn add(
    table: &Table,
    totals: &[Atomic<u32>],
    base: usize,
    cell: u32,
    votes: u32,
    #[comptime] plan: Plan,
) {
    let copy = UNIT_POS % comptime!(plan.copies.max(1));
    let word = (cell * comptime!(plan.copies) + copy) as usize;
    if comptime!(plan.copies > 0 && plan.counts()) {
        // A literal, which NVIDIA's hardware adds up over the lanes of a warp.
        table.low[word].fetch_add(1u32);
    } else if comptime!(plan.every > 0) {
        table.low[word].fetch_add(votes);
    } else if comptime!(plan.copies > 0) {
        let before = table.low[word].fetch_add(votes);
        if overflows(before, votes) {
            table.high[cell as usize].fetch_add(1u32);
        }
    } else if votes > 0 {
        add_to_totals(totals, base + cell as usize, votes, 0u32, comptime!(plan.cells()));
    }
}

/// Adds a vote of a pair of intensities.
#[cube]
pub(in crate::ops) fn vote(
    table: &Table,
    totals: &[Atomic<u32>],
    base: usize,
    a: f32,
    b: f32,
    vote: u32,
    shape: &Shape,
    #[comptime] plan: Plan,
) {
    let bins = comptime!(plan.bins);
    if comptime!(plan.hard) {
        add(table, totals, base, bin(a, plan) * bins + bin(b, plan), vote, plan);
    } else {
        let row = place(a, plan);
        let column = place(b, plan);
        let along = shares(row.fraction, shape, plan);
        let across = shares(column.fraction, shape, plan);
        let parts = split(vote, &along, row.fraction, plan);
        let first = row.first * bins + column.first;
        #[unroll]
        for i in 0..plan.taps() {
            let cells = split(parts[i as usize], &across, column.fraction, plan);
            #[unroll]
            for j in 0..plan.taps() {
                add(
                    table,
                    totals,
                    base,
                    first + comptime!(i * plan.bins + j),
                    cells[j as usize],
                    plan,
                );
            }
        }
    }
}

/// The cells that a unit collects from the table of its cube: every `units`th, two words each.
#[derive(CubeType)]
pub(in crate::ops) struct Harvest {
    low: Array<u32>,
    high: Array<u32>,
}

/// Empties the table into the harvests of the units. All units of the cube take part.
#[cube]
pub(in crate::ops) fn reap(table: &Table, harvest: &mut Harvest, #[comptime] plan: Plan) {
    sync_cube();
    #[unroll]
    for own in 0..plan.own() {
        let cell = UNIT_POS + comptime!(own * plan.units);
        if cell < comptime!(plan.cells()) {
            let mut low = harvest.low[own as usize];
            let mut high = harvest.high[own as usize];
            for step in 0..plan.copies {
                // Every lane begins with another copy: one bank each.
                let copy = (step + UNIT_POS) % comptime!(plan.copies);
                let word = (cell * comptime!(plan.copies) + copy) as usize;
                let part = table.low[word].load();
                table.low[word].store(0u32);
                low += part;
                high += select(low < part, 1u32, 0u32);
            }
            if comptime!(!plan.counts() && plan.every == 0) {
                high += table.high[cell as usize].load();
            }
            harvest.low[own as usize] = low;
            harvest.high[own as usize] = high;
        }
    }
    sync_cube();
}

/// The table of a cube, empty; all its units take part.
#[cube]
pub(in crate::ops) fn empty_table(#[comptime] plan: Plan) -> Table {
    let words = comptime!((plan.cells() * plan.copies).max(1));
    let carries = comptime!(plan.carries());
    let table = Table {
        low: Shared::<[Atomic<u32>]>::new_slice(comptime!(words as usize)),
        high: Shared::<[Atomic<u32>]>::new_slice(comptime!(carries as usize)),
    };
    let mut word = UNIT_POS;
    while word < words {
        table.low[word as usize].store(0u32);
        word += comptime!(plan.units);
    }
    let mut word = UNIT_POS;
    while word < carries {
        table.high[word as usize].store(0u32);
        word += comptime!(plan.units);
    }
    sync_cube();
    table
}

#[cube]
pub(in crate::ops) fn no_harvest(#[comptime] plan: Plan) -> Harvest {
    let mut harvest = Harvest {
        low: Array::<u32>::new(comptime!(plan.own() as usize)),
        high: Array::<u32>::new(comptime!(plan.own() as usize)),
    };
    #[unroll]
    for own in 0..plan.own() {
        harvest.low[own as usize] = 0u32;
        harvest.high[own as usize] = 0u32;
    }
    harvest
}

/// Adds what a cube has counted to the totals that begin at `base`. All its units take part.
#[cube]
pub(in crate::ops) fn bring_in(
    table: &Table,
    harvest: &mut Harvest,
    totals: &[Atomic<u32>],
    base: usize,
    #[comptime] plan: Plan,
) {
    if comptime!(plan.copies > 0) {
        reap(table, harvest, plan);
        #[unroll]
        for own in 0..plan.own() {
            let (low, high) = (harvest.low[own as usize], harvest.high[own as usize]);
            if low > 0 || high > 0 {
                let cell = UNIT_POS + comptime!(own * plan.units);
                add_to_totals(totals, base + cell as usize, low, high, comptime!(plan.cells()));
            }
        }
    }
}

/// Adds the voxels of one volume, `CUBE_POS_Y`, to its totals: a low and a high word a cell. The
/// volume has `len` vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn votes_kernel<N: Size, A: Float, B: Float>(
    a: &[Vector<A, N>],
    b: &[Vector<B, N>],
    weights: &[Vector<f32, N>],
    totals: &[Atomic<u32>],
    shape: Shape,
    len: usize,
    #[comptime] plan: Plan,
    #[define(A, B)] _kinds: [ElemType; 2],
) {
    let table = empty_table(plan);
    let mut harvest = no_harvest(plan);
    let volume = CUBE_POS_Y as usize * len;
    let base = CUBE_POS_Y as usize * comptime!(2 * plan.cells() as usize);
    let step = CUBE_COUNT_X as usize * comptime!(plan.span() as usize);
    let mut start = CUBE_POS_X as usize * comptime!(plan.span() as usize);
    let mut rounds = 0u32;
    let mut first = Array::<f32>::new(4usize);
    let mut second = Array::<f32>::new(4usize);
    let mut weight = Array::<f32>::new(4usize);
    let mut next_first = Array::<f32>::new(4usize);
    let mut next_second = Array::<f32>::new(4usize);
    let mut next_weight = Array::<f32>::new(4usize);
    read(a, &mut next_first, volume, start, len, plan);
    read(b, &mut next_second, volume, start, len, plan);
    if comptime!(plan.weighted) {
        read(weights, &mut next_weight, volume, start, len, plan);
    }
    while start < len {
        copy(&next_first, &mut first);
        copy(&next_second, &mut second);
        // The next voxels are on their way while these are counted.
        read(a, &mut next_first, volume, start + step, len, plan);
        read(b, &mut next_second, volume, start + step, len, plan);
        if comptime!(plan.weighted) {
            copy(&next_weight, &mut weight);
            read(weights, &mut next_weight, volume, start + step, len, plan);
        }
        #[unroll(plan.taps() <= 4)]
        for k in 0..4u32 {
            let vector = start + (k / plan.width * plan.units + UNIT_POS) as usize;
            if vector < len {
                let one = comptime!(1u32 << plan.places());
                let mut units = one.runtime();
                if comptime!(plan.weighted) {
                    let weight = clamped(weight[k as usize]);
                    units = u32::cast_from((weight * comptime!(one as f32) + 0.5f32).floor());
                }
                if units > 0 {
                    let (a, b) = (first[k as usize], second[k as usize]);
                    vote(&table, totals, base, a, b, units, &shape, plan);
                }
            }
        }
        start += step;
        if comptime!(plan.every > 0) {
            rounds += 1;
            if rounds == comptime!(plan.every) {
                rounds = 0u32;
                reap(&table, &mut harvest, plan);
            }
        }
    }
    bring_in(&table, &mut harvest, totals, base, plan);
}
