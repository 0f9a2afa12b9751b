//! The sampled values.

use cubecl::prelude::*;

use super::corners::{interpolate, majority, read_corners};
use super::space::{Plan, Space, channels, displacement_at, map_of, sample};
use super::taps::Point;
use super::voxel::{above, column_of_unit, inside, len, offset};
use crate::ops::grid_sample::Interpolation;

/// Voxels of a unit: all their displacements are on their way before the first is waited for.
pub(super) const HEIGHT: u32 = 4;

#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward_kernel(
    image: &[f32],
    affine: &[f32],
    displacement: &[f32],
    output: &mut [f32],
    space: Space,
    #[comptime] plan: Plan,
) {
    let first = column_of_unit(&space.output, HEIGHT);
    if !inside(&first, &space.output) {
        terminate!();
    }
    let map = map_of(affine, &space, first.n, plan);
    let mut x = Array::<f32>::new(comptime!(HEIGHT as usize));
    let mut y = Array::<f32>::new(comptime!(HEIGHT as usize));
    let mut z = Array::<f32>::new(comptime!(HEIGHT as usize));
    #[unroll]
    for k in 0..HEIGHT {
        let at = above(&first, k);
        if inside(&at, &space.output) {
            let u = displacement_at(displacement, &space, &at, plan);
            x[k as usize] = u.x;
            y[k as usize] = u.y;
            z[k as usize] = u.z;
        }
    }
    let (image_len, output_len) = (len(&space.input), len(&space.output));
    #[unroll]
    for k in 0..HEIGHT {
        let at = above(&first, k);
        if inside(&at, &space.output) {
            let u = Point { x: x[k as usize], y: y[k as usize], z: z[k as usize] };
            let s = sample(&map, &space, &at, &u, plan);
            for c in 0..channels(&space, plan) {
                let channel = (at.n * channels(&space, plan) + c) as usize;
                let corners = read_corners(image, channel * image_len, &space.input, &s);
                let at_output = channel * output_len + offset(&at, &space.output);
                if comptime!(plan.interpolation == Interpolation::Label) {
                    output[at_output] = majority(&corners, &s);
                } else {
                    output[at_output] = interpolate(&corners, &s);
                }
            }
        }
    }
}
