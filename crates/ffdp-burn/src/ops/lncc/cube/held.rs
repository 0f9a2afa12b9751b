//! The last planes of a few columns, in the registers of a unit.

use cubecl::prelude::*;

use super::tile::March;
use super::tile::{LANES, SPAN, Tile};
use ffdp_kit::launch::Extent;

/// The columns that a unit holds.
#[derive(CubeType)]
pub(super) struct HeldColumns {
    /// Of the first column; may lie outside the image.
    x: i32,
    /// Of the first column in its plane.
    offset: i32,
    row_exists: bool,
    width: i32,
}

#[cube]
pub(super) fn place(size: &Extent, march: &March, #[comptime] tile: Tile) -> HeldColumns {
    let x = (march.x * comptime!(tile.columns()) + UNIT_POS % LANES * SPAN) as i32
        - comptime!(tile.outside() as i32);
    let y = (march.y * comptime!(tile.height()) + UNIT_POS / LANES) as i32
        - comptime!(tile.radius as i32);
    let width = size.w as i32;
    HeldColumns { x, offset: y * width + x, row_exists: y >= 0 && y < size.h as i32, width }
}

/// Loads the unit's columns of the plane that begins at `base` as plane `slot` of those held; zeros
/// outside the image. Rows are read four values at a time where `N` is 4: then the image's width is
/// a multiple of 4, and columns lie inside it or outside together.
#[cube]
pub(super) fn fetch<T: Float, N: Size>(
    source: &[Vector<T, N>],
    base: usize,
    inside: bool,
    place: &HeldColumns,
    held: &mut Array<f32>,
    #[comptime] slot: u32,
    #[comptime] vector: u32,
) {
    let first = comptime!((slot * SPAN) as usize);
    if comptime!(vector == SPAN) {
        let mut values = Vector::<f32, N>::new(0.0f32);
        if inside && place.row_exists && place.x >= 0 && place.x < place.width {
            let place = (base + place.offset as usize) / comptime!(SPAN as usize);
            values = Vector::<f32, N>::cast_from(source[place]);
        }
        #[unroll]
        for j in 0..comptime!(SPAN as usize) {
            held[comptime!(first + j)] = values.extract(j);
        }
    } else {
        #[unroll]
        for j in 0..comptime!(SPAN as usize) {
            let x = place.x + comptime!(j as i32);
            let mut value = 0.0f32;
            if inside && place.row_exists && x >= 0 && x < place.width {
                let place = base + (place.offset + comptime!(j as i32)) as usize;
                value = f32::cast_from(source[place].extract(0usize));
            }
            held[comptime!(first + j)] = value;
        }
    }
}

/// Planes `[first, last)` of those held, relative to `centre` and times `unit`.
#[cube]
pub(super) fn centred(
    held: &mut Array<f32>,
    centre: f32,
    #[comptime] unit: f32,
    #[comptime] first: u32,
    #[comptime] last: u32,
) {
    #[unroll]
    for i in comptime!(first * SPAN)..comptime!(last * SPAN) {
        held[i as usize] = held[i as usize] * unit - centre * unit;
    }
}

/// Drops the oldest planes, as many as a step completes.
#[cube]
pub(super) fn advance(held: &mut Array<f32>, #[comptime] tile: Tile) {
    #[unroll]
    for i in 0..comptime!((tile.window() - 1) * SPAN) {
        let next = held[comptime!((i + tile.planes * SPAN) as usize)];
        held[i as usize] = next;
    }
}
