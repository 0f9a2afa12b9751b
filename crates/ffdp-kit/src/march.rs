//! Marches along z on the GPU: who owns which columns, for kernels that keep neighbours in registers.
//!
//! A cube of 256 units owns a tile of columns and walks over its planes. A unit has one x and a few
//! rows, neighbours along y: it loads them with those around them, so what happens along y stays in
//! its registers, as does what happens along z. Values of neighbours along x are read once more (the
//! cache has them); results of neighbours are met in shared memory. Where they are needed, tiles
//! overlap by a margin, whose units help but write nothing: every unit does the same work, whatever
//! its place. A kernel that only looks at voxels by themselves needs none of this: see [`crate::launch::cubes`].
//!
//! The next plane travels from memory while the present one is worked on.

// The macros of CubeCL make items of their own, without documentation.
#![allow(missing_docs)]

use cubecl::prelude::*;

use super::cubes::{blocks, launched};
use super::launch::{Extent, UNITS};

/// The columns of a cube; fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Units along x: whole warps.
    pub units_x: u32,
    /// Rows of a unit.
    pub rows: u32,
    /// Units on either side, along x, that write nothing.
    pub margin: u32,
    /// Rows on either side, along y, that are not written.
    pub row_margin: u32,
}

impl Tile {
    /// Columns along x that are written.
    pub const fn width(self) -> u32 {
        self.units_x - 2 * self.margin
    }

    /// Units along y.
    pub const fn groups(self) -> u32 {
        UNITS / self.units_x
    }

    /// Rows that are written.
    pub const fn height(self) -> u32 {
        self.groups() * self.rows - 2 * self.row_margin
    }

    /// Words of shared memory for one value of every unit and row.
    pub const fn words(self) -> u32 {
        UNITS * self.rows
    }
}

/// The part of a volume that a unit marches over.
#[derive(CubeType)]
pub struct Column {
    /// Of the unit; outside the volume at its borders.
    pub x: i32,
    /// First of the unit's rows.
    pub y: i32,
    /// Whether the unit writes: not in the margin, and x exists.
    pub writes: bool,
    /// Where the unit's first row lies in shared memory; the next rows are `units_x` words on.
    pub slot: u32,
    /// Which volume of the batch.
    pub volume: u32,
    /// The first of its planes.
    pub start: i32,
    /// The plane after its last.
    pub stop: i32,
}

/// The columns of this unit, on a grid of [`grid`].
#[cube]
pub fn column(size: &Extent, chunk: u32, #[comptime] tile: Tile) -> Column {
    let (lane, group) = (UNIT_POS % tile.units_x, UNIT_POS / tile.units_x);
    let chunks = size.d.div_ceil(chunk);
    let start = (CUBE_POS_Z % chunks) * chunk;
    let x = (CUBE_POS_X * comptime!(tile.width()) + lane) as i32 - comptime!(tile.margin as i32);
    let y = (CUBE_POS_Y * comptime!(tile.height()) + group * tile.rows) as i32
        - comptime!(tile.row_margin as i32);
    let own = lane >= tile.margin && lane < comptime!(tile.units_x - tile.margin);
    Column {
        x,
        y,
        writes: own && x < size.w as i32,
        slot: group * comptime!(tile.rows * tile.units_x) + lane,
        volume: CUBE_POS_Z / chunks,
        start: start as i32,
        stop: min(start + chunk, size.d) as i32,
    }
}

/// `position` moved onto an axis of `len` voxels.
#[cube]
pub fn clamped(position: i32, len: u32) -> u32 {
    min(max(position, 0i32) as u32, len - 1)
}

/// The first element of plane `z` of a volume; of its nearest plane where there is none.
#[cube]
pub fn plane(size: &Extent, volume: u32, z: i32) -> usize {
    let index = volume as usize * size.d as usize + clamped(z, size.d) as usize;
    index * (size.h as usize * size.w as usize)
}

/// Where in a plane `count` rows of a unit lie, from row `first` on; the nearest voxel of the plane
/// where there is none.
#[cube]
pub fn rows(
    size: &Extent,
    at: &Column,
    #[comptime] first: i32,
    #[comptime] count: usize,
) -> Array<usize> {
    let mut offsets = Array::<usize>::new(count);
    let x = clamped(at.x, size.w) as usize;
    #[unroll]
    for j in 0..count {
        let y = clamped(at.y + comptime!(first + j as i32), size.h);
        offsets[j] = y as usize * size.w as usize + x;
    }
    offsets
}

/// Elements from this unit's voxels to their neighbours along x.
#[derive(CubeType, Clone, Copy)]
pub struct Neighbours {
    /// Down to the left one.
    pub left: usize,
    /// Up to the right one.
    pub right: usize,
}

/// 0 at the border, where a voxel is its own neighbour, and for units beyond it, which stand on the
/// last voxel.
#[cube]
pub fn neighbours(size: &Extent, at: &Column) -> Neighbours {
    let x = clamped(at.x, size.w);
    Neighbours {
        left: select(x > 0, 1usize, 0usize),
        right: select(x + 1 < size.w, 1usize, 0usize),
    }
}

/// Loads the rows of a plane of `channels` volumes, `len` elements apart, channel after channel. The
/// plane may be moved by a neighbour's distance: what wraps below 0 wraps back.
#[cube]
pub fn load(
    source: &[f32],
    values: &mut Array<f32>,
    offsets: &Array<usize>,
    plane: usize,
    len: usize,
    #[comptime] channels: usize,
    #[comptime] count: usize,
) {
    #[unroll]
    for c in 0..channels {
        #[unroll]
        for j in 0..count {
            values[comptime!(c * count + j)] = source[plane + c * len + offsets[j]];
        }
    }
}

/// Steps by a plane: what was ahead is here.
#[cube]
pub fn shift(here: &mut Array<f32>, ahead: &Array<f32>, #[comptime] count: usize) {
    #[unroll]
    for i in 0..count {
        let value = ahead[i];
        here[i] = value;
    }
}

/// The cubes of a march: their grid, and how many planes each walks over.
pub struct Grid {
    /// Cubes along x, y and z.
    pub count: [u32; 3],
    /// Planes of a cube.
    pub chunk: u32,
}

impl Grid {
    /// How many cubes there are.
    pub fn cubes(&self) -> usize {
        self.count.iter().map(|count| *count as usize).product()
    }

    /// The grid as a launch takes it.
    pub fn launch(&self) -> CubeCount {
        launched(self.count)
    }
}

/// Cubes that a launch should have: eight for each multiprocessor of a large GPU, so that the last
/// ones to finish are a small part. More would share out the planes in shorter marches, each of
/// which reads a margin of planes on top.
const CUBES_WANTED: usize = 1056;

/// The grid over `volumes` of `size`, of chunks of at least `shortest` planes.
///
/// # Panics
/// If the grid exceeds what every GPU offers (65535 cubes along an axis).
pub fn grid(op: &str, tile: Tile, volumes: usize, [d, h, w]: [usize; 3], shortest: usize) -> Grid {
    let (x, y) = (w.div_ceil(tile.width() as usize), h.div_ceil(tile.height() as usize));
    let chunks = CUBES_WANTED.div_ceil(x * y * volumes);
    let chunk = d.div_ceil(chunks).max(shortest).min(d) as u32;
    let count = blocks(op, volumes, [d, h, w], [tile.width(), tile.height(), chunk]);
    Grid { count, chunk }
}
