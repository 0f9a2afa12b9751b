//! Linear samples of fields that are continued with their border values.

use cubecl::prelude::*;

use super::corners::{pairs_of_cell, read_corners, read_pairs};
use super::taps::{Cells, Point, Sample, cell_sample, sample_at};
use crate::ops::grid_sample::{Interpolation, Padding};
use ffdp_kit::launch::Extent;

/// Where a position falls; in a cell wherever it is, if there are any.
#[cube]
pub(crate) fn sample_border(position: &Point, size: &Extent, #[comptime] cells: Cells) -> Sample {
    if comptime!(cells.exist) {
        cell_sample(position, size, Padding::Border)
    } else {
        sample_at(position, size, Interpolation::Linear, Padding::Border)
    }
}

/// What the channels of a sample have in common: where its pairs begin in the first of them; nothing
/// where there are no cells.
#[cube]
pub(crate) fn pairs_border(
    first: usize,
    size: &Extent,
    at: &Sample,
    #[comptime] cells: Cells,
) -> Array<usize> {
    if comptime!(cells.exist) {
        pairs_of_cell(first, size, at, cells)
    } else {
        Array::<usize>::new(4usize)
    }
}

/// The corners of a sample in channel `c`, of `len` elements each, the first of which begins at `first`.
#[cube]
pub(crate) fn read_border(
    field: &[f32],
    first: usize,
    len: usize,
    pairs: &Array<usize>,
    size: &Extent,
    at: &Sample,
    #[comptime] c: usize,
    #[comptime] cells: Cells,
) -> Array<f32> {
    if comptime!(cells.exist) {
        read_pairs(field, pairs, c * len)
    } else {
        read_corners(field, first + c * len, size, at)
    }
}
