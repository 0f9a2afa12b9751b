//! The sampled values.

use cubecl::prelude::*;

use super::corners::{interpolate, majority, read_corners};
use super::space::{Plan, Space, channels, displacement_at, map_of, position};
use super::taps::{Point, inner_sample, is_inner, sample_at};
use super::voxel::{above, column_of_unit, inside, len, offset};
use crate::ops::grid_sample::Interpolation;
use crate::ops::launch::Extent;

/// Voxels of a unit: all their displacements are on their way before the first is waited for.
pub(super) const HEIGHT: u32 = 4;

/// `first` element of a channel of the output, of `channel_len` elements, that is sampled.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward_kernel(
    image: &[f32],
    affine: &[f32],
    displacement: &[f32],
    output: &mut [f32],
    space: Space,
    first: usize,
    channel_len: usize,
    #[comptime] plan: Plan,
) {
    let lowest = column_of_unit(&space.output, HEIGHT);
    if !inside(&lowest, &space.output) {
        terminate!();
    }
    let map = map_of(affine, &space, lowest.n, plan);
    let mut x = Array::<f32>::new(comptime!(HEIGHT as usize));
    let mut y = Array::<f32>::new(comptime!(HEIGHT as usize));
    let mut z = Array::<f32>::new(comptime!(HEIGHT as usize));
    #[unroll]
    for k in 0..HEIGHT {
        let at = above(&lowest, k);
        if inside(&at, &space.output) {
            let u = displacement_at(displacement, &space, &at, plan);
            x[k as usize] = u.x;
            y[k as usize] = u.y;
            z[k as usize] = u.z;
        }
    }
    let image_len = len(&space.input);
    #[unroll]
    for k in 0..HEIGHT {
        let at = above(&lowest, k);
        if inside(&at, &space.output) {
            let u = Point { x: x[k as usize], y: y[k as usize], z: z[k as usize] };
            let p = position(&map, &space, &at, &u, plan);
            for c in 0..channels(&space, plan) {
                let channel = (at.n * channels(&space, plan) + c) as usize;
                output[channel * channel_len + first + offset(&at, &space.output)] =
                    value_at(image, channel * image_len, &space.input, &p, plan);
            }
        }
    }
}

/// The value at a position in the channel that begins at `base`.
#[cube]
fn value_at(
    image: &[f32],
    base: usize,
    size: &Extent,
    position: &Point,
    #[comptime] plan: Plan,
) -> f32 {
    let interpolation = comptime!(plan.interpolation);
    let padding = comptime!(plan.padding);
    let mut value = 0.0f32;
    if is_inner(position, size, interpolation, padding) {
        let s = inner_sample(position, size, interpolation, padding);
        value += interpolate(&read_corners(image, base, size, &s), &s);
    } else {
        let s = sample_at(position, size, interpolation, padding);
        let corners = read_corners(image, base, size, &s);
        if comptime!(interpolation == Interpolation::Label) {
            value += majority(&corners, &s);
        } else {
            value += interpolate(&corners, &s);
        }
    }
    value
}
