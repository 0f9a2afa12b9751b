//! The sampled values.

use cubecl::prelude::*;

use super::corners::{interpolate, majority, read_cell, read_corners};
use super::pair::{PAIR, cell_at, pair};
use super::space::{Plan, Space, channels, map_of};
use super::taps::{Point, sample_at};
use super::voxel::{above, column_of_unit, inside, len, offset};
use crate::ops::grid_sample::Interpolation;
use crate::ops::launch::Extent;

/// A unit samples a column of `pairs` pairs.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward_kernel(
    image: &[f32],
    affine: &[f32],
    displacement: &[f32],
    output: &mut [f32],
    space: Space,
    pairs: u32,
    #[comptime] plan: Plan,
) {
    let first = column_of_unit(&space.output, PAIR * pairs);
    if !inside(&first, &space.output) {
        terminate!();
    }
    let map = map_of(affine, &space, first.n, plan);
    let (image_len, output_len) = (len(&space.input), len(&space.output));
    let channels = channels(&space, plan);
    let left = (space.output.d - first.z).div_ceil(PAIR);
    for step in 0..min(pairs, left) {
        let lower = above(&first, PAIR * step);
        let two = pair(displacement, &map, &space, &lower, plan);
        let (below, above) = (offset(&two.lower, &space.output), offset(&two.upper, &space.output));
        if two.in_cells {
            let s = cell_at(&two.at_lower, &space, plan);
            let t = cell_at(&two.at_upper, &space, plan);
            for c in 0..channels {
                let channel = (first.n * channels + c) as usize;
                let base = channel * image_len;
                let v = read_cell(image, base, &space.input, &s, plan.cells);
                let w = read_cell(image, base, &space.input, &t, plan.cells);
                output[channel * output_len + below] = interpolate(&v, &s);
                output[channel * output_len + above] = interpolate(&w, &t);
            }
        } else {
            for c in 0..channels {
                let channel = (first.n * channels + c) as usize;
                let base = channel * image_len;
                let (input, start) = (&space.input, channel * output_len);
                output[start + below] = value_at(image, base, input, &two.at_lower, plan);
                if two.both {
                    output[start + above] = value_at(image, base, input, &two.at_upper, plan);
                }
            }
        }
    }
}

/// The value at any position in the channel that begins at `base`.
#[cube]
fn value_at(
    image: &[f32],
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
