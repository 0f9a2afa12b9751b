//! Single votes, two cells of the table in a word of shared memory.
//!
//! A cell is flushed to the totals by the unit whose vote brings it to half of what 16 bits hold. Between two moments
//! when all units of a cube wait for each other they add less than the other half, so that no cell overflows into its
//! neighbour. Voxels side by side along a column often vote for one cell: a unit adds them up first.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::march::{Tiles, ask, look, march_of, own_map, tasks};
use crate::ops::grid_sample::cube::{SamplePlan, Space};
use crate::ops::joint_histogram::cube::Plan;
use crate::ops::joint_histogram::cube::parzen::bin;
use crate::ops::joint_histogram::cube::votes::add_to_totals;
use ffdp_kit::launch::Extent;

/// Half of what a cell holds.
const HALF: u32 = 1 << 15;
/// Voxels of a unit between two moments when all wait: of a thousand units, less than [`HALF`].
const PERIOD: u32 = 31;

/// What is kept in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Store {
    pub bins: u32,
    /// Bins of the moving image around that of the fixed one; all of them, or none.
    pub band: u32,
    pub units: u32,
}

impl Store {
    fn words(&self) -> u32 {
        self.bins * self.band / 2
    }

    pub fn bytes(&self) -> usize {
        self.words() as usize * size_of::<u32>()
    }

    fn is_whole(&self) -> bool {
        self.band == self.bins
    }
}

/// Where a pair of bins lies in the band; beyond it, a number that is too large.
#[cube]
fn place(moving: u32, fixed: u32, #[comptime] store: Store) -> u32 {
    let (bins, band) = comptime!((store.bins, store.band));
    if comptime!(store.is_whole()) {
        moving * bins + fixed
    } else {
        // Below the band the difference is negative, and so very large.
        let across = moving + band / 2 - fixed;
        select(across < band, fixed * band + across, comptime!(u32::MAX))
    }
}

/// Adds a run of votes for one cell.
#[cube]
fn add(
    words: &Shared<[Atomic<u32>]>,
    totals: &[Atomic<u32>],
    base: usize,
    moving: u32,
    fixed: u32,
    run: u32,
    #[comptime] store: Store,
    #[comptime] cells: u32,
) {
    let bins = comptime!(store.bins);
    let cell = base + (moving * bins + fixed) as usize;
    if comptime!(store.band > 0) {
        let place = place(moving, fixed, store);
        if place < comptime!(2 * store.words()) {
            let shift = (place % 2) * 16;
            let word = (place / 2) as usize;
            let before = (words[word].fetch_add(run << shift) >> shift) & 0xffffu32;
            if before < HALF && before + run >= HALF {
                // Modulo 2^32.
                words[word].fetch_sub(comptime!(HALF) << shift);
                add_to_totals(totals, cell, comptime!(HALF).runtime(), 0u32, cells);
            }
        } else {
            add_to_totals(totals, cell, run, 0u32, cells);
        }
    } else {
        add_to_totals(totals, cell, run, 0u32, cells);
    }
}

/// Adds the voxels of volume `CUBE_POS_Y` to its totals.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn whole_kernel<A: Float, B: Float>(
    fixed: &[B],
    moving: &[A],
    affine: &[f32],
    coefficients: &[f32],
    tables: &[f32],
    totals: &[Atomic<u32>],
    space: Space,
    controls: Extent,
    tiles: Tiles,
    #[comptime] ahead: u32,
    #[comptime] store: Store,
    #[comptime] plan: Plan,
    #[comptime] sampling: SamplePlan,
    #[define(A, B)] _kinds: [ElemType; 2],
) {
    let (count, units, cells) = comptime!((store.words(), store.units, plan.cells()));
    let words = Shared::<[Atomic<u32>]>::new_slice(comptime!(store.words().max(1) as usize));
    let mut word = UNIT_POS;
    while word < count {
        words[word as usize].store(0u32);
        word += units;
    }
    sync_cube();
    let base = CUBE_POS_Y as usize * comptime!(2 * plan.cells() as usize);
    let map = own_map(affine, &space, sampling);
    let mut seen = 0u32;
    // The run of equal votes that is not yet added.
    let mut run = 0u32;
    let mut row = 0u32;
    let mut column = 0u32;
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
                    let shown = bin(look(&asked, k).value, plan);
                    let stays = bin(asked.fixed[k as usize], plan);
                    if run > 0 && (shown != row || stays != column) {
                        add(&words, totals, base, row, column, run, store, cells);
                        run = 0u32;
                    }
                    row = shown;
                    column = stays;
                    run += 1u32;
                }
            }
            z += ahead;
            seen += ahead;
            // The next planes must have room.
            if seen > comptime!(PERIOD - ahead) {
                seen = 0u32;
                if run > 0 {
                    add(&words, totals, base, row, column, run, store, cells);
                    run = 0u32;
                }
                sync_cube();
            }
        }
        task += CUBE_COUNT_X;
    }
    if run > 0 {
        add(&words, totals, base, row, column, run, store, cells);
    }
    sync_cube();
    let mut place = UNIT_POS;
    while place < comptime!(2 * store.words()) {
        let shift = (place % 2) * 16;
        let votes = (words[(place / 2) as usize].load() >> shift) & 0xffffu32;
        if votes > 0 {
            let (bins, band) = comptime!((store.bins, store.band.max(1)));
            let mut cell = place;
            if comptime!(!store.is_whole()) {
                let (fixed, across) = (place / band, place % band);
                cell = (across + fixed - band / 2) * bins + fixed;
            }
            add_to_totals(totals, base + cell as usize, votes, 0u32, cells);
        }
        place += units;
    }
}
