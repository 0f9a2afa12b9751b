//! The gradient that is scattered: every output voxel adds `g` to the eight corners of its sample.
//!
//! Neighbours sample neighbours, so a cube of units takes a block of voxels and a tile of the image
//! around the block's mean position, adds into the tile in shared memory, and then adds the tile to
//! the image: one global addition a cell instead of eight a voxel. What falls outside the tile (a
//! rough field, a fold) is added directly, so that any field is right, only slower.
//!
//! In the tile contributions are whole numbers (`sink.rs`), rounded to `2^-20` of the next power of
//! two above the largest `|g|` of the block and channel: integers add natively in shared memory, and
//! without an order.

use cubecl::prelude::*;

use super::reduce::{TREE, max_of_units, sum_of_units};
use super::sink::{BITS, Sink, add, exponent, is_finite, power_of_two, size_of, whole};
use super::space::{Plan, Space, channels, displacement_at, map_of, position};
use super::taps::{Below, Point, Sample, below, sample_at};
use super::voxel::{Voxel, above, inside, len, offset};
use ffdp_kit::launch::{Extent, UNITS};

/// Voxels of a block along x, y, z: 1024 of them, as [`BITS`] has it.
pub(super) const BLOCK: [u32; 3] = [16, 8, 8];
/// Units of a cube along z; each owns every second voxel of its column.
pub(super) const UNITS_Z: u32 = 2;
/// Voxels of a unit.
const VOXELS: u32 = BLOCK[2] / UNITS_Z;

/// Cells of a tile along x, y, z: a block, the upper corners, and some room for its deformation.
const TILE_X: u32 = 22;
const TILE_Y: u32 = 14;
const TILE_Z: u32 = 14;
const CELLS: u32 = TILE_X * TILE_Y * TILE_Z;

/// In place of a cell: the sample reaches beyond the tile or the image, or there is no voxel.
const BEYOND: i32 = -1;
const NO_VOXEL: i32 = -2;

const _: () = assert!(BLOCK[0] * BLOCK[1] * UNITS_Z == UNITS, "reductions take a whole cube");
const _: () = assert!(BLOCK[0] * BLOCK[1] * BLOCK[2] <= 1 << (30 - BITS), "sums fit 32 bits");

/// The image voxel of a tile's first cell.
#[derive(CubeType, Clone, Copy)]
struct Origin {
    x: i32,
    y: i32,
    z: i32,
}

/// What a block and its channel have in common.
#[derive(CubeType, Clone, Copy)]
struct Scale {
    /// Of the largest `|g|` of the block, and of the volume's.
    block: i32,
    volume: i32,
    /// Whether the block is finite: else it is added directly, as floats.
    finite: bool,
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn scatter_kernel<A: Numeric>(
    affine: &[f32],
    displacement: &[f32],
    grad: &[f32],
    largest: &[f32],
    output: &[Atomic<A>],
    space: Space,
    elements: usize,
    #[comptime] plan: Plan,
    #[comptime] sink: Sink,
) {
    let tile = Shared::<[Atomic<i32>]>::new_slice(comptime!(CELLS as usize));
    let mut tree = Shared::<[f32]>::new_slice(TREE);
    let mut cell = UNIT_POS;
    while cell < CELLS {
        tile[cell as usize].store(0i32);
        cell += UNITS;
    }
    let slabs = space.output.d.div_ceil(comptime!(BLOCK[2]));
    let first = Voxel {
        n: CUBE_POS_Z / slabs,
        x: ABSOLUTE_POS_X,
        y: ABSOLUTE_POS_Y,
        z: (CUBE_POS_Z % slabs) * comptime!(BLOCK[2]) + UNIT_POS_Z,
    };
    let map = map_of(affine, &space, first.n, plan);
    // Where this unit's voxels sample, and the mean of the cube's.
    let mut x = Array::<f32>::new(comptime!(VOXELS as usize));
    let mut y = Array::<f32>::new(comptime!(VOXELS as usize));
    let mut z = Array::<f32>::new(comptime!(VOXELS as usize));
    let mut sum = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    let mut count = 0.0f32;
    #[unroll]
    for k in 0..VOXELS {
        let at = above(&first, k * UNITS_Z);
        if inside(&at, &space.output) {
            let u = displacement_at(displacement, &space, &at, plan);
            let p = position(&map, &space, &at, &u, plan);
            x[k as usize] = p.x;
            y[k as usize] = p.y;
            z[k as usize] = p.z;
            sum.x += f32::cast_from(axis_below(p.x, space.input.w, plan).index);
            sum.y += f32::cast_from(axis_below(p.y, space.input.h, plan).index);
            sum.z += f32::cast_from(axis_below(p.z, space.input.d, plan).index);
            count += 1.0;
        }
    }
    let count = sum_of_units(&mut tree, count);
    let origin = Origin {
        x: first_cell(sum_of_units(&mut tree, sum.x) / count, TILE_X),
        y: first_cell(sum_of_units(&mut tree, sum.y) / count, TILE_Y),
        z: first_cell(sum_of_units(&mut tree, sum.z) / count, TILE_Z),
    };
    let mut cells = Array::<i32>::new(comptime!(VOXELS as usize));
    #[unroll]
    for k in 0..VOXELS {
        let at = above(&first, k * UNITS_Z);
        let mut cell = NO_VOXEL.runtime();
        if inside(&at, &space.output) {
            let p = Point { x: x[k as usize], y: y[k as usize], z: z[k as usize] };
            cell = cell_of(&p, &origin, &space.input, plan);
        }
        cells[k as usize] = cell;
    }
    let (image_len, output_len) = (len(&space.input), len(&space.output));
    for c in 0..channels(&space, plan) {
        let channel = (first.n * channels(&space, plan) + c) as usize;
        let base = channel * image_len;
        let mut g = Array::<f32>::new(comptime!(VOXELS as usize));
        let mut most = 0.0f32;
        #[unroll]
        for k in 0..VOXELS {
            let at = above(&first, k * UNITS_Z);
            g[k as usize] = 0.0f32;
            if inside(&at, &space.output) {
                g[k as usize] = grad[channel * output_len + offset(&at, &space.output)];
                most = max(most, size_of(g[k as usize]));
            }
        }
        let most = max_of_units(&mut tree, most);
        let mut volume = 0i32;
        if comptime!(sink != Sink::Float) {
            volume = exponent(largest[channel]);
        }
        let scale = Scale { block: exponent(most), volume, finite: is_finite(most) };
        #[unroll]
        for k in 0..VOXELS {
            let p = Point { x: x[k as usize], y: y[k as usize], z: z[k as usize] };
            if cells[k as usize] >= 0 && scale.finite {
                let one = power_of_two(BITS - scale.block);
                add_to_cells(
                    &tile,
                    cells[k as usize] as u32,
                    &p,
                    &space.input,
                    g[k as usize] * one,
                    plan,
                );
            } else if cells[k as usize] != NO_VOXEL {
                add_to_corners::<A>(
                    &tile,
                    output,
                    elements,
                    base,
                    &p,
                    &origin,
                    &space.input,
                    g[k as usize],
                    &scale,
                    plan,
                    sink,
                );
            }
        }
        sync_cube();
        let mut cell = UNIT_POS;
        while cell < CELLS {
            let value = tile[cell as usize].load();
            if value != 0 {
                tile[cell as usize].store(0i32);
                let at = Voxel {
                    n: 0u32,
                    x: (origin.x + (cell % TILE_X) as i32) as u32,
                    y: (origin.y + (cell / TILE_X % TILE_Y) as i32) as u32,
                    z: (origin.z + (cell / comptime!(TILE_X * TILE_Y)) as i32) as u32,
                };
                let at = base + offset(&at, &space.input);
                add::<A>(output, elements, at, value, scale.block, scale.volume, sink);
            }
            cell += UNITS;
        }
        sync_cube();
    }
}

#[cube]
fn axis_below(coordinate: f32, size: u32, #[comptime] plan: Plan) -> Below {
    below(coordinate, size, comptime!(plan.interpolation), comptime!(plan.padding))
}

/// The first cell of a tile whose lower corners, all but the last, surround `mean`.
#[cube]
fn first_cell(mean: f32, #[comptime] cells: u32) -> i32 {
    i32::cast_from((mean - comptime!(0.5 * (cells - 2) as f32) + 0.5).floor())
}

/// The cell of the lower corner of a sample; [`BEYOND`] unless all corners lie in tile and image.
#[cube]
fn cell_of(p: &Point, origin: &Origin, size: &Extent, #[comptime] plan: Plan) -> i32 {
    let x = axis_below(p.x, size.w, plan).index;
    let y = axis_below(p.y, size.h, plan).index;
    let z = axis_below(p.z, size.d, plan).index;
    let (i, j, k) = (x - origin.x, y - origin.y, z - origin.z);
    let in_image = x >= 0
        && y >= 0
        && z >= 0
        && x + 1 < size.w as i32
        && y + 1 < size.h as i32
        && z + 1 < size.d as i32;
    let in_tile = i >= 0
        && j >= 0
        && k >= 0
        && i + 1 < TILE_X as i32
        && j + 1 < TILE_Y as i32
        && k + 1 < TILE_Z as i32;
    select(in_image && in_tile, (k * TILE_Y as i32 + j) * TILE_X as i32 + i, BEYOND.runtime())
}

/// Adds `g`, in units of the tile, to the eight corners of a sample that lie in the tile.
#[cube]
fn add_to_cells(
    tile: &Shared<[Atomic<i32>]>,
    cell: u32,
    p: &Point,
    size: &Extent,
    g: f32,
    #[comptime] plan: Plan,
) {
    let x = axis_below(p.x, size.w, plan).fraction;
    let y = axis_below(p.y, size.h, plan).fraction;
    let z = axis_below(p.z, size.d, plan).fraction;
    #[unroll]
    for row in 0..4u32 {
        let mut share = g;
        if comptime!(row & 1 == 1) {
            share *= y;
        } else {
            share *= 1.0 - y;
        }
        if comptime!(row & 2 == 2) {
            share *= z;
        } else {
            share *= 1.0 - z;
        }
        let at = cell + comptime!((row & 1) * TILE_X + (row >> 1) * TILE_X * TILE_Y);
        tile[at as usize].fetch_add(whole(share * (1.0 - x)));
        tile[(at + 1) as usize].fetch_add(whole(share * x));
    }
}

/// Adds `g`, weighted, to the corners of a sample anywhere: in the tile where they are, else in the
/// image.
#[cube]
fn add_to_corners<A: Numeric>(
    tile: &Shared<[Atomic<i32>]>,
    output: &[Atomic<A>],
    elements: usize,
    base: usize,
    p: &Point,
    origin: &Origin,
    size: &Extent,
    g: f32,
    scale: &Scale,
    #[comptime] plan: Plan,
    #[comptime] sink: Sink,
) {
    let s = sample_at(p, size, comptime!(plan.interpolation), comptime!(plan.padding));
    for corner in 0..8u32 {
        let at = corner_voxel(&s, corner);
        let weight = select(corner & 1 == 1, s.x.weight_high, s.x.weight_low)
            * select(corner & 2 == 2, s.y.weight_high, s.y.weight_low)
            * select(corner & 4 == 4, s.z.weight_high, s.z.weight_low);
        let i = at.x as i32 - origin.x;
        let j = at.y as i32 - origin.y;
        let k = at.z as i32 - origin.z;
        let in_tile = i >= 0
            && j >= 0
            && k >= 0
            && i < TILE_X as i32
            && j < TILE_Y as i32
            && k < TILE_Z as i32;
        let value = g * power_of_two(BITS - scale.block) * weight;
        if weight != 0.0 {
            if in_tile && scale.finite {
                let cell = (k * TILE_Y as i32 + j) * TILE_X as i32 + i;
                tile[cell as usize].fetch_add(whole(value));
            } else {
                let at = base + offset(&at, size);
                if comptime!(sink == Sink::Float) {
                    output[at].fetch_add(A::cast_from(g * weight));
                } else if scale.finite {
                    add::<A>(output, elements, at, whole(value), scale.block, scale.volume, sink);
                }
            }
        }
    }
}

/// One of the eight corners of a sample, its bits being the sides along x, y, z.
#[cube]
fn corner_voxel(s: &Sample, corner: u32) -> Voxel {
    Voxel {
        n: 0u32,
        x: select(corner & 1 == 1, s.x.high, s.x.low),
        y: select(corner & 2 == 2, s.y.high, s.y.low),
        z: select(corner & 4 == 4, s.z.high, s.z.low),
    }
}
