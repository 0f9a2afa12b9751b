//! Linear samples of fields that are continued with their border values.

use cubecl::prelude::*;

use super::corners::{read_cell, read_corners};
use super::taps::{Cells, Point, Sample, cell_sample, sample_at};
use crate::ops::grid_sample::{Interpolation, Padding};
use crate::ops::launch::Extent;

/// Where a position falls; in a cell wherever it is, if there are any.
#[cube]
pub(crate) fn sample_border(position: &Point, size: &Extent, #[comptime] cells: Cells) -> Sample {
    if comptime!(cells.exist) {
        cell_sample(position, size, Padding::Border)
    } else {
        sample_at(position, size, Interpolation::Linear, Padding::Border)
    }
}

/// The corners of such a sample in the channel that begins at `base`.
#[cube]
pub(crate) fn read_border(
    field: &[f32],
    base: usize,
    size: &Extent,
    at: &Sample,
    #[comptime] cells: Cells,
) -> Array<f32> {
    if comptime!(cells.exist) {
        read_cell(field, base, size, at, cells)
    } else {
        read_corners(field, base, size, at)
    }
}
