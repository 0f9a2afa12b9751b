//! What a unit finds at a voxel of its column: where the moving image is sampled, and its value and slopes there.

use cubecl::prelude::*;

use super::WIDE;
use crate::ops::bspline::cube::column::{Column, column_at, component, march_to};
use crate::ops::grid_sample::cube::{
    Point, Sample, SamplePlan, Space, Voxel, below, interpolate, len, map_of, offset_of,
    pairs_from, position, read_pairs, slopes, tap_within,
};
use ffdp_kit::launch::Extent;

/// How columns are shared out: tiles of a cube's units along x and y, each in `chunks` of `chunk` planes.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(in crate::ops) struct Tiles {
    pub x: u32,
    pub y: u32,
    pub chunks: u32,
    pub chunk: u32,
}

/// A unit's part of a task of its cube.
#[derive(CubeType)]
pub(in crate::ops) struct March {
    pub column: Column,
    pub x: u32,
    pub y: u32,
    /// Planes of the task, the same for all units of a cube.
    pub start: u32,
    pub stop: u32,
    /// Whether the column is one of the image; all units march, so that they can wait for each other.
    pub exists: bool,
}

/// The march of this unit in a task; of the volume `CUBE_POS_Y`.
#[cube]
pub(in crate::ops) fn march_of(
    coefficients: &[f32],
    tables: &[f32],
    size: &Extent,
    controls: &Extent,
    tiles: &Tiles,
    task: u32,
) -> March {
    let (tile, chunk) = (task / tiles.chunks, task % tiles.chunks);
    let x = tile % tiles.x * comptime!(WIDE) + UNIT_POS_X;
    let y = tile / tiles.x * CUBE_DIM_Y + UNIT_POS_Y;
    let start = chunk * tiles.chunk;
    let stop = min(start + tiles.chunk, size.d);
    let exists = x < size.w && y < size.h;
    let volume = controls.d as usize * controls.h as usize * controls.w as usize;
    let first = CUBE_POS_Y as usize * 3 * volume;
    let (at_x, at_y) = (min(x, size.w - 1), min(y, size.h - 1));
    let column = column_at(coefficients, tables, size, controls, first, at_x, at_y, start, 3u32);
    March { column, x, y, start, stop, exists }
}

/// Tasks of a cube.
#[cube]
pub(in crate::ops) fn tasks(tiles: &Tiles) -> u32 {
    tiles.x * tiles.y * tiles.chunks
}

/// `A p + t + S u` at plane `z` of the march.
#[cube]
pub(in crate::ops) fn position_at(
    march: &mut March,
    coefficients: &[f32],
    tables: &[f32],
    map: &Array<f32>,
    space: &Space,
    controls: &Extent,
    z: u32,
    #[comptime] plan: SamplePlan,
) -> Point {
    let entry = march_to(&mut march.column, coefficients, tables, controls, z, 3u32);
    let u = Point {
        x: component(&march.column, tables, entry, 0u32),
        y: component(&march.column, tables, entry, 1u32),
        z: component(&march.column, tables, entry, 2u32),
    };
    let at = Voxel { n: CUBE_POS_Y, x: march.x, y: march.y, z };
    position(map, space, &at, &u, plan)
}

/// The map of the volume `CUBE_POS_Y`.
#[cube]
pub(in crate::ops) fn own_map(
    affine: &[f32],
    space: &Space,
    #[comptime] plan: SamplePlan,
) -> Array<f32> {
    map_of(affine, space, CUBE_POS_Y, plan)
}

/// The corners of the cell of the moving image around a position, 0 beyond the image, into place `k` of `corners`, and
/// how far the position lies within the cell.
#[cube]
fn corners_at<T: Float>(
    image: &[T],
    space: &Space,
    at: &Point,
    corners: &mut Array<f32>,
    #[comptime] k: u32,
    #[comptime] plan: SamplePlan,
) -> Point {
    let size = &space.input;
    let base = CUBE_POS_Y as usize * len(size);
    let (interpolation, padding, cells) = comptime!((plan.interpolation, plan.padding, plan.cells));
    let x = below(at.x, size.w, interpolation, padding);
    let y = below(at.y, size.h, interpolation, padding);
    let z = below(at.z, size.d, interpolation, padding);
    let (i, j, m) =
        (u32::reinterpret(x.index), u32::reinterpret(y.index), u32::reinterpret(z.index));
    if comptime!(cells.exist).runtime() && i < size.w - 1 && j < size.h - 1 && m < size.d - 1 {
        let lowest = base + offset_of(i, j, m, size, cells.narrow);
        let values = read_pairs(image, &pairs_from(lowest, size), 0usize);
        #[unroll]
        for c in 0..8usize {
            corners[comptime!(8 * k as usize + c)] = values[c];
        }
    } else {
        #[unroll]
        for c in 0..8u32 {
            // An index below 0 wraps to one beyond every size.
            let (i, j, m) =
                (i + comptime!(c & 1), j + comptime!((c >> 1) & 1), m + comptime!(c >> 2));
            let mut value = 0.0f32;
            if i < size.w && j < size.h && m < size.d {
                value = f32::cast_from(image[base + offset_of(i, j, m, size, cells.narrow)]);
            }
            corners[comptime!((8 * k + c) as usize)] = value;
        }
    }
    Point { x: x.fraction, y: y.fraction, z: z.fraction }
}

/// The moving image at a position.
#[cube]
pub(in crate::ops) fn value_at<T: Float>(
    image: &[T],
    space: &Space,
    at: &Point,
    #[comptime] plan: SamplePlan,
) -> f32 {
    let mut corners = Array::<f32>::new(8usize);
    let within = corners_at(image, space, at, &mut corners, 0u32, plan);
    interpolate(&corners, &sample_within(&within))
}

#[cube]
fn sample_within(at: &Point) -> Sample {
    Sample { x: tap_within(at.x), y: tap_within(at.y), z: tap_within(at.z) }
}

/// What a unit has asked memory for at some planes of its column. It waits where it looks at it: the planes are under
/// way together.
#[derive(CubeType)]
pub(in crate::ops) struct Asked {
    /// Eight a plane.
    corners: Array<f32>,
    /// Three a plane: where in their cell the moving image is sampled.
    within: Array<f32>,
    /// Values of the fixed image.
    pub fixed: Array<f32>,
}

/// Asks for both images at planes `z .. z + count` of the march; at its last plane in place of those above it, and at the
/// last column in place of those outside the image.
#[cube]
pub(in crate::ops) fn ask<A: Float, B: Float>(
    march: &mut March,
    fixed: &[B],
    moving: &[A],
    coefficients: &[f32],
    tables: &[f32],
    map: &Array<f32>,
    space: &Space,
    controls: &Extent,
    z: u32,
    #[comptime] count: u32,
    #[comptime] plan: SamplePlan,
) -> Asked {
    let size = &space.output;
    let row =
        CUBE_POS_Y as usize * size.d as usize * size.h as usize + min(march.y, size.h - 1) as usize;
    let first = row * size.w as usize + min(march.x, size.w - 1) as usize;
    let mut asked = Asked {
        corners: Array::<f32>::new(comptime!(8 * count as usize)),
        within: Array::<f32>::new(comptime!(3 * count as usize)),
        fixed: Array::<f32>::new(comptime!(count as usize)),
    };
    #[unroll]
    for k in 0..count {
        let plane = min(z + k, march.stop - 1);
        let at = position_at(march, coefficients, tables, map, space, controls, plane, plan);
        let voxel = first + plane as usize * (size.h as usize * size.w as usize);
        asked.fixed[comptime!(k as usize)] = f32::cast_from(fixed[voxel]);
        let within = corners_at(moving, space, &at, &mut asked.corners, k, plan);
        asked.within[comptime!(3 * k as usize)] = within.x;
        asked.within[comptime!(3 * k as usize + 1)] = within.y;
        asked.within[comptime!(3 * k as usize + 2)] = within.z;
    }
    asked
}

/// The moving image at a position, and how it changes there.
#[derive(CubeType)]
pub(in crate::ops) struct Shown {
    pub value: f32,
    pub slope: Point,
}

/// The moving image at plane `k` of those that were asked for.
#[cube]
pub(in crate::ops) fn look(asked: &Asked, #[comptime] k: u32) -> Shown {
    let within = Point {
        x: asked.within[comptime!(3 * k as usize)],
        y: asked.within[comptime!(3 * k as usize + 1)],
        z: asked.within[comptime!(3 * k as usize + 2)],
    };
    let s = sample_within(&within);
    let mut corners = Array::<f32>::new(8usize);
    #[unroll]
    for c in 0..8usize {
        corners[c] = asked.corners[comptime!(8 * k as usize + c)];
    }
    Shown { value: interpolate(&corners, &s), slope: slopes(&corners, &s) }
}
