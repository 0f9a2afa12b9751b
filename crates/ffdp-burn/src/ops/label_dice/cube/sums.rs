//! The sums: a table of whole numbers a cube.

use cubecl::prelude::*;

use super::corners::{column_of, lookup, membership, read_corners, sample};
use super::{COLUMN, Plan, Sizes};
use crate::ops::grid_sample::cube::{Voxel, inside, len, offset};
use crate::ops::label_dice::Denominator;
use ffdp_kit::launch::UNITS;

/// One, in fixed point: 32 x 256 memberships of up to one add up to 2^31 in a cube.
const ONE: f32 = 262_144.0;

#[cube]
fn fixed_point(value: f32) -> u32 {
    u32::cast_from(value * ONE + 0.5)
}

/// What a membership adds to `A`.
#[cube]
fn size_of(a: f32, #[comptime] denominator: Denominator) -> f32 {
    if comptime!(denominator == Denominator::Squared) { a * a } else { a }
}

/// `partials[n, (I, A, B), k, cube]`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn sums_kernel(
    displacement: &[f32],
    moving: &[i32],
    fixed: &[i32],
    ids: &[i32],
    partials: &mut [f32],
    sizes: Sizes,
    #[comptime] plan: Plan,
) {
    let count = comptime!(plan.labels);
    let columns = lookup(ids, plan);
    let table = Shared::<[Atomic<u32>]>::new_slice(comptime!(3 * count as usize));
    let mut entry = UNIT_POS;
    while entry < 3 * count {
        table[entry as usize].store(0u32);
        entry += UNITS;
    }
    sync_cube();

    let slabs = sizes.output.d.div_ceil(COLUMN);
    let n = CUBE_POS_Z / slabs;
    let slab = CUBE_POS_Z % slabs;
    let stop = min((slab + 1) * COLUMN, sizes.output.d);
    let moving_base = n as usize * len(&sizes.input);
    let fixed_base = n as usize * len(&sizes.output);
    // The labels seen last, their columns, and what was added since.
    let mut fixed_label = 0i32;
    let mut fixed_column = column_of(ids, &columns, 0i32, plan);
    let mut moving_label = 0i32;
    let mut moving_column = fixed_column;
    let mut both = 0u32;
    let mut moved = 0u32;
    let mut still = 0u32;
    let mut labels = Array::<i32>::new(8usize);
    let mut weights = Array::<f32>::new(8usize);
    let mut z = slab * COLUMN;
    while z < stop {
        let at = Voxel { n, x: ABSOLUTE_POS_X, y: ABSOLUTE_POS_Y, z };
        if inside(&at, &sizes.output) {
            let here = fixed[fixed_base + offset(&at, &sizes.output)];
            if here != fixed_label {
                if fixed_column < count {
                    table[(2 * count + fixed_column) as usize].fetch_add(still);
                }
                still = 0u32;
                fixed_label = here;
                fixed_column = column_of(ids, &columns, here, plan);
            }
            still += 1;
            let taken = sample(displacement, &at, &sizes);
            let differing =
                read_corners(moving, moving_base, &sizes.input, &taken, &mut labels, &mut weights);
            if differing == 0 {
                let label = labels[0];
                if label != moving_label {
                    if moving_column < count {
                        table[moving_column as usize].fetch_add(both);
                        table[(count + moving_column) as usize].fetch_add(moved);
                    }
                    both = 0u32;
                    moved = 0u32;
                    moving_label = label;
                    moving_column = column_of(ids, &columns, label, plan);
                }
                let (a, _shared) = membership(&labels, &weights, 0u32);
                moved += fixed_point(size_of(a, plan.denominator));
                both += select(label == here, fixed_point(a), 0u32);
            } else {
                // Corners whose label has been counted, one bit each.
                let mut done = 0u32;
                #[unroll]
                for corner in 0..8u32 {
                    if done & comptime!(1u32 << corner) == 0 {
                        let (a, shared) = membership(&labels, &weights, corner);
                        done |= shared;
                        let label = labels[corner as usize];
                        let column = column_of(ids, &columns, label, plan);
                        if column < count {
                            table[(count + column) as usize]
                                .fetch_add(fixed_point(size_of(a, plan.denominator)));
                            if label == here {
                                table[column as usize].fetch_add(fixed_point(a));
                            }
                        }
                    }
                }
            }
        }
        z += 1;
    }
    if moving_column < count {
        table[moving_column as usize].fetch_add(both);
        table[(count + moving_column) as usize].fetch_add(moved);
    }
    if fixed_column < count {
        table[(2 * count + fixed_column) as usize].fetch_add(still);
    }
    sync_cube();

    let cubes = (CUBE_COUNT_X * CUBE_COUNT_Y * slabs) as usize;
    let cube = (slab * CUBE_COUNT_Y + CUBE_POS_Y) * CUBE_COUNT_X + CUBE_POS_X;
    let mut entry = UNIT_POS;
    while entry < 3 * count {
        let sum = f32::cast_from(table[entry as usize].load());
        // Voxels of fixed labels are counted, memberships are in fixed point.
        let one = select(entry < 2 * count, ONE, 1.0f32);
        let row = (n * 3 * count + entry) as usize;
        partials[row * cubes + cube as usize] = sum / one;
        entry += UNITS;
    }
}
