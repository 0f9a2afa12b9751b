//! `y[o](p) = sum_{c, k} w[o, c](k) x[c](p + k - padding)`.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::{Problem, ProblemLaunch, len, problem, size};
use super::{INPUTS, ROWS, TAPS};
use crate::ops::conv3d::output_shape;
use ffdp_kit::cubes::{grid_of_cubes, lines_of_cubes};
use ffdp_kit::launch::{UNITS, address, buffer, empty};
use ffdp_kit::tensor_cores::{LANES, Left, Right, Sums, add_product, rounded};

/// Output voxels of a cube; a plane has four rows of eight.
const TILE: [u32; 3] = [4, 8, 16];
/// Rows of a plane.
const PLANE_ROWS: u32 = 4;
/// Units of a cube.
const CUBE: u32 = TILE[0] * (TILE[1] / PLANE_ROWS) * (TILE[2] / 8) * LANES;
/// Input voxels of a cube.
const ROW: u32 = TILE[2] + 2;
const SLICE: u32 = (TILE[1] + 2) * ROW;
/// Per channel. 24 modulo 32 banks, so that four channels of eight voxels lie in different ones.
const CHANNEL: u32 = (TILE[0] + 2) * SLICE;
/// Voxels that a unit brings, per channel.
const BROUGHT: u32 = CHANNEL.div_ceil(CUBE);
/// Fragments of weights that a unit brings, per 16 outputs.
const FRAGMENTS: u32 = (TAPS * LANES).div_ceil(CUBE);

/// The weights in the order in which lanes read them, `[O / 16][C / 8][27][32 lanes][4]` as TF32
/// bits, zeros beyond the last output and input.
#[cube(launch_unchecked, address_type = "dynamic")]
fn pack_kernel(weight: &[f32], packed: &mut [u32], outputs: u32, channels: u32) {
    let at = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize) * UNITS as usize
        + UNIT_POS as usize;
    if at >= packed.len() {
        terminate!();
    }
    let (element, lane) = ((at % 4) as u32, (at / 4 % 32) as u32);
    let tap = at / 128 % 27;
    let chunks = channels.div_ceil(INPUTS) as usize;
    let chunk = (at / 3456 % chunks) as u32;
    let block = (at / 3456 / chunks) as u32;
    let o = block * ROWS + lane / 4 + 8 * (element % 2);
    let c = chunk * INPUTS + lane % 4 + 4 * (element / 2);
    let mut value = 0.0f32;
    if o < outputs && c < channels {
        value = weight[(o as usize * channels as usize + c as usize) * 27 + tap];
    }
    packed[at] = rounded(value);
}

/// Where the voxels that this unit brings come from, counted from the start of a channel; -1 for
/// zeros outside.
#[cube]
fn sources(problem: &Problem, first_z: u32, first_y: u32, first_x: u32) -> Array<i32> {
    let input = &problem.input;
    let mut from = Array::<i32>::new(comptime!(BROUGHT as usize));
    #[unroll]
    for i in 0..BROUGHT {
        let at = UNIT_POS + i * CUBE;
        let z = (first_z + at / SLICE) as i32 - problem.padding.d as i32;
        let y = (first_y + at % SLICE / ROW) as i32 - problem.padding.h as i32;
        let sx = (first_x + at % ROW) as i32 - problem.padding.w as i32;
        let inside = at < CHANNEL
            && z >= 0
            && y >= 0
            && sx >= 0
            && z < input.d as i32
            && y < input.h as i32
            && sx < input.w as i32;
        let there = (z * input.h as i32 + y) * input.w as i32 + sx;
        from[i as usize] = select(inside, there, -1i32);
    }
    from
}

/// Brings the next `channels`, at most eight, into registers.
#[cube]
fn bring(
    x: &[f32],
    values: &mut Array<f32>,
    from: &Array<i32>,
    start: usize,
    len: usize,
    channels: u32,
) {
    #[unroll]
    for c in 0..INPUTS {
        #[unroll]
        for i in 0..BROUGHT {
            let there = from[i as usize];
            let mut value = 0.0f32;
            if there >= 0 && c < channels {
                value = x[start + comptime!(c as usize) * len + there as usize];
            }
            values[comptime!((c * BROUGHT + i) as usize)] = value;
        }
    }
}

/// A cube has a tile of voxels of `blocks` times 16 outputs. While it multiplies a chunk of
/// channels, the next is on its way to its registers.
#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_kernel<N: Size>(
    x: &[f32],
    packed: &[Vector<u32, N>],
    output: &mut [f32],
    problem: Problem,
    #[comptime] blocks: u32,
) {
    let (extent, input) = (&problem.output, len(&problem.input));
    let groups = problem.outputs.div_ceil(comptime!(blocks * ROWS));
    let tiles = extent.d.div_ceil(comptime!(TILE[0]));
    let group = CUBE_POS_Z / tiles % groups;
    let n = CUBE_POS_Z / tiles / groups;
    let first_z = CUBE_POS_Z % tiles * comptime!(TILE[0]);
    let first_y = CUBE_POS_Y * comptime!(TILE[1]);
    let first_x = CUBE_POS_X * comptime!(TILE[2]);
    let from = sources(&problem, first_z, first_y, first_x);

    let (plane, lane) = (UNIT_POS / LANES, UNIT_POS % LANES);
    let (g, t) = (lane / 4, lane % 4);
    let half = plane % 2;
    let slice = plane / 2 % comptime!(TILE[0]);
    let band = plane / comptime!(2 * TILE[0]);
    let first = t * CHANNEL + slice * SLICE + band * comptime!(PLANE_ROWS * ROW) + half * 8 + g;
    let mut sums = Array::<Sums>::new(comptime!((blocks * PLANE_ROWS) as usize));
    #[unroll]
    for i in 0..blocks * PLANE_ROWS {
        sums[i as usize] = Sums::new(0.0f32);
    }
    let mut tile = Shared::<[u32]>::new_slice(comptime!((INPUTS * CHANNEL) as usize));
    let mut weights = Shared::<[Left]>::new_slice(comptime!((blocks * TAPS * LANES) as usize));
    let mut values = Array::<f32>::new(comptime!((INPUTS * BROUGHT) as usize));
    let chunks = problem.channels.div_ceil(INPUTS);
    let start = (n * problem.channels) as usize * input;
    bring(x, &mut values, &from, start, input, problem.channels);
    for chunk in 0..chunks {
        sync_cube();
        #[unroll]
        for c in 0..INPUTS {
            #[unroll]
            for i in 0..BROUGHT {
                let at = UNIT_POS + i * CUBE;
                if at < CHANNEL {
                    let value = values[comptime!((c * BROUGHT + i) as usize)];
                    tile[(c * CHANNEL + at) as usize] = rounded(value);
                }
            }
        }
        #[unroll]
        for i in 0..blocks * FRAGMENTS {
            let (block, at) =
                (comptime!(i / FRAGMENTS), UNIT_POS + comptime!(i % FRAGMENTS * CUBE));
            if at < comptime!(TAPS * LANES) {
                let fragment = ((group * blocks + block) * chunks + chunk) as usize;
                let bits = packed[fragment * comptime!((TAPS * LANES) as usize) + at as usize];
                let mut weight = Left::empty();
                #[unroll]
                for e in 0..4usize {
                    weight.insert(e, bits.extract(e));
                }
                weights[(comptime!(block * TAPS * LANES) + at) as usize] = weight;
            }
        }
        sync_cube();
        let next = (chunk + 1) * INPUTS;
        if next < problem.channels {
            let start = (n * problem.channels + next) as usize * input;
            bring(x, &mut values, &from, start, input, problem.channels - next);
        }
        #[unroll]
        for kz in 0..3u32 {
            #[unroll]
            for kx in 0..3u32 {
                let mut rows = Array::<Right>::new(comptime!((PLANE_ROWS + 2) as usize));
                #[unroll]
                for r in 0..PLANE_ROWS + 2 {
                    let at = (first + comptime!(kz * SLICE + r * ROW + kx)) as usize;
                    let mut row = Right::empty();
                    row.insert(0usize, tile[at]);
                    row.insert(1usize, tile[at + comptime!((4 * CHANNEL) as usize)]);
                    rows[r as usize] = row;
                }
                #[unroll]
                for b in 0..blocks {
                    #[unroll]
                    for ky in 0..3u32 {
                        let tap = comptime!(b * TAPS + (kz * 3 + ky) * 3 + kx);
                        let weight = weights[(tap * LANES + lane) as usize];
                        #[unroll]
                        for r in 0..PLANE_ROWS {
                            let i = comptime!((b * PLANE_ROWS + r) as usize);
                            let row = rows[comptime!((r + ky) as usize)];
                            sums[i] = add_product(weight, row, sums[i]);
                        }
                    }
                }
            }
        }
    }

    let z = first_z + slice;
    #[unroll]
    for b in 0..blocks {
        #[unroll]
        for r in 0..PLANE_ROWS {
            let y = first_y + band * PLANE_ROWS + r;
            #[unroll]
            for e in 0..4u32 {
                let o = (group * blocks + b) * ROWS + g + comptime!(8 * (e / 2));
                let vx = first_x + half * 8 + 2 * t + comptime!(e % 2);
                if o < problem.outputs && z < extent.d && y < extent.h && vx < extent.w {
                    let volume = (n * problem.outputs + o) as usize * len(extent);
                    let voxel = (z * extent.h + y) as usize * extent.w as usize + vx as usize;
                    let sum = sums[comptime!((b * PLANE_ROWS + r) as usize)];
                    output[volume + voxel] = sum.extract(e as usize);
                }
            }
        }
    }
}

/// The weights for [`forward_kernel`], `blocks` times 16 outputs for each cube.
fn pack(weight: &CubeTensor, blocks: u32) -> CubeTensor {
    let [outputs, channels] = [weight.meta.shape()[0] as u32, weight.meta.shape()[1] as u32];
    let groups = outputs.div_ceil(blocks * ROWS) * blocks;
    let count = (groups * channels.div_ceil(INPUTS) * TAPS * 4 * LANES) as usize;
    let packed = empty(weight, [count]);
    let cubes = count.div_ceil(UNITS as usize);
    unsafe {
        pack_kernel::launch_unchecked(
            &weight.client,
            lines_of_cubes(cubes),
            CubeDim::new_1d(UNITS),
            address(&[weight, &packed]),
            buffer(weight),
            buffer(&packed),
            outputs,
            channels,
        );
    }
    packed
}

/// The convolution.
pub(in super::super) fn forward(
    x: CubeTensor,
    weight: CubeTensor,
    padding: [usize; 3],
) -> CubeTensor {
    let (x, weight) = (into_contiguous(x), into_contiguous(weight));
    let output = empty(&x, output_shape(x.meta.shape(), weight.meta.shape(), padding));
    let (batch, outputs) = (x.meta.shape()[0], weight.meta.shape()[0]);
    let blocks = if outputs <= ROWS as usize { 1 } else { 2 };
    let packed = pack(&weight, blocks);
    let [d, h, w] = size(&output);
    let counts = [
        w.div_ceil(TILE[2] as usize),
        h.div_ceil(TILE[1] as usize),
        batch * outputs.div_ceil((blocks * ROWS) as usize) * d.div_ceil(TILE[0] as usize),
    ];
    let problem: ProblemLaunch = problem(&x, &output, outputs, padding);
    unsafe {
        forward_kernel::launch_unchecked(
            &x.client,
            grid_of_cubes("conv3d", counts),
            CubeDim::new_1d(CUBE),
            address(&[&x, &packed, &output]),
            4,
            buffer(&x),
            buffer(&packed),
            buffer(&output),
            problem,
            blocks,
        );
    }
    output
}
