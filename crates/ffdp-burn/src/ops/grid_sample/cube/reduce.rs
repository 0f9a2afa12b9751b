//! Sums and maxima over a cube of 256 units, sixteen by sixteen: three barriers where a tree of
//! halves takes nine, which counts where a kernel reduces several times a block.

use cubecl::prelude::*;

/// Words of shared memory that a reduction needs.
pub(super) const TREE: usize = 256 + 16;

/// The sum of `value` over the units of a cube, in a fixed order; every unit gets it.
#[cube]
pub(super) fn sum_of_units(tree: &mut Shared<[f32]>, value: f32) -> f32 {
    sync_cube();
    tree[UNIT_POS as usize] = value;
    sync_cube();
    let mut sum = 0.0f32;
    if UNIT_POS < 16 {
        for i in 0..16u32 {
            sum += tree[(UNIT_POS * 16 + i) as usize];
        }
        tree[(256 + UNIT_POS) as usize] = sum;
    }
    sync_cube();
    let mut total = 0.0f32;
    for i in 0..16u32 {
        total += tree[(256 + i) as usize];
    }
    total
}

/// The largest `value`, not negative, of the units of a cube; every unit gets it.
#[cube]
pub(super) fn max_of_units(tree: &mut Shared<[f32]>, value: f32) -> f32 {
    sync_cube();
    tree[UNIT_POS as usize] = value;
    sync_cube();
    let mut most = 0.0f32;
    if UNIT_POS < 16 {
        for i in 0..16u32 {
            most = max(most, tree[(UNIT_POS * 16 + i) as usize]);
        }
        tree[(256 + UNIT_POS) as usize] = most;
    }
    sync_cube();
    let mut largest = 0.0f32;
    for i in 0..16u32 {
        largest = max(largest, tree[(256 + i) as usize]);
    }
    largest
}

/// The sums of `count` values a unit, sixteen at most, over the units of a cube, in a fixed order;
/// unit `i` gets that of value `i`. Two barriers for all of them.
#[cube]
pub(super) fn sums_of_units(values: &Array<f32>, #[comptime] count: u32) -> f32 {
    // A gap after every sixteen terms, so that units that add sixteen each read different banks.
    let mut terms = Shared::<[f32]>::new_slice(comptime!((17 * 16 * count) as usize));
    let mut parts = Shared::<[f32]>::new_slice(comptime!((17 * count) as usize));
    #[unroll]
    for value in 0..count {
        let at = UNIT_POS + UNIT_POS / 16 + comptime!(17 * 16 * value);
        terms[at as usize] = values[value as usize];
    }
    sync_cube();
    if UNIT_POS < comptime!(16 * count) {
        let mut part = 0.0f32;
        for i in 0..16u32 {
            part += terms[(UNIT_POS * 17 + i) as usize];
        }
        parts[(UNIT_POS + UNIT_POS / 16) as usize] = part;
    }
    sync_cube();
    let mut total = 0.0f32;
    if UNIT_POS < count {
        for i in 0..16u32 {
            total += parts[(UNIT_POS * 17 + i) as usize];
        }
    }
    total
}
