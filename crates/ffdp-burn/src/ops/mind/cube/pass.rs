//! From the slopes of the distances to the gradient of the image. Gather, not scatter: no atomics.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::super::{CHANNELS, PAIRS, Patch};
use crate::ops::grid_sample::cube::{column_of_unit, inside, len, offset};
use ffdp_kit::launch::Extent;
use ffdp_kit::march::clamped;

/// How often the patch of voxel `p` of an axis takes voxel `q`, which is within its radius.
#[cube]
fn times(p: i32, q: i32, len: u32, #[comptime] patch: Patch) -> f32 {
    let radius = comptime!(patch.radius as i32);
    let last = len as i32 - 1;
    let mut count = 1i32;
    if q == 0 {
        count += max(radius - p, 0i32);
    }
    if q == last {
        count += max(radius - (last - p), 0i32);
    }
    f32::cast_from(count)
}

/// `passed` `[N, 6, D, H, W]`: what each voxel passes to its six neighbours.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn pass_kernel<T: Float>(
    image: &[T],
    slopes: &[f32],
    passed: &mut [f32],
    size: Extent,
    #[comptime] patch: Patch,
    #[define(T)] _kind: ElemType,
) {
    let at = column_of_unit(&size, 1u32);
    if !inside(&at, &size) {
        terminate!();
    }
    let (radius, dilation) = comptime!((patch.radius as i32, patch.dilation as i32));
    let len = len(&size);
    let (x, y, z) = (at.x as i32, at.y as i32, at.z as i32);
    let (row, area) = (size.w as usize, size.h as usize * size.w as usize);
    let first = at.n as usize * CHANNELS * len;
    let mut h = Array::<f32>::new(CHANNELS);
    #[unroll]
    for k in 0..CHANNELS {
        h[k] = 0.0f32;
    }
    let mut c = max(z - radius, 0i32);
    while c <= min(z + radius, size.d as i32 - 1) {
        let along_z = times(c, z, size.d, patch);
        let mut b = max(y - radius, 0i32);
        while b <= min(y + radius, size.h as i32 - 1) {
            let along_y = along_z * times(b, y, size.h, patch);
            let line = first + c as usize * area + b as usize * row;
            let mut a = max(x - radius, 0i32);
            while a <= min(x + radius, size.w as i32 - 1) {
                let weight = along_y * times(a, x, size.w, patch);
                #[unroll]
                for k in 0..CHANNELS {
                    h[k] += weight * slopes[line + a as usize + k * len];
                }
                a += 1;
            }
            b += 1;
        }
        c += 1;
    }
    let volume = at.n as usize * len;
    let mut values = Array::<f32>::new(6usize);
    let mut sums = Array::<f32>::new(6usize);
    #[unroll]
    for n in 0..6usize {
        let axis = comptime!(n / 2);
        let shift = comptime!(if n % 2 == 0 { dilation } else { -dilation });
        let mut at_x = at.x;
        let mut at_y = at.y;
        let mut at_z = at.z;
        if comptime!(axis == 0) {
            at_x = clamped(x + shift, size.w);
        }
        if comptime!(axis == 1) {
            at_y = clamped(y + shift, size.h);
        }
        if comptime!(axis == 2) {
            at_z = clamped(z + shift, size.d);
        }
        let place = at_z as usize * area + at_y as usize * row + at_x as usize;
        values[n] = f32::cast_from(image[volume + place]);
        sums[n] = 0.0f32;
    }
    #[unroll]
    for k in 0..CHANNELS {
        let (a, b) = comptime!((PAIRS[k][0], PAIRS[k][1]));
        let slope = 2.0f32 * h[k] * (values[a] - values[b]);
        sums[a] += slope;
        sums[b] -= slope;
    }
    let voxel = at.n as usize * 6 * len + offset(&at, &size);
    #[unroll]
    for n in 0..6usize {
        passed[voxel + n * len] = sums[n];
    }
}

/// The sum over the voxels of a line whose neighbour in one direction, moved onto the axis, is the one at `position`.
#[cube]
fn from_line(
    passed: &[f32],
    line: usize,
    stride: usize,
    position: i32,
    len: u32,
    #[comptime] shift: i32,
) -> f32 {
    let last = len as i32 - 1;
    let mut first = position - shift;
    let mut end = position - shift;
    // At the end of the axis all those whose neighbour would lie beyond it.
    if comptime!(shift > 0) {
        first = max(first, 0i32);
        if position == last {
            end = last;
        }
    } else {
        end = min(end, last);
        if position == 0 {
            first = 0i32.runtime();
        }
    }
    let mut sum = 0.0f32;
    while first <= end {
        sum += passed[line + first as usize * stride];
        first += 1;
    }
    sum
}

/// `output` `[N, 1, D, H, W]`: what each voxel is passed.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn collect_kernel(
    passed: &[f32],
    output: &mut [f32],
    size: Extent,
    #[comptime] patch: Patch,
) {
    let at = column_of_unit(&size, 1u32);
    if !inside(&at, &size) {
        terminate!();
    }
    let len = len(&size);
    let (row, area) = (size.w as usize, size.h as usize * size.w as usize);
    let place = offset(&at, &size);
    let first = at.n as usize * 6 * len + place;
    let (x, y, z) = (at.x as usize, at.y as usize, at.z as usize);
    let mut sum = 0.0f32;
    #[unroll]
    for n in 0..2usize {
        let dilation = comptime!(patch.dilation as i32);
        let shift = comptime!(if n == 0 { dilation } else { -dilation });
        let along_x = first - x + n * len;
        let along_y = first - y * row + (2 + n) * len;
        let along_z = first - z * area + (4 + n) * len;
        sum += from_line(passed, along_x, 1usize, at.x as i32, size.w, shift);
        sum += from_line(passed, along_y, row, at.y as i32, size.h, shift);
        sum += from_line(passed, along_z, area, at.z as i32, size.d, shift);
    }
    output[at.n as usize * len + place] = sum;
}
