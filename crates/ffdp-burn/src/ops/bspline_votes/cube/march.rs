//! What a unit finds at a voxel of its column: where the moving image is sampled, and its value and slopes there.

use cubecl::prelude::*;

use super::WIDE;
use crate::ops::bspline::cube::column::{Column, column_at, component, march_to};
use crate::ops::grid_sample::cube::{
    Point, SamplePlan, Space, Voxel, cell_sample, in_cell, interpolate, len, map_of, position,
    read_cell, read_corners, sample_at, slopes,
};
use crate::ops::launch::Extent;

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

/// The moving image at a position.
#[cube]
pub(in crate::ops) fn value_at<T: Float>(
    image: &[T],
    space: &Space,
    at: &Point,
    #[comptime] plan: SamplePlan,
) -> f32 {
    let base = CUBE_POS_Y as usize * len(&space.input);
    let (interpolation, padding, cells) = comptime!((plan.interpolation, plan.padding, plan.cells));
    let mut value = 0.0f32;
    if in_cell(at, &space.input, interpolation, padding, cells) {
        let s = cell_sample(at, &space.input, padding);
        value += interpolate(&read_cell(image, base, &space.input, &s, cells), &s);
    } else {
        let s = sample_at(at, &space.input, interpolation, padding);
        value += interpolate(&read_corners(image, base, &space.input, &s), &s);
    }
    value
}

/// The moving image at a position, and how it changes there.
#[derive(CubeType)]
pub(in crate::ops) struct Shown {
    pub value: f32,
    pub slope: Point,
}

#[cube]
pub(in crate::ops) fn shown_at<T: Float>(
    image: &[T],
    space: &Space,
    at: &Point,
    #[comptime] plan: SamplePlan,
) -> Shown {
    let base = CUBE_POS_Y as usize * len(&space.input);
    let (interpolation, padding, cells) = comptime!((plan.interpolation, plan.padding, plan.cells));
    let mut shown = Shown { value: 0.0f32, slope: Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 } };
    if in_cell(at, &space.input, interpolation, padding, cells) {
        let s = cell_sample(at, &space.input, padding);
        let v = read_cell(image, base, &space.input, &s, cells);
        let slope = slopes(&v, &s);
        shown.value = interpolate(&v, &s);
        shown.slope.x = slope.x;
        shown.slope.y = slope.y;
        shown.slope.z = slope.z;
    } else {
        let s = sample_at(at, &space.input, interpolation, padding);
        let v = read_corners(image, base, &space.input, &s);
        let slope = slopes(&v, &s);
        shown.value = interpolate(&v, &s);
        shown.slope.x = slope.x;
        shown.slope.y = slope.y;
        shown.slope.z = slope.z;
    }
    shown
}
