//! Cubic splines on the GPU.
//!
//! Coefficients: a unit solves for a run of voxels, up and down, in registers. It begins [`REACH`] voxels before and
//! after them, where what is not known of the line has fallen below rounding. Lines along y and z lie side by side;
//! rows are laid into shared memory for it. Sampling: a unit a voxel; neighbours come from the caches.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{CubicOps, POLE, PeriodicInterpolation};
use crate::ops::fft::dims_of;
use ffdp_kit::cubes::{cubes_in_lines, launched, lines_of_cubes};
use ffdp_kit::launch::{
    CUBE, Extent, UNITS, assert_f32, buffer, cubes, empty, extent, wide_address,
};

/// Voxels after which `z^s` has fallen to the last digit of f32: `0.268^13 = 4e-8`.
const REACH: u32 = 13;

/// Voxels of a run, at most: of the longest one, those that are read again for it are less than half of all.
const RUN: u32 = 32;

/// Runs are multiples of this, so that lines of all lengths share few kernels.
const RUN_STEP: usize = 8;

/// Voxels of a run along a row, and after how many of them shared memory has an unused word: units that read one run
/// each then meet different banks.
const RUN_OF_ROW: u32 = 16;

/// A unit solves one run, so it lays as many voxels into shared memory, at most.
const ROUNDS: u32 = RUN_OF_ROW;

/// Words of shared memory for the runs of all units.
const WORDS: usize = (UNITS * (RUN_OF_ROW + 1)) as usize;

/// Turns `values`, of [`REACH`] voxels, a run and [`REACH`] voxels, into coefficients; those of the run are right.
///
/// `c+(k) = s(k) + z c+(k - 1)`, `c-(k) = z (c-(k + 1) - c+(k))`, `c = 6 c-`. Both begin as if the line went on as it is.
#[cube]
fn solve(values: &mut Array<f32>, #[comptime] run: u32) {
    let z = comptime!(POLE as f32);
    let count = comptime!(run + 2 * REACH);
    let mut last = values[0] * comptime!((1.0 / (1.0 - POLE)) as f32);
    values[0] = last;
    #[unroll]
    for k in 1..count {
        last = values[comptime!(k as usize)] + z * last;
        values[comptime!(k as usize)] = last;
    }
    last *= comptime!((-POLE / (1.0 - POLE)) as f32);
    #[unroll]
    for back in 1..comptime!(run + REACH) {
        let k = comptime!((count - 1 - back) as usize);
        last = z * (last - values[k]);
        values[k] = 6.0f32 * last;
    }
}

/// Along an axis of `n` voxels, `inner` elements apart: cubes along x are the runs of a line, so that those that share
/// voxels run together.
#[cube(launch_unchecked, address_type = "dynamic")]
fn lines_kernel(
    data: &[f32],
    output: &mut [f32],
    n: u32,
    inner: usize,
    lines: usize,
    #[comptime] run: u32,
) {
    let group = CUBE_POS_Z as usize * CUBE_COUNT_Y as usize + CUBE_POS_Y as usize;
    let line = group * CUBE_DIM_X as usize + UNIT_POS_X as usize;
    if line >= lines {
        terminate!();
    }
    let first = line / inner * inner * n as usize + line % inner;
    let start = CUBE_POS_X * run;
    let mut values = Array::<f32>::new(comptime!((run + 2 * REACH) as usize));
    let mut at = (start + REACH * n - REACH) % n;
    #[unroll]
    for k in 0..comptime!(run + 2 * REACH) {
        values[comptime!(k as usize)] = data[first + at as usize * inner];
        at = select(at + 1 == n, 0u32, at + 1);
    }
    solve(&mut values, run);
    #[unroll]
    for k in 0..run {
        if start + k < n {
            output[first + (start + k) as usize * inner] = values[comptime!((k + REACH) as usize)];
        }
    }
}

/// Where a voxel of a row lies in shared memory.
#[cube]
fn word(row: u32, voxel: u32, pitch: u32) -> usize {
    (row * pitch + voxel + voxel / RUN_OF_ROW) as usize
}

/// Along rows of `n` voxels, `rows` of `count` to a cube. Sizes are arguments: one kernel serves rows of any length.
#[cube(launch_unchecked, address_type = "dynamic")]
fn rows_kernel(
    data: &[f32],
    output: &mut [f32],
    count: usize,
    n: u32,
    rows: u32,
    #[comptime] words: usize,
) {
    let mut shared = Shared::<[f32]>::new_slice(words);
    let runs = n.div_ceil(RUN_OF_ROW);
    let pitch = n + runs;
    let cube = CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize;
    let first = cube * (rows * n) as usize;
    let stop = min(first + (rows * n) as usize, count * n as usize);
    // From round to round without a division.
    let (rows_on, voxels_on) = (CUBE_DIM_X / n, CUBE_DIM_X % n);
    let mut row = UNIT_POS / n;
    let mut voxel = UNIT_POS % n;
    #[unroll]
    for round in 0..ROUNDS {
        let from = first + (UNIT_POS + comptime!(round * UNITS)) as usize;
        if from < stop {
            shared[word(row, voxel, pitch)] = data[from];
        }
        let next = voxel + voxels_on;
        let ends = next >= n;
        row += rows_on + select(ends, 1u32, 0u32);
        voxel = select(ends, next - n, next);
    }
    sync_cube();
    let own = UNIT_POS / runs;
    let start = UNIT_POS % runs * RUN_OF_ROW;
    let mut values = Array::<f32>::new(comptime!((RUN_OF_ROW + 2 * REACH) as usize));
    if own < rows {
        let mut at = (start + REACH * n - REACH) % n;
        #[unroll]
        for k in 0..comptime!(RUN_OF_ROW + 2 * REACH) {
            values[comptime!(k as usize)] = shared[word(own, at, pitch)];
            at = select(at + 1 == n, 0u32, at + 1);
        }
    }
    sync_cube();
    if own < rows {
        solve(&mut values, RUN_OF_ROW);
        #[unroll]
        for k in 0..RUN_OF_ROW {
            if start + k < n {
                shared[word(own, start + k, pitch)] = values[comptime!((k + REACH) as usize)];
            }
        }
    }
    sync_cube();
    row = UNIT_POS / n;
    voxel = UNIT_POS % n;
    #[unroll]
    for round in 0..ROUNDS {
        let to = first + (UNIT_POS + comptime!(round * UNITS)) as usize;
        if to < stop {
            output[to] = shared[word(row, voxel, pitch)];
        }
        let next = voxel + voxels_on;
        let ends = next >= n;
        row += rows_on + select(ends, 1u32, 0u32);
        voxel = select(ends, next - n, next);
    }
}

/// The four voxels around a position, `stride` elements apart, and their weights.
#[derive(CubeType)]
struct Around {
    at: Array<usize>,
    weight: Array<f32>,
    /// Whether the four lie one after the other, not around the end of the axis.
    in_line: bool,
}

/// Around voxel `p`, displaced by `u`: the whole voxels of `u` are counted apart, so that large volumes lose
/// no digits.
#[cube]
fn around(
    p: u32,
    u: f32,
    n: u32,
    stride: usize,
    #[comptime] between: PeriodicInterpolation,
) -> Around {
    let mut at = Array::<usize>::new(4usize);
    let mut weight = Array::<f32>::new(4usize);
    let cell = u.floor();
    let t = u - cell;
    let s = 1.0f32 - t;
    if comptime!(between == PeriodicInterpolation::BSpline) {
        weight[0] = s * s * s * comptime!(1.0f32 / 6.0);
        weight[1] = comptime!(2.0f32 / 3.0) - t * t * (1.0f32 - 0.5f32 * t);
        weight[2] = comptime!(2.0f32 / 3.0) - s * s * (1.0f32 - 0.5f32 * s);
        weight[3] = t * t * t * comptime!(1.0f32 / 6.0);
    } else if comptime!(between == PeriodicInterpolation::Lagrange) {
        weight[0] = -t * s * (1.0f32 + s) * comptime!(1.0f32 / 6.0);
        weight[1] = (1.0f32 + t) * s * (1.0f32 + s) * 0.5f32;
        weight[2] = t * (1.0f32 + t) * (1.0f32 + s) * 0.5f32;
        weight[3] = -t * (1.0f32 + t) * s * comptime!(1.0f32 / 6.0);
    } else {
        weight[0] = 0.0f32;
        weight[1] = s;
        weight[2] = t;
        weight[3] = 0.0f32;
    }
    let size = i32::cast_from(n);
    let mut first = i32::cast_from(p) + i32::cast_from(cell) - 1;
    first = select(first < 0, first + size, first);
    first = select(first >= size, first - size, first);
    // Farther than once around.
    if first < 0 || first >= size {
        first = (first % size + size) % size;
    }
    let mut voxel = u32::cast_from(first);
    let in_line = voxel + 3 < n;
    #[unroll]
    for tap in 0..4usize {
        at[tap] = voxel as usize * stride;
        voxel = select(voxel + 1 == n, 0u32, voxel + 1);
    }
    Around { at, weight, in_line }
}

/// The sums over the 64 (linear: 8) values around a position, of each channel, `len` elements apart.
#[cube]
fn sums(
    coefficients: &[f32],
    x: &Around,
    y: &Around,
    z: &Around,
    first: usize,
    len: usize,
    #[comptime] channels: u32,
    #[comptime] in_line: bool,
    #[comptime] between: PeriodicInterpolation,
) -> Array<f32> {
    let begin = comptime!(between.first_tap());
    let end = comptime!(4 - between.first_tap());
    let mut sums = Array::<f32>::new(comptime!(channels as usize));
    #[unroll]
    for channel in 0..comptime!(channels as usize) {
        sums[channel] = 0.0f32;
    }
    #[unroll]
    for k in begin..end {
        #[unroll]
        for j in begin..end {
            let weight = z.weight[k] * y.weight[j];
            #[unroll]
            for channel in 0..comptime!(channels as usize) {
                let row = first + channel * len + z.at[k] + y.at[j];
                let mut along = 0.0f32;
                if comptime!(in_line) {
                    // Constant distances cost no address.
                    let start = row + x.at[0];
                    #[unroll]
                    for i in begin..end {
                        along += x.weight[i] * coefficients[start + i];
                    }
                } else {
                    #[unroll]
                    for i in begin..end {
                        along += x.weight[i] * coefficients[row + x.at[i]];
                    }
                }
                sums[channel] += weight * along;
            }
        }
    }
    sums
}

/// `channels` of `groups` of them a volume: coefficients of `of` voxels at those of `size`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn sample_kernel(
    coefficients: &[f32],
    displacement: &[f32],
    output: &mut [f32],
    of: Extent,
    size: Extent,
    origin_x: u32,
    origin_y: u32,
    origin_z: u32,
    groups: u32,
    #[comptime] channels: u32,
    #[comptime] between: PeriodicInterpolation,
) {
    let x = ABSOLUTE_POS_X;
    let y = ABSOLUTE_POS_Y;
    let slices = size.d.div_ceil(CUBE_DIM_Z);
    let z = CUBE_POS_Z % slices * CUBE_DIM_Z + UNIT_POS_Z;
    let n = (CUBE_POS_Z / slices) as usize;
    if x >= size.w || y >= size.h || z >= size.d {
        terminate!();
    }
    let row = of.w as usize;
    let slice = row * of.h as usize;
    let len = slice * of.d as usize;
    let voxels = size.w as usize * size.h as usize * size.d as usize;
    let voxel = (z as usize * size.h as usize + y as usize) * size.w as usize + x as usize;
    let u = 3 * n * voxels + voxel;
    let ax = around(origin_x + x, displacement[u], of.w, 1usize, between);
    let ay = around(origin_y + y, displacement[u + voxels], of.h, row, between);
    let az = around(origin_z + z, displacement[u + 2 * voxels], of.d, slice, between);
    for group in 0..groups {
        let volume = (n * groups as usize + group as usize) * comptime!(channels as usize);
        let first = volume * len;
        let to = volume * voxels + voxel;
        if ax.in_line {
            let found =
                sums(coefficients, &ax, &ay, &az, first, len, channels, comptime!(true), between);
            #[unroll]
            for channel in 0..comptime!(channels as usize) {
                output[to + channel * voxels] = found[channel];
            }
        } else {
            let found =
                sums(coefficients, &ax, &ay, &az, first, len, channels, comptime!(false), between);
            #[unroll]
            for channel in 0..comptime!(channels as usize) {
                output[to + channel * voxels] = found[channel];
            }
        }
    }
}

/// One axis of the coefficients; `axis` of a tensor of five.
fn along(data: &CubeTensor, axis: usize) -> CubeTensor {
    let dims = dims_of(data.meta.shape());
    let (n, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    let lines = dims.iter().product::<usize>() / n;
    let output = empty(data, dims);
    let pitch = n + n.div_ceil(RUN_OF_ROW as usize);
    let words = WORDS.min(data.client.properties().hardware.max_shared_memory_size / 4);
    let rows = (UNITS as usize / n.div_ceil(RUN_OF_ROW as usize)).min(words / pitch);
    if axis == 4 && rows > 0 {
        let cubes = lines.div_ceil(rows);
        unsafe {
            rows_kernel::launch_unchecked(
                &data.client,
                lines_of_cubes(cubes),
                CubeDim::new_1d(UNITS),
                wide_address(&[data]),
                buffer(data),
                buffer(&output),
                lines,
                n as u32,
                rows as u32,
                words,
            );
        }
        return output;
    }
    // Runs of nearly equal lengths, of few different ones.
    let run = n.div_ceil(n.div_ceil(RUN as usize)).next_multiple_of(RUN_STEP);
    let runs = n.div_ceil(run);
    let [along, across] = cubes_in_lines(lines.div_ceil(UNITS as usize));
    unsafe {
        lines_kernel::launch_unchecked(
            &data.client,
            launched([runs as u32, along, across]),
            CubeDim::new_1d(UNITS),
            wide_address(&[data]),
            buffer(data),
            buffer(&output),
            n as u32,
            inner,
            lines,
            run as u32,
        );
    }
    output
}

impl CubicOps for CubeBackend {
    fn cubic_coefficients_3d(volume: FloatTensor<Self>, axes: [bool; 3]) -> FloatTensor<Self> {
        assert_f32("cubic_coefficients", &[&volume]);
        let volume = into_contiguous(volume);
        let dims = dims_of(volume.meta.shape());
        let axes = [4, 3, 2].into_iter().filter(|&axis| axes[axis - 2] && dims[axis] > 1);
        axes.fold(volume, |data, axis| along(&data, axis))
    }

    fn cubic_sample_3d(
        coefficients: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        origin: [usize; 3],
        between: PeriodicInterpolation,
    ) -> FloatTensor<Self> {
        assert_f32("cubic_sample", &[&coefficients, &displacement]);
        let [c, u] = [coefficients, displacement].map(into_contiguous);
        let [n, channels, cd, ch, cw] = dims_of(c.meta.shape());
        let [_, _, d, h, w] = dims_of(u.meta.shape());
        let output = empty(&c, [n, channels, d, h, w]);
        // The components of a field share their addresses.
        let together = if channels.is_multiple_of(3) { 3 } else { 1 };
        unsafe {
            sample_kernel::launch_unchecked(
                &c.client,
                cubes("cubic_sample", n, [d, h, w]),
                CUBE.into(),
                wide_address(&[&c, &u]),
                buffer(&c),
                buffer(&u),
                buffer(&output),
                extent([cd, ch, cw]),
                extent([d, h, w]),
                origin[0] as u32,
                origin[1] as u32,
                origin[2] as u32,
                (channels / together) as u32,
                together as u32,
                between,
            );
        }
        output
    }
}
