//! The eight voxels around a sample: their weighted mean, its slopes, and their majority.

use cubecl::prelude::*;

use super::taps::{Cells, Point, Sample, side};
use super::voxel::offset_of;
use ffdp_kit::launch::Extent;

/// Reads the corners of a sample in the channel that begins at `base`; x fastest, then y, then z.
#[cube]
pub(crate) fn read_corners<T: Float>(
    image: &[T],
    base: usize,
    size: &Extent,
    at: &Sample,
) -> Array<f32> {
    let mut values = Array::<f32>::new(8usize);
    #[unroll]
    for row in 0..4u32 {
        let y = side(&at.y, comptime!(row & 1 == 1));
        let z = side(&at.z, comptime!(row & 2 == 2));
        let start =
            base + (z.index as usize * size.h as usize + y.index as usize) * size.w as usize;
        values[comptime!(2 * row as usize)] = f32::cast_from(image[start + at.x.low as usize]);
        values[comptime!(2 * row as usize + 1)] = f32::cast_from(image[start + at.x.high as usize]);
    }
    values
}

/// [`read_corners`] of a sample in a cell, see [`in_cell`](super::taps::in_cell).
#[cube]
pub(crate) fn read_cell<T: Float>(
    image: &[T],
    base: usize,
    size: &Extent,
    at: &Sample,
    #[comptime] cells: Cells,
) -> Array<f32> {
    let pairs = pairs_of_cell(base, size, at, cells);
    read_pairs(image, &pairs, 0usize)
}

/// Where the four pairs of neighbours along x begin that are the corners of a cell, in the channel that
/// begins at `base`. From one to the next by the distance that all cells share: an addition each.
#[cube]
pub(crate) fn pairs_of_cell(
    base: usize,
    size: &Extent,
    at: &Sample,
    #[comptime] cells: Cells,
) -> Array<usize> {
    pairs_from(base + offset_of(at.x.low, at.y.low, at.z.low, size, cells.narrow), size)
}

/// The same from the lowest corner.
#[cube]
pub(crate) fn pairs_from(lowest: usize, size: &Extent) -> Array<usize> {
    let mut pairs = Array::<usize>::new(4usize);
    let row = size.w as usize;
    let plane = size.h as usize * row;
    pairs[0] = lowest;
    pairs[1] = lowest + row;
    pairs[2] = lowest + plane;
    pairs[3] = lowest + (plane + row);
    pairs
}

/// The corners of a cell, `further` elements behind the given pairs.
#[cube]
pub(crate) fn read_pairs<T: Float>(
    image: &[T],
    pairs: &Array<usize>,
    further: usize,
) -> Array<f32> {
    let mut values = Array::<f32>::new(8usize);
    #[unroll]
    for k in 0..4usize {
        let start = pairs[k] + further;
        values[comptime!(2 * k)] = f32::cast_from(image[start]);
        values[comptime!(2 * k + 1)] = f32::cast_from(image[start + 1]);
    }
    values
}

/// The weighted mean of the corners.
#[cube]
pub(crate) fn interpolate(v: &Array<f32>, at: &Sample) -> f32 {
    let x = &at.x;
    let y = &at.y;
    let z = &at.z;
    let near = y.weight_low * (x.weight_low * v[0] + x.weight_high * v[1])
        + y.weight_high * (x.weight_low * v[2] + x.weight_high * v[3]);
    let far = y.weight_low * (x.weight_low * v[4] + x.weight_high * v[5])
        + y.weight_high * (x.weight_low * v[6] + x.weight_high * v[7]);
    z.weight_low * near + z.weight_high * far
}

/// The derivatives of [`interpolate`] by the position, in image voxels.
#[cube]
pub(crate) fn slopes(v: &Array<f32>, at: &Sample) -> Point {
    let x = &at.x;
    let y = &at.y;
    let z = &at.z;
    // Along x: the mean of each row of two corners, and its slope.
    let mut mean = Array::<f32>::new(4usize);
    let mut slope = Array::<f32>::new(4usize);
    #[unroll]
    for row in 0..4usize {
        let (low, high) = (v[comptime!(2 * row)], v[comptime!(2 * row + 1)]);
        mean[row] = x.weight_low * low + x.weight_high * high;
        slope[row] = x.slope_low * low + x.slope_high * high;
    }
    Point {
        x: z.weight_low * (y.weight_low * slope[0] + y.weight_high * slope[1])
            + z.weight_high * (y.weight_low * slope[2] + y.weight_high * slope[3]),
        y: z.weight_low * (y.slope_low * mean[0] + y.slope_high * mean[1])
            + z.weight_high * (y.slope_low * mean[2] + y.slope_high * mean[3]),
        z: z.slope_low * (y.weight_low * mean[0] + y.weight_high * mean[1])
            + z.slope_high * (y.weight_low * mean[2] + y.weight_high * mean[3]),
    }
}

/// The label with the largest sum of corner weights, the smallest of equal ones; 0 outside.
#[cube]
pub(crate) fn majority(v: &Array<f32>, at: &Sample) -> f32 {
    let mut labels = Array::<f32>::new(8usize);
    let mut weights = Array::<f32>::new(8usize);
    #[unroll]
    for corner in 0..8u32 {
        let x = side(&at.x, comptime!(corner & 1 == 1));
        let y = side(&at.y, comptime!(corner & 2 == 2));
        let z = side(&at.z, comptime!(corner & 4 == 4));
        let inside = x.inside && y.inside && z.inside;
        labels[corner as usize] = select(inside, v[corner as usize], 0.0f32);
        weights[corner as usize] = x.weight * y.weight * z.weight;
    }
    let mut best = 0.0f32;
    let mut most = 0.0f32;
    #[unroll]
    for corner in 0..8usize {
        let label = labels[corner];
        let mut share = 0.0f32;
        #[unroll]
        for other in 0..8usize {
            share += select(labels[other] == label, weights[other], 0.0f32);
        }
        if share > most || (share == most && label < best) {
            best = label;
            most = share;
        }
    }
    best
}
