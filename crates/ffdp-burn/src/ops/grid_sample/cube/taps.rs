//! Where a coordinate falls between voxels; see `Tap` in `flex.rs`.

use cubecl::prelude::*;

use crate::ops::grid_sample::{Interpolation, Padding};
use crate::ops::launch::Extent;

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

/// Whether all corners of a linear sample lie in the image. Most do, and then [`inner_sample`] will
/// do; false where the border needs care anyway.
#[cube]
pub(crate) fn is_inner(
    position: &Point,
    size: &Extent,
    #[comptime] interpolation: Interpolation,
    #[comptime] padding: Padding,
) -> bool {
    let mut inner = false;
    if comptime!(interpolation == Interpolation::Linear && padding == Padding::Zeros) {
        let x = below(position.x, size.w, interpolation, padding).index;
        let y = below(position.y, size.h, interpolation, padding).index;
        let z = below(position.z, size.d, interpolation, padding).index;
        inner = u32::reinterpret(x) < size.w - 1
            && u32::reinterpret(y) < size.h - 1
            && u32::reinterpret(z) < size.d - 1;
    }
    inner
}

/// [`sample_at`] where [`is_inner`] holds.
#[cube]
pub(crate) fn inner_sample(
    position: &Point,
    size: &Extent,
    #[comptime] interpolation: Interpolation,
    #[comptime] padding: Padding,
) -> Sample {
    Sample {
        x: inner_tap(&below(position.x, size.w, interpolation, padding)),
        y: inner_tap(&below(position.y, size.h, interpolation, padding)),
        z: inner_tap(&below(position.z, size.d, interpolation, padding)),
    }
}

#[cube]
fn inner_tap(below: &Below) -> Tap {
    Tap {
        low: u32::reinterpret(below.index),
        high: u32::reinterpret(below.index) + 1,
        weight_low: 1.0 - below.fraction,
        weight_high: below.fraction,
        slope_low: (-1.0f32).runtime(),
        slope_high: 1.0f32.runtime(),
        inside_low: true.runtime(),
        inside_high: true.runtime(),
    }
}
