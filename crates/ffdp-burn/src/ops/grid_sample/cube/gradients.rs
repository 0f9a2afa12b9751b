//! The local gradients: each voxel owns that of its displacement, and the map's is a sum.

use cubecl::prelude::*;

use super::corners::{read_corners, slopes};
use super::reduce::sums_of_units;
use super::space::{Plan, Space, channels, displacement_at, map_of, position};
use super::taps::{Point, inner_sample, is_inner, sample_at};
use super::voxel::{COLUMNS, Voxel, above, column_of_unit, inside, len, offset};
use crate::ops::launch::{Extent, UNITS};

/// Voxels of a unit in the gradient of the displacement.
pub(super) const PAIR: u32 = 2;

/// Voxels of a unit in the gradient of the map: the first that leaves [`ENOUGH`] cubes, else the
/// last. Tall columns keep the partial sums few, low ones keep a GPU busy.
pub(super) const HEIGHTS: [u32; 3] = [32, 16, 8];

/// Eight cubes for each of 128 multiprocessors.
pub(super) const ENOUGH: usize = 1024;

/// `sum_c g_c grad I_c` at an output voxel, in image voxels.
#[cube]
fn index_gradient(
    image: &[f32],
    grad: &[f32],
    space: &Space,
    at: &Voxel,
    position: &Point,
    #[comptime] plan: Plan,
) -> Point {
    let (image_len, output_len) = (len(&space.input), len(&space.output));
    let voxel = offset(at, &space.output);
    let channels = channels(space, plan);
    let mut sum = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    for c in 0..channels {
        let channel = (at.n * channels + c) as usize;
        let g = grad[channel * output_len + voxel];
        let slope = slopes_at(image, channel * image_len, &space.input, position, plan);
        sum.x += g * slope.x;
        sum.y += g * slope.y;
        sum.z += g * slope.z;
    }
    sum
}

/// The slopes at a position in the channel that begins at `base`.
#[cube]
fn slopes_at(
    image: &[f32],
    base: usize,
    size: &Extent,
    position: &Point,
    #[comptime] plan: Plan,
) -> Point {
    let interpolation = comptime!(plan.interpolation);
    let padding = comptime!(plan.padding);
    let mut slope = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    if is_inner(position, size, interpolation, padding) {
        let s = inner_sample(position, size, interpolation, padding);
        let inner = slopes(&read_corners(image, base, size, &s), &s);
        slope.x = inner.x;
        slope.y = inner.y;
        slope.z = inner.z;
    } else {
        let s = sample_at(position, size, interpolation, padding);
        let outer = slopes(&read_corners(image, base, size, &s), &s);
        slope.x = outer.x;
        slope.y = outer.y;
        slope.z = outer.z;
    }
    slope
}

/// `dL/du = S^T g grad I`: no atomics.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn to_displacement_kernel(
    image: &[f32],
    affine: &[f32],
    displacement: &[f32],
    grad: &[f32],
    output: &mut [f32],
    space: Space,
    #[comptime] plan: Plan,
) {
    let first = column_of_unit(&space.output, PAIR);
    if !inside(&first, &space.output) {
        terminate!();
    }
    let map = map_of(affine, &space, first.n, plan);
    let mut x = Array::<f32>::new(comptime!(PAIR as usize));
    let mut y = Array::<f32>::new(comptime!(PAIR as usize));
    let mut z = Array::<f32>::new(comptime!(PAIR as usize));
    #[unroll]
    for k in 0..PAIR {
        let at = above(&first, k);
        if inside(&at, &space.output) {
            let u = displacement_at(displacement, &space, &at, plan);
            x[k as usize] = u.x;
            y[k as usize] = u.y;
            z[k as usize] = u.z;
        }
    }
    let s = &space.scale;
    let len = len(&space.output);
    #[unroll]
    for k in 0..PAIR {
        let at = above(&first, k);
        if inside(&at, &space.output) {
            let u = Point { x: x[k as usize], y: y[k as usize], z: z[k as usize] };
            let p = position(&map, &space, &at, &u, plan);
            let g = index_gradient(image, grad, &space, &at, &p, plan);
            let voxel = at.n as usize * 3 * len + offset(&at, &space.output);
            output[voxel] = s.xx * g.x + s.yx * g.y + s.zx * g.z;
            output[voxel + len] = s.xy * g.x + s.yy * g.y + s.zy * g.z;
            output[voxel + 2 * len] = s.xz * g.x + s.yz * g.y + s.zz * g.z;
        }
    }
}

/// `dL/d[A|t]`, one partial sum a cube: `partials[n, entry, cube]`.
///
/// Along a unit's column x and y are constant: it keeps `sum g` and `sum g z` only.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn to_affine_kernel(
    image: &[f32],
    affine: &[f32],
    displacement: &[f32],
    grad: &[f32],
    partials: &mut [f32],
    space: Space,
    batch: u32,
    #[comptime] plan: Plan,
    #[comptime] height: u32,
) {
    let first = column_of_unit(&space.output, height);
    let map = map_of(affine, &space, first.n, plan);
    let mut sum = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    let mut by_z = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    let mut steps = 0u32;
    if inside(&first, &space.output) {
        steps = min(space.output.d - first.z, comptime!(height));
    }
    for k in 0..steps {
        let at = above(&first, k);
        let u = displacement_at(displacement, &space, &at, plan);
        let p = position(&map, &space, &at, &u, plan);
        let g = index_gradient(image, grad, &space, &at, &p, plan);
        let z = f32::cast_from(at.z);
        sum.x += g.x;
        sum.y += g.y;
        sum.z += g.z;
        by_z.x += g.x * z;
        by_z.y += g.y * z;
        by_z.z += g.z * z;
    }
    let (x, y) = (f32::cast_from(first.x), f32::cast_from(first.y));
    let mut sums = Array::<f32>::new(12usize);
    write_row(&mut sums, 0usize, sum.x, by_z.x, x, y);
    write_row(&mut sums, 4usize, sum.y, by_z.y, x, y);
    write_row(&mut sums, 8usize, sum.z, by_z.z, x, y);

    // Where the cube's sums go: the batch entries of one affine map share a row.
    let slabs = space.output.d.div_ceil(height);
    let cubes_per_volume = CUBE_COUNT_X * CUBE_COUNT_Y * slabs;
    let cube = (CUBE_POS_Z % slabs * CUBE_COUNT_Y + CUBE_POS_Y) * CUBE_COUNT_X + CUBE_POS_X;
    let shared = space.affine_stride == 0;
    let first_row = select(shared, 0u32, first.n * 12);
    let column = select(shared, first.n * cubes_per_volume + cube, cube) as usize;
    let columns = select(shared, batch * cubes_per_volume, cubes_per_volume) as usize;
    let total = sums_of_units(&sums, 12u32);
    if UNIT_POS < 12 {
        partials[(first_row + UNIT_POS) as usize * columns + column] = total;
    }
}

/// One row of `sum g [p 1]^T`, from the sums of a column.
#[cube]
fn write_row(sums: &mut Array<f32>, #[comptime] row: usize, g: f32, by_z: f32, x: f32, y: f32) {
    sums[row] = g * x;
    sums[comptime!(row + 1)] = g * y;
    sums[comptime!(row + 2)] = by_z;
    sums[comptime!(row + 3)] = g;
}

const _: () = assert!(COLUMNS.x * COLUMNS.y * COLUMNS.z == UNITS, "the sums take a whole cube");
