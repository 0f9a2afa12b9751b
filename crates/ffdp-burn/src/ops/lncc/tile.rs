//! Box sums on the GPU, plane by plane: what LNCC's marches along z share.
//!
//! A cube of 256 units owns a tile of 32 x 16 columns (32 x 8 for wide windows). Per plane it lays
//! the tile with its margin into shared memory, sums along x four windows at a time (they share
//! all but six of their values), then along y two at a time, and keeps the last `w` plane sums of
//! each column in registers. The next plane travels from memory meanwhile.
//!
//! Windows are added afresh for every plane: nothing drifts along z.
//!
//! Rows lie in shared memory as four interleaved combs (x mod 4), so that neighbouring units, which
//! work on every fourth window, read neighbouring words: no bank conflicts.

use cubecl::prelude::*;

use crate::ops::launch::{Extent, UNITS};

/// Columns of a tile along x.
pub(super) const TILE_X: u32 = 32;
/// Rows of units.
const UNITS_Y: u32 = UNITS / TILE_X;
/// Windows along x that one unit sums together.
const QUAD: u32 = 4;
/// Quads of a row.
const QUADS: u32 = TILE_X / QUAD;

/// A tile for windows of one radius; fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    pub radius: u32,
}

impl Tile {
    pub const fn window(self) -> u32 {
        2 * self.radius + 1
    }

    /// Columns of a unit, neighbours along y: as many as registers and shared memory (32 kB) allow.
    pub const fn columns(self) -> u32 {
        if self.radius <= 4 { 2 } else { 1 }
    }

    /// Rows of a tile.
    pub const fn height(self) -> u32 {
        UNITS_Y * self.columns()
    }

    const fn width_with_margin(self) -> u32 {
        TILE_X + 2 * self.radius
    }

    const fn rows_with_margin(self) -> u32 {
        self.height() + 2 * self.radius
    }

    /// Values that a unit loads of every plane, at most.
    pub const fn loads(self) -> u32 {
        (self.width_with_margin() * self.rows_with_margin()).div_ceil(UNITS)
    }

    /// Length of a comb.
    const fn comb(self) -> u32 {
        self.width_with_margin().div_ceil(QUAD)
    }

    /// Words from row to row: an odd multiple of 8, so that four rows of a quad's comb fall on
    /// different banks.
    const fn pitch(self) -> u32 {
        let pitch = (QUAD * self.comb()).next_multiple_of(8);
        if pitch.is_multiple_of(16) { pitch + 8 } else { pitch }
    }

    /// Words of the tile, and one for the units that have nothing to load.
    pub const fn len(self) -> usize {
        (self.rows_with_margin() * self.pitch() + 1) as usize
    }

    /// Words from row to row of the sums along x; padded where there is room.
    const fn sums_pitch(self) -> u32 {
        if self.columns() == 2 { TILE_X + 8 } else { TILE_X }
    }

    /// Words of the sums along x of one quantity.
    pub const fn sums_len(self) -> u32 {
        self.rows_with_margin() * self.sums_pitch()
    }

    /// Work items of the sums along x: four windows each.
    pub const fn quads(self) -> u32 {
        self.rows_with_margin() * QUADS
    }

    /// Registers of the last plane sums of one quantity.
    pub const fn ring_len(self) -> u32 {
        self.columns() * self.window()
    }
}

/// What this unit loads of every plane.
#[derive(CubeType)]
pub(super) struct Loads {
    /// Offsets in the plane, -1 for what lies outside the image.
    offsets: Array<i32>,
    /// Where in the tile they belong.
    slots: Array<u32>,
}

/// The loads of this unit in images of `size`.
#[cube]
pub(super) fn loads(size: &Extent, #[comptime] tile: Tile) -> Loads {
    let count = comptime!(tile.loads());
    let (width, rows) = comptime!((tile.width_with_margin(), tile.rows_with_margin()));
    let (pitch, comb) = comptime!((tile.pitch(), tile.comb()));
    let left = CUBE_POS_X as i32 * TILE_X as i32 - comptime!(tile.radius as i32);
    let top = CUBE_POS_Y as i32 * comptime!(tile.height() as i32) - comptime!(tile.radius as i32);
    let (w, h) = (size.w as i32, size.h as i32);
    let mut offsets = Array::<i32>::new(comptime!(count as usize));
    let mut slots = Array::<u32>::new(comptime!(count as usize));
    #[unroll]
    for k in 0..count {
        let item = UNIT_POS + k * UNITS;
        let (column, row) = (item % width, item / width);
        let (x, y) = (left + column as i32, top + row as i32);
        let inside = row < rows && x >= 0 && y >= 0 && x < w && y < h;
        offsets[k as usize] = select(inside, y * w + x, -1i32);
        let slot = row * pitch + (column % QUAD) * comb + column / QUAD;
        slots[k as usize] = select(row < rows, slot, rows * pitch);
    }
    Loads { offsets, slots }
}

/// The tile of one image or field: a plane in shared memory, and the next one on its way.
#[derive(CubeType)]
pub(super) struct Plane {
    values: Shared<[f32]>,
    next: Array<f32>,
}

#[cube]
pub(super) fn plane(#[comptime] tile: Tile) -> Plane {
    Plane {
        values: Shared::<[f32]>::new_slice(comptime!(tile.len())),
        next: Array::<f32>::new(comptime!(tile.loads() as usize)),
    }
}

/// Starts loading the plane that begins at `base`; zero outside the image.
#[cube]
pub(super) fn fetch(
    plane: &mut Plane,
    source: &[f32],
    base: usize,
    inside: bool,
    loads: &Loads,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for k in 0..comptime!(tile.loads()) {
        let offset = loads.offsets[k as usize];
        let mut value = 0.0f32;
        if inside && offset >= 0 {
            value = source[base + offset as usize];
        }
        plane.next[k as usize] = value;
    }
}

/// Lays what was fetched into shared memory, relative to `centre`.
#[cube]
pub(super) fn store(plane: &mut Plane, loads: &Loads, centre: f32, #[comptime] tile: Tile) {
    #[unroll]
    for k in 0..comptime!(tile.loads()) {
        plane.values[loads.slots[k as usize] as usize] = plane.next[k as usize] - centre;
    }
}

/// The `w + 3` values that the four windows of work item `item` reach.
#[cube]
pub(super) fn read_quad(plane: &Plane, item: u32, values: &mut Array<f32>, #[comptime] tile: Tile) {
    let start = (item / QUADS) * comptime!(tile.pitch()) + item % QUADS;
    #[unroll]
    for k in 0..comptime!(tile.window() + 3) {
        let step = comptime!((k % QUAD) * tile.comb() + k / QUAD);
        values[k as usize] = plane.values[(start + step) as usize];
    }
}

/// Writes the sums of the four windows of `values` as quantity `k` of work item `item`.
#[cube]
pub(super) fn write_quad_sums(
    values: &Array<f32>,
    sums: &mut Shared<[f32]>,
    item: u32,
    #[comptime] k: u32,
    #[comptime] tile: Tile,
) {
    let window = comptime!(tile.window() as usize);
    // Common to all four; then what each has more on its left and on its right.
    let mut common = 0.0f32;
    #[unroll]
    for i in 3..window {
        common += values[i];
    }
    let left_2 = values[2];
    let left_1 = values[1] + left_2;
    let left_0 = values[0] + left_1;
    let right_1 = values[window];
    let right_2 = right_1 + values[comptime!(window + 1)];
    let right_3 = right_2 + values[comptime!(window + 2)];
    let first = comptime!(k * tile.sums_len())
        + (item / QUADS) * comptime!(tile.sums_pitch())
        + item % QUADS;
    sums[first as usize] = left_0 + common;
    sums[(first + QUADS) as usize] = left_1 + common + right_1;
    sums[(first + 2 * QUADS) as usize] = left_2 + common + right_2;
    sums[(first + 3 * QUADS) as usize] = common + right_3;
}

/// x of this unit's columns.
#[cube]
pub(super) fn unit_x() -> u32 {
    let lane = UNIT_POS % TILE_X;
    CUBE_POS_X * TILE_X + (lane % QUADS) * QUAD + lane / QUADS
}

/// y of this unit's first column.
#[cube]
pub(super) fn unit_y(#[comptime] tile: Tile) -> u32 {
    CUBE_POS_Y * comptime!(tile.height()) + (UNIT_POS / TILE_X) * comptime!(tile.columns())
}

/// Sums quantity `k` along y, for the newest plane of this unit's columns; the oldest is dropped.
#[cube]
pub(super) fn push_plane(
    sums: &Shared<[f32]>,
    ring: &mut Array<f32>,
    #[comptime] k: u32,
    #[comptime] tile: Tile,
) {
    let (window, pitch) = comptime!((tile.window(), tile.sums_pitch()));
    let columns = comptime!(tile.columns());
    // The newest plane of the second column shifts into the first, and is overwritten there.
    let oldest = comptime!((k * tile.ring_len()) as usize);
    let newest = comptime!(oldest + window as usize - 1);
    #[unroll]
    for i in 0..comptime!(tile.ring_len() as usize - 1) {
        let next = ring[comptime!(oldest + i + 1)];
        ring[comptime!(oldest + i)] = next;
    }
    let start = comptime!(k * tile.sums_len())
        + (UNIT_POS / TILE_X) * comptime!(columns * pitch)
        + UNIT_POS % TILE_X;
    let first = sums[start as usize];
    let mut common = 0.0f32;
    #[unroll]
    for j in 1..window {
        common += sums[(start + j * pitch) as usize];
    }
    ring[newest] = first + common;
    if comptime!(columns == 2) {
        let last = sums[(start + window * pitch) as usize];
        ring[comptime!(newest + window as usize)] = common + last;
    }
}

/// Mean of quantity `k` over the window around this unit's column number `column`.
#[cube]
pub(super) fn window_mean(
    ring: &Array<f32>,
    #[comptime] k: u32,
    #[comptime] column: u32,
    #[comptime] tile: Tile,
) -> f32 {
    let window = comptime!(tile.window());
    let start = comptime!((k * tile.ring_len() + column * window) as usize);
    let mut sum = ring[start];
    #[unroll]
    for i in 1..window {
        sum += ring[comptime!(start + i as usize)];
    }
    sum * comptime!(1.0f32 / (window * window * window) as f32)
}
