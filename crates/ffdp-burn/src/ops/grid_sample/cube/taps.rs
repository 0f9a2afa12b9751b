//! Where a coordinate falls between voxels; see `Tap` in `flex.rs`.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::ops::grid_sample::{Interpolation, Padding};
use ffdp_kit::launch::Extent;

/// The voxel below a coordinate and the fraction of the way to the next one.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Below {
    pub index: i32,
    pub fraction: f32,
}

/// The two voxels along one axis between which a coordinate lies.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Tap {
    /// Indices, clamped into the image so that they can always be read.
    pub low: u32,
    pub high: u32,
    /// Weights; zero outside the image, except for labels.
    pub weight_low: f32,
    pub weight_high: f32,
    /// Derivatives of the weights by the coordinate.
    pub slope_low: f32,
    pub slope_high: f32,
    /// Whether the voxels lie in the image.
    pub inside_low: bool,
    pub inside_high: bool,
}

/// One of the two voxels of a tap.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Side {
    pub index: u32,
    pub weight: f32,
    pub inside: bool,
}

/// A point or vector in index space.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Point {
    pub x: f32,
    pub y: f32,
    pub z: f32,
}

/// A sampled position: one tap per axis.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Sample {
    pub x: Tap,
    pub y: Tap,
    pub z: Tap,
}

#[cube]
pub(crate) fn below(
    coordinate: f32,
    size: u32,
    #[comptime] interpolation: Interpolation,
    #[comptime] padding: Padding,
) -> Below {
    let last = f32::cast_from(size) - 1.0;
    // Two voxels beyond the border everything is zero; this keeps the casts in range.
    let mut at = clamp(coordinate, -2.0, last + 2.0);
    if comptime!(padding == Padding::Border) {
        at = clamp(coordinate, 0.0, last);
    }
    let mut low = at.floor();
    let mut fraction = at - low;
    if comptime!(interpolation == Interpolation::Nearest) {
        low = (at + 0.5).floor();
        fraction = 0.0f32;
    }
    Below { index: i32::cast_from(low), fraction }
}

#[cube]
pub(crate) fn tap(
    coordinate: f32,
    size: u32,
    #[comptime] interpolation: Interpolation,
    #[comptime] padding: Padding,
) -> Tap {
    let below = below(coordinate, size, interpolation, padding);
    let (low, high) = (below.index, below.index + 1);
    // As unsigned numbers, indices below zero lie beyond every size.
    let inside_low = u32::reinterpret(low) < size;
    let inside_high = u32::reinterpret(high) < size;
    let mut weight_low = 1.0 - below.fraction;
    let mut weight_high = below.fraction;
    let mut a = 1.0f32;
    let mut b = 1.0f32;
    // Labels outside vote for the background, others add nothing.
    if comptime!(padding == Padding::Zeros && interpolation != Interpolation::Label) {
        weight_low = select(inside_low, weight_low, 0.0f32);
        weight_high = select(inside_high, weight_high, 0.0f32);
        a = select(inside_low, 1.0f32, 0.0f32);
        b = select(inside_high, 1.0f32, 0.0f32);
    }
    let mut moves = 1.0f32;
    if comptime!(padding == Padding::Border) {
        let last = f32::cast_from(size) - 1.0;
        moves = select(coordinate > 0.0 && coordinate < last, 1.0f32, 0.0f32);
    }
    if comptime!(interpolation != Interpolation::Linear) {
        moves = 0.0f32;
    }
    Tap {
        low: u32::cast_from(select(inside_low, low, 0i32)),
        high: u32::cast_from(select(inside_high, high, 0i32)),
        weight_low,
        weight_high,
        slope_low: -a * moves,
        slope_high: b * moves,
        inside_low,
        inside_high,
    }
}

/// The lower or the upper voxel of a tap.
#[cube]
pub(crate) fn side(tap: &Tap, #[comptime] upper: bool) -> Side {
    if upper {
        Side { index: tap.high, weight: tap.weight_high, inside: tap.inside_high }
    } else {
        Side { index: tap.low, weight: tap.weight_low, inside: tap.inside_low }
    }
}

/// The taps of a position in an image of extents `w`, `h`, `d`.
#[cube]
pub(crate) fn sample_at(
    position: &Point,
    size: &Extent,
    #[comptime] interpolation: Interpolation,
    #[comptime] padding: Padding,
) -> Sample {
    Sample {
        x: tap(position.x, size.w, interpolation, padding),
        y: tap(position.y, size.h, interpolation, padding),
        z: tap(position.z, size.d, interpolation, padding),
    }
}

/// What is known of an image and of the voxels that sample it when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cells {
    /// Whether there are any cells of eight voxels: two voxels along every axis.
    pub exist: bool,
    /// Whether offsets within a channel, of the image or of the voxels, fit 32 bits: only the bases of
    /// channels are wider then.
    pub narrow: bool,
}

impl Cells {
    /// Of an image that a grid of (d, h, w) voxels samples.
    pub(crate) fn of(image: &CubeTensor, grid: [usize; 3]) -> Self {
        let shape = image.meta.shape();
        let input = [shape[2], shape[3], shape[4]];
        let narrow = [input, grid].iter().all(|size| size.iter().product::<usize>() < 1 << 32);
        Self { exist: input.iter().all(|side| *side >= 2), narrow }
    }
}

/// Whether a linear sample lies in a cell of the image, so that [`cell_sample`] will do: where the
/// border is repeated, wherever it is; among zeros, if all its corners lie in the image, as most do.
#[cube]
pub(crate) fn in_cell(
    position: &Point,
    size: &Extent,
    #[comptime] interpolation: Interpolation,
    #[comptime] padding: Padding,
    #[comptime] cells: Cells,
) -> bool {
    let linear = comptime!(interpolation == Interpolation::Linear && cells.exist);
    let mut inner = comptime!(linear && padding == Padding::Border).runtime();
    if comptime!(linear && padding == Padding::Zeros) {
        let x = below(position.x, size.w, interpolation, padding).index;
        let y = below(position.y, size.h, interpolation, padding).index;
        let z = below(position.z, size.d, interpolation, padding).index;
        inner = u32::reinterpret(x) < size.w - 1
            && u32::reinterpret(y) < size.h - 1
            && u32::reinterpret(z) < size.d - 1;
    }
    inner
}

/// [`sample_at`] where [`in_cell`] holds: the upper voxel follows the lower one along every axis.
#[cube]
pub(crate) fn cell_sample(position: &Point, size: &Extent, #[comptime] padding: Padding) -> Sample {
    Sample {
        x: cell_tap(position.x, size.w, padding),
        y: cell_tap(position.y, size.h, padding),
        z: cell_tap(position.z, size.d, padding),
    }
}

#[cube]
fn cell_tap(coordinate: f32, size: u32, #[comptime] padding: Padding) -> Tap {
    let mut at = coordinate;
    let mut low = coordinate.floor();
    let mut moves = 1.0f32.runtime();
    if comptime!(padding == Padding::Border) {
        let last = f32::cast_from(size) - 1.0;
        at = clamp(coordinate, 0.0, last);
        // The last voxel is the upper one of the last cell.
        low = min(at.floor(), last - 1.0);
        moves = select(coordinate > 0.0 && coordinate < last, 1.0f32, 0.0f32);
    }
    let mut tap = tap_within(at - low);
    tap.low = u32::reinterpret(i32::cast_from(low));
    tap.high = tap.low + 1;
    tap.slope_low = -moves;
    tap.slope_high = moves;
    tap
}

/// A tap whose two voxels are read, by the fraction of the way from the lower to the upper one; without indices.
#[cube]
pub(crate) fn tap_within(fraction: f32) -> Tap {
    Tap {
        low: 0u32.runtime(),
        high: 1u32.runtime(),
        weight_low: 1.0 - fraction,
        weight_high: fraction,
        slope_low: (-1.0f32).runtime(),
        slope_high: 1.0f32.runtime(),
        inside_low: true.runtime(),
        inside_high: true.runtime(),
    }
}
