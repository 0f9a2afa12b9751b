//! The sampled values.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::corners::{interpolate, majority, read_cell, read_corners};
use super::pair::{PAIR, cell_at, first_of_unit, pair, strides};
use super::space::{Plan, Space, channels, map_of};
use super::taps::{Point, sample_at};
use super::voxel::{above, inside, len, offset_in};
use crate::ops::grid_sample::Interpolation;
use ffdp_kit::launch::Extent;

/// A unit samples a column of `pairs` pairs; `first` element of a channel of the output, of `channel_len`
/// elements, that is sampled.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward_kernel<N: Size, T: Float>(
    image: &[T],
    affine: &[f32],
    displacement: &[f32],
    output: &mut [Vector<f32, N>],
    space: Space,
    first: usize,
    channel_len: usize,
    pairs: u32,
    #[comptime] plan: Plan,
    #[define(T)] _kind: ElemType,
) {
    let lowest = first_of_unit(&space.output, pairs, plan);
    let height = comptime!(strides(plan)[1]);
    if !inside(&lowest, &space.output) {
        terminate!();
    }
    let map = map_of(affine, &space, lowest.n, plan);
    let image_len = len(&space.input);
    let channels = channels(&space, plan);
    let left = (space.output.d - lowest.z).div_ceil(height);
    for step in 0..min(pairs, left) {
        let lower = above(&lowest, step * height);
        let two = pair(displacement, &map, &space, &lower, plan);
        let (below, above) = (
            offset_in(&two.lower, &space.output, plan.cells.narrow),
            offset_in(&two.upper, &space.output, plan.cells.narrow),
        );
        if two.in_cells {
            let s = cell_at(&two.at_lower, &space, plan);
            let t = cell_at(&two.at_upper, &space, plan);
            for c in 0..channels {
                let channel = (lowest.n * channels + c) as usize;
                let base = channel * image_len;
                let v = read_cell(image, base, &space.input, &s, plan.cells);
                let w = read_cell(image, base, &space.input, &t, plan.cells);
                let start = channel * channel_len + first;
                let (lower, upper) = (interpolate(&v, &s), interpolate(&w, &t));
                write_pair(output, start + below, start + above, lower, upper, plan);
            }
        } else {
            for c in 0..channels {
                let channel = (lowest.n * channels + c) as usize;
                let base = channel * image_len;
                let (input, start) = (&space.input, channel * channel_len + first);
                let lower = value_at(image, base, input, &two.at_lower, plan);
                if two.both {
                    let upper = value_at(image, base, input, &two.at_upper, plan);
                    write_pair(output, start + below, start + above, lower, upper, plan);
                } else {
                    output[start + below] = Vector::<f32, N>::new(lower);
                }
            }
        }
    }
}

/// Writes both values of a pair: one vector where they lie side by side.
#[cube]
fn write_pair<N: Size>(
    output: &mut [Vector<f32, N>],
    below: usize,
    above: usize,
    lower: f32,
    upper: f32,
    #[comptime] plan: Plan,
) {
    let mut vector = Vector::<f32, N>::new(lower);
    if comptime!(plan.pairs_along_x) {
        vector.insert(1usize, upper);
        output[below / comptime!(PAIR as usize)] = vector;
    } else {
        output[below] = vector;
        output[above] = Vector::<f32, N>::new(upper);
    }
}

/// The value at any position in the channel that begins at `base`.
#[cube]
fn value_at<T: Float>(
    image: &[T],
    base: usize,
    size: &Extent,
    position: &Point,
    #[comptime] plan: Plan,
) -> f32 {
    let interpolation = comptime!(plan.interpolation);
    let s = sample_at(position, size, interpolation, plan.padding);
    let corners = read_corners(image, base, size, &s);
    if comptime!(interpolation == Interpolation::Label) {
        majority(&corners, &s)
    } else {
        interpolate(&corners, &s)
    }
}
