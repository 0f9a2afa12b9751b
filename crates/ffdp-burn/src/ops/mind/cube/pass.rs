//! From the slopes of the distances to the gradient of the image. Gather, not scatter: no atomics.
//!
//! `pass_kernel` marches along z as `march.rs` does: the slopes of a plane are summed over the patch's extent along x
//! and y from shared memory, and a unit keeps those sums of the patch's planes in registers. `collect_kernel` gives
//! each voxel what its neighbours pass to it.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::super::{CHANNELS, NEIGHBOURS, PAIRS, Patch};
use super::march::{Planes, TILE};
use crate::ops::grid_sample::cube::{Voxel, column_of_unit, inside, len, offset, offset_of};
use ffdp_kit::launch::{Extent, UNITS};
use ffdp_kit::march::{clamped, column};

/// Words of shared memory that every GPU has.
const SHARED_WORDS: usize = 4096;

/// How the slopes of a channel lie in shared memory.
const fn layout(patch: Patch) -> Planes {
    Planes { margin: patch.radius as u32 }
}

/// Channels whose slopes lie in shared memory at a time.
const fn at_a_time(patch: Patch) -> usize {
    match CHANNELS * layout(patch).words() as usize <= SHARED_WORDS {
        true => CHANNELS,
        false => CHANNELS / 2,
    }
}

/// How often the patch of voxel `p` of an axis takes voxel `q`, which is within its radius; 0 where there is no `p`.
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
    select(p >= 0 && p <= last, f32::cast_from(count), 0.0f32)
}

/// [`times`] of the voxels around `q`, from `q - r` to `q + r`.
#[cube]
fn times_around(q: i32, len: u32, #[comptime] patch: Patch) -> Array<f32> {
    let mut counts = Array::<f32>::new(comptime!(2 * patch.radius + 1));
    #[unroll]
    for i in 0..comptime!(2 * patch.radius + 1) {
        counts[i] = times(q + comptime!(i as i32 - patch.radius as i32), q, len, patch);
    }
    counts
}

/// Fills shared memory with plane `z` of [`at_a_time`] channels, of which the first begins at `channel`. Outside the
/// volume lies its nearest voxel, which no patch takes there.
#[cube]
fn fill(
    slopes: &[f32],
    planes: &mut Shared<[f32]>,
    size: &Extent,
    channel: usize,
    z: i32,
    #[comptime] patch: Patch,
) {
    let layout = comptime!(layout(patch));
    let (pitch, words) = comptime!((layout.pitch(), layout.words()));
    let len = len(size);
    let left = (CUBE_POS_X * comptime!(TILE.width())) as i32 - comptime!(layout.margin as i32);
    let top = (CUBE_POS_Y * comptime!(TILE.height())) as i32 - comptime!(layout.margin as i32);
    let mut i = UNIT_POS;
    while i < words {
        let x = clamped(left + (i % pitch) as i32, size.w);
        let y = clamped(top + (i / pitch) as i32, size.h);
        let at = channel + offset_of(x, y, clamped(z, size.d), size, false);
        #[unroll]
        for k in 0..comptime!(at_a_time(patch)) {
            planes[(comptime!(k as u32 * words) + i) as usize] = slopes[at + k * len];
        }
        i += UNITS;
    }
}

/// The slopes of channel `k` of those in shared memory, summed over the patches along x and y; `corner` is the first
/// voxel whose patch may take this unit's.
#[cube]
fn plane_sum(
    planes: &Shared<[f32]>,
    corner: u32,
    along_x: &Array<f32>,
    along_y: &Array<f32>,
    #[comptime] k: usize,
    #[comptime] patch: Patch,
) -> f32 {
    let layout = comptime!(layout(patch));
    let mut sum = 0.0f32;
    #[unroll]
    for j in 0..comptime!(2 * patch.radius + 1) {
        let row = comptime!(k as u32 * layout.words() + j as u32 * layout.pitch());
        let mut of_row = 0.0f32;
        #[unroll]
        for i in 0..comptime!(2 * patch.radius + 1) {
            of_row += along_x[i] * planes[(corner + comptime!(row + i as u32)) as usize];
        }
        sum += along_y[j] * of_row;
    }
    sum
}

/// `I(q + d e)` of voxel `q` at `at`, `e` each of the six neighbours.
#[cube]
fn values_around<T: Float>(
    image: &[T],
    at: &Voxel,
    size: &Extent,
    #[comptime] dilation: i32,
) -> Array<f32> {
    let mut values = Array::<f32>::new(6usize);
    #[unroll]
    for n in 0..6usize {
        let (axis, shift) = comptime!((NEIGHBOURS[n].0, NEIGHBOURS[n].1 as i32 * dilation));
        let mut x = at.x;
        let mut y = at.y;
        let mut z = at.z;
        if comptime!(axis == 0) {
            x = clamped(at.x as i32 + shift, size.w);
        }
        if comptime!(axis == 1) {
            y = clamped(at.y as i32 + shift, size.h);
        }
        if comptime!(axis == 2) {
            z = clamped(at.z as i32 + shift, size.d);
        }
        let place = at.n as usize * len(size) + offset_of(x, y, z, size, false);
        values[n] = f32::cast_from(image[place]);
    }
    values
}

/// `passed` `[N, 6, D, H, W]`: what each voxel passes to its six neighbours.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn pass_kernel<T: Float>(
    image: &[T],
    slopes: &[f32],
    passed: &mut [f32],
    size: Extent,
    chunk: u32,
    #[comptime] patch: Patch,
    #[define(T)] _kind: ElemType,
) {
    let layout = comptime!(layout(patch));
    let (together, width) = comptime!((at_a_time(patch), 2 * patch.radius + 1));
    let radius = comptime!(patch.radius as i32);
    let at = column(&size, chunk, TILE);
    let len = len(&size);
    let exists = at.writes && at.y < size.h as i32;
    let (along_x, along_y) = (times_around(at.x, size.w, patch), times_around(at.y, size.h, patch));
    let (pitch, units_x) = comptime!((layout.pitch(), TILE.units_x));
    let corner = UNIT_POS / units_x * pitch + UNIT_POS % units_x;
    // The compiler sees that adding a constant does not overflow, and adds it in the load itself.
    let corner = corner & comptime!(SHARED_WORDS as u32 - 1);

    let mut planes = Shared::<[f32]>::new_slice(comptime!(together * layout.words() as usize));
    let mut sums = Array::<f32>::new(comptime!(width * CHANNELS));
    #[unroll]
    for i in 0..comptime!(width * CHANNELS) {
        sums[i] = 0.0f32;
    }
    let mut ahead = at.start - radius;
    while ahead < at.stop + radius {
        #[unroll]
        for i in 0..comptime!((width - 1) * CHANNELS) {
            let next = sums[comptime!(i + CHANNELS)];
            sums[i] = next;
        }
        #[unroll]
        for part in 0..comptime!(CHANNELS / together) {
            let first = comptime!(part * together);
            sync_cube();
            let channel = (at.volume as usize * CHANNELS + first) * len;
            fill(slopes, &mut planes, &size, channel, ahead, patch);
            sync_cube();
            #[unroll]
            for k in 0..together {
                let last = comptime!((width - 1) * CHANNELS + first + k);
                sums[last] = plane_sum(&planes, corner, &along_x, &along_y, k, patch);
            }
        }
        let z = ahead - radius;
        if exists && z >= at.start {
            let along_z = times_around(z, size.d, patch);
            let voxel = Voxel { n: at.volume, x: at.x as u32, y: at.y as u32, z: z as u32 };
            let values = values_around(image, &voxel, &size, comptime!(patch.dilation as i32));
            let mut to_neighbours = Array::<f32>::new(6usize);
            #[unroll]
            for n in 0..6usize {
                to_neighbours[n] = 0.0f32;
            }
            #[unroll]
            for k in 0..CHANNELS {
                let mut h = 0.0f32;
                #[unroll]
                for i in 0..width {
                    h += along_z[i] * sums[comptime!(i * CHANNELS + k)];
                }
                let (a, b) = comptime!((PAIRS[k][0], PAIRS[k][1]));
                let slope = 2.0f32 * h * (values[a] - values[b]);
                to_neighbours[a] += slope;
                to_neighbours[b] -= slope;
            }
            let place = at.volume as usize * 6 * len + offset(&voxel, &size);
            #[unroll]
            for n in 0..6usize {
                passed[place + n * len] = to_neighbours[n];
            }
        }
        ahead += 1;
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
