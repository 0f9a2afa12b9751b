//! The local gradients: each voxel owns that of its displacement, and the map's is a sum.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::corners::{read_cell, read_corners, slopes};
use super::pair::{PAIR, Pair, cell_at, inside_cell, pair};
use super::reduce::sums_of_units;
use super::space::{Plan, Space, channels, displacement_at, map_of, position};
use super::taps::{Point, sample_at};
use super::voxel::{COLUMNS, Voxel, above, column_of_unit, inside, len, offset_in};
use ffdp_kit::launch::{Extent, UNITS};

/// Voxels of a unit in the gradient of the map: the first that leaves [`ENOUGH`] cubes, else the
/// last. Tall columns keep the partial sums few, low ones keep a GPU busy.
pub(super) const HEIGHTS: [u32; 3] = [32, 16, 8];

/// Eight cubes for each of 128 multiprocessors.
pub(crate) const ENOUGH: usize = 1024;

/// `sum_c g_c grad I_c` at both voxels of a pair, in image voxels; zero at one that does not exist.
#[derive(CubeType)]
struct Slopes {
    lower: Point,
    upper: Point,
}

/// `first` element of a channel of `grad`, of `channel_len` elements, that is read.
#[cube]
fn index_gradients<T: Float>(
    image: &[T],
    grad: &[f32],
    space: &Space,
    two: &Pair,
    first: usize,
    channel_len: usize,
    #[comptime] plan: Plan,
) -> Slopes {
    let image_len = len(&space.input);
    let below = offset_in(&two.lower, &space.output, plan.cells.narrow);
    let above = offset_in(&two.upper, &space.output, plan.cells.narrow);
    let channels = channels(space, plan);
    let mut lower = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    let mut upper = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    if two.in_cells {
        let s = cell_at(&two.at_lower, space, plan);
        let t = cell_at(&two.at_upper, space, plan);
        for c in 0..channels {
            let channel = (two.lower.n * channels + c) as usize;
            let (base, start) = (channel * image_len, channel * channel_len + first);
            let g = grad[start + below];
            let h = grad[start + above];
            let v = read_cell(image, base, &space.input, &s, plan.cells);
            let w = read_cell(image, base, &space.input, &t, plan.cells);
            add(&mut lower, g, &slopes(&v, &s));
            add(&mut upper, h, &slopes(&w, &t));
        }
    } else {
        for c in 0..channels {
            let channel = (two.lower.n * channels + c) as usize;
            let (base, start) = (channel * image_len, channel * channel_len + first);
            let slope = slopes_at(image, base, &space.input, &two.at_lower, plan);
            add(&mut lower, grad[start + below], &slope);
            if two.both {
                let slope = slopes_at(image, base, &space.input, &two.at_upper, plan);
                add(&mut upper, grad[start + above], &slope);
            }
        }
    }
    Slopes { lower, upper }
}

/// `sum_c g_c grad I_c` at one voxel, in image voxels.
#[cube]
fn index_gradient<T: Float>(
    image: &[T],
    grad: &[f32],
    space: &Space,
    at: &Voxel,
    position: &Point,
    #[comptime] plan: Plan,
) -> Point {
    let (image_len, output_len) = (len(&space.input), len(&space.output));
    let voxel = offset_in(at, &space.output, plan.cells.narrow);
    let channels = channels(space, plan);
    let mut sum = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    if inside_cell(position, space, plan) {
        let s = cell_at(position, space, plan);
        for c in 0..channels {
            let channel = (at.n * channels + c) as usize;
            let v = read_cell(image, channel * image_len, &space.input, &s, plan.cells);
            add(&mut sum, grad[channel * output_len + voxel], &slopes(&v, &s));
        }
    } else {
        for c in 0..channels {
            let channel = (at.n * channels + c) as usize;
            let slope = slopes_at(image, channel * image_len, &space.input, position, plan);
            add(&mut sum, grad[channel * output_len + voxel], &slope);
        }
    }
    sum
}

/// `sum += g slope`.
#[cube]
fn add(sum: &mut Point, g: f32, slope: &Point) {
    sum.x += g * slope.x;
    sum.y += g * slope.y;
    sum.z += g * slope.z;
}

/// The slopes at any position in the channel that begins at `base`.
#[cube]
fn slopes_at<T: Float>(
    image: &[T],
    base: usize,
    size: &Extent,
    position: &Point,
    #[comptime] plan: Plan,
) -> Point {
    let s = sample_at(position, size, plan.interpolation, plan.padding);
    slopes(&read_corners(image, base, size, &s), &s)
}

/// `dL/du = S^T g grad I`: no atomics. A unit owns a column of `pairs` pairs; `first` and `channel_len` as above.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn to_displacement_kernel<T: Float>(
    image: &[T],
    affine: &[f32],
    displacement: &[f32],
    grad: &[f32],
    output: &mut [f32],
    space: Space,
    first: usize,
    channel_len: usize,
    pairs: u32,
    #[comptime] plan: Plan,
    #[define(T)] _kind: ElemType,
) {
    // Voxels with a displacement lie in pairs along z.
    let lowest = column_of_unit(&space.output, PAIR * pairs);
    if !inside(&lowest, &space.output) {
        terminate!();
    }
    let map = map_of(affine, &space, lowest.n, plan);
    let left = (space.output.d - lowest.z).div_ceil(PAIR);
    for step in 0..min(pairs, left) {
        let lower = above(&lowest, PAIR * step);
        let two = pair(displacement, &map, &space, &lower, plan);
        let slopes = index_gradients(image, grad, &space, &two, first, channel_len, plan);
        write_gradient(output, &space, &two.lower, &slopes.lower, plan);
        if two.both {
            write_gradient(output, &space, &two.upper, &slopes.upper, plan);
        }
    }
}

/// `S^T g` at a voxel.
#[cube]
fn write_gradient(
    output: &mut [f32],
    space: &Space,
    at: &Voxel,
    g: &Point,
    #[comptime] plan: Plan,
) {
    let (s, len) = (&space.scale, len(&space.output));
    let voxel = at.n as usize * 3 * len + offset_in(at, &space.output, plan.cells.narrow);
    output[voxel] = s.xx * g.x + s.yx * g.y + s.zx * g.z;
    output[voxel + len] = s.xy * g.x + s.yy * g.y + s.zy * g.z;
    output[voxel + 2 * len] = s.xz * g.x + s.yz * g.y + s.zz * g.z;
}

/// `dL/d[A|t]`, one partial sum a cube: `partials[n, entry, cube]`.
///
/// Along a unit's column x and y are constant: it keeps `sum g` and `sum g z` only. One voxel at a time:
/// pairs need 89 registers and take longer.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn to_affine_kernel<T: Float>(
    image: &[T],
    affine: &[f32],
    displacement: &[f32],
    grad: &[f32],
    partials: &mut [f32],
    space: Space,
    batch: u32,
    #[comptime] plan: Plan,
    #[comptime] height: u32,
    #[define(T)] _kind: ElemType,
) {
    let first = column_of_unit(&space.output, height);
    let map = map_of(affine, &space, first.n, plan);
    let mut sum = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    let mut by_z = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    let mut steps = 0u32;
    if inside(&first, &space.output) {
        steps = min(space.output.d - first.z, comptime!(height));
    }
    for step in 0..steps {
        let at = above(&first, step);
        let u = displacement_at(displacement, &space, &at, plan);
        let g =
            index_gradient(image, grad, &space, &at, &position(&map, &space, &at, &u, plan), plan);
        add(&mut sum, 1.0f32.runtime(), &g);
        add(&mut by_z, f32::cast_from(at.z), &g);
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
