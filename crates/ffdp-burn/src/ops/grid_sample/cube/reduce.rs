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
