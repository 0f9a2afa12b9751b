//! `y[o](p) = sum_{c, k} w[o, c](k) x[c](p + k - padding)`.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::{Problem, ProblemLaunch, assert_cubes, len, problem, size};
use super::{INPUTS, LANES, Left, ROWS, Right, Sums, TAPS, add_product, rounded};
use crate::ops::conv3d::output_shape;
use crate::ops::launch::{UNITS, address, buffer, empty};

/// Output voxels of a cube; a plane has four rows of eight.
const TILE: [u32; 3] = [4, 8, 16];
/// Rows of a plane.
const PLANE_ROWS: u32 = 4;
/// Units of a cube.
const CUBE: u32 = TILE[0] * (TILE[1] / PLANE_ROWS) * (TILE[2] / 8) * LANES;
/// Input voxels to the left of the tile, at least the padding: pieces of four start where rows of
/// whole pieces have them.
const LEFT: u32 = 4;
/// Input voxels of a cube.
const ROW: u32 = LEFT + TILE[2] + 4;
const SLICE: u32 = (TILE[1] + 2) * ROW;
/// Pieces of four voxels of a channel.
const PIECES: u32 = (TILE[0] + 2) * SLICE / 4;
/// Pieces from one channel to the next: 8 modulo 32 banks of one number, so that four channels of
/// eight voxels lie in different ones.
const CHANNEL: u32 = PIECES + 2;
/// Pieces that a unit brings.
const BROUGHT: u32 = (INPUTS * PIECES).div_ceil(CUBE);

/// Four neighbours along x, as TF32 bits.
type Bits = Vector<u32, Const<4>>;

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

/// Where the pieces that a unit brings come from.
#[derive(CubeType)]
struct Source {
    /// The start of the row, counted from the chunk's first channel; negative outside the volume.
    rows: Array<i32>,
    /// The piece's first voxel in the row.
    columns: Array<i32>,
    /// The channel within the chunk.
    channels: Array<u32>,
}

#[cube]
fn source(problem: &Problem, first_z: u32, first_y: u32, first_x: u32) -> Source {
    let input = &problem.input;
    let mut rows = Array::<i32>::new(comptime!(BROUGHT as usize));
    let mut columns = Array::<i32>::new(comptime!(BROUGHT as usize));
    let mut channels = Array::<u32>::new(comptime!(BROUGHT as usize));
    #[unroll]
    for i in 0..BROUGHT {
        let at = UNIT_POS + i * CUBE;
        let (channel, piece) = (at / PIECES, at % PIECES * 4);
        let z = (first_z + piece / SLICE) as i32 - problem.padding.d as i32;
        let y = (first_y + piece % SLICE / ROW) as i32 - problem.padding.h as i32;
        let inside =
            at < INPUTS * PIECES && z >= 0 && y >= 0 && z < input.d as i32 && y < input.h as i32;
        let there = ((channel as i32 * input.d as i32 + z) * input.h as i32 + y) * input.w as i32;
        rows[i as usize] = select(inside, there, -1i32);
        columns[i as usize] = (first_x + piece % ROW) as i32 - LEFT as i32;
        channels[i as usize] = channel;
    }
    Source { rows, columns, channels }
}

/// The pieces of a chunk of channels; zeros outside. `x` by numbers and by pieces.
#[cube]
fn bring<N: Size>(
    x: &[f32],
    by_piece: &[Vector<f32, N>],
    pieces: &mut Array<Vector<f32, N>>,
    source: &Source,
    volume: usize,
    channels: u32,
    width: u32,
    #[comptime] whole: bool,
) {
    #[unroll]
    for i in 0..BROUGHT {
        let mut piece = Vector::<f32, N>::new(0.0f32);
        let (row, column) = (source.rows[i as usize], source.columns[i as usize]);
        if row >= 0 && source.channels[i as usize] < channels {
            if comptime!(whole) {
                if column >= 0 && column < width as i32 {
                    piece = by_piece[(volume + (row + column) as usize) / 4];
                }
            } else {
                #[unroll]
                for e in 0..4u32 {
                    let column = column + e as i32;
                    if column >= 0 && column < width as i32 {
                        piece.insert(e as usize, x[volume + (row + column) as usize]);
                    }
                }
            }
        }
        pieces[i as usize] = piece;
    }
}

/// A cube has a tile of voxels of `blocks` times 16 outputs. While it multiplies a chunk of
/// channels, the next is on its way. Rows of `whole` pieces are read by pieces.
#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_kernel<N: Size>(
    x: &[f32],
    by_piece: &[Vector<f32, N>],
    packed: &[Vector<u32, N>],
    output: &mut [f32],
    problem: Problem,
    #[comptime] blocks: u32,
    #[comptime] whole: bool,
) {
    let (extent, input) = (&problem.output, &problem.input);
    let groups = problem.outputs.div_ceil(comptime!(blocks * ROWS));
    let tiles = extent.d.div_ceil(comptime!(TILE[0]));
    let group = CUBE_POS_Z / tiles % groups;
    let n = CUBE_POS_Z / tiles / groups;
    let first_z = CUBE_POS_Z % tiles * comptime!(TILE[0]);
    let first_y = CUBE_POS_Y * comptime!(TILE[1]);
    let first_x = CUBE_POS_X * comptime!(TILE[2]);
    let source = source(&problem, first_z, first_y, first_x);

    let (plane, lane) = (UNIT_POS / LANES, UNIT_POS % LANES);
    let (g, t) = (lane / 4, lane % 4);
    let half = plane % 2;
    let slice = plane / 2 % comptime!(TILE[0]);
    let band = plane / comptime!(2 * TILE[0]);
    let first = t * comptime!(4 * CHANNEL)
        + slice * SLICE
        + band * comptime!(PLANE_ROWS * ROW)
        + half * 8
        + g
        + LEFT
        - problem.padding.w;
    let mut sums = Array::<Sums>::new(comptime!((blocks * PLANE_ROWS) as usize));
    #[unroll]
    for i in 0..blocks * PLANE_ROWS {
        sums[i as usize] = Sums::new(0.0f32);
    }
    let mut tile = Shared::<[Bits]>::new_slice(comptime!((INPUTS * CHANNEL) as usize));
    let mut weights = Shared::<[Left]>::new_slice(comptime!((blocks * TAPS * LANES) as usize));
    let mut pieces = Array::<Vector<f32, N>>::new(comptime!(BROUGHT as usize));
    let chunks = problem.channels.div_ceil(INPUTS);
    let volume = (n * problem.channels) as usize * len(input);
    bring(x, by_piece, &mut pieces, &source, volume, problem.channels, input.w, whole);
    for chunk in 0..chunks {
        sync_cube();
        #[unroll]
        for i in 0..BROUGHT {
            let at = UNIT_POS + i * CUBE;
            if at < comptime!(INPUTS * PIECES) {
                let mut bits = Bits::empty();
                #[unroll]
                for e in 0..4usize {
                    bits.insert(e, rounded(pieces[i as usize].extract(e)));
                }
                tile[(at / PIECES * CHANNEL + at % PIECES) as usize] = bits;
            }
        }
        let mut at = UNIT_POS;
        while at < comptime!(blocks * TAPS * LANES) {
            let block = group * blocks + at / comptime!(TAPS * LANES);
            let fragment = (block * chunks + chunk) as usize * comptime!((TAPS * LANES) as usize);
            let bits = packed[fragment + (at % comptime!(TAPS * LANES)) as usize];
            let mut weight = Left::empty();
            #[unroll]
            for i in 0..4usize {
                weight.insert(i, bits.extract(i));
            }
            weights[at as usize] = weight;
            at += CUBE;
        }
        sync_cube();
        let next = (chunk + 1) * INPUTS;
        if next < problem.channels {
            let volume = (n * problem.channels + next) as usize * len(input);
            bring(x, by_piece, &mut pieces, &source, volume, problem.channels - next, input.w, whole);
        }
        let voxels = tile.with_vector_size::<Const<1>>();
        #[unroll]
        for kz in 0..3u32 {
            #[unroll]
            for kx in 0..3u32 {
                let mut rows = Array::<Right>::new(comptime!((PLANE_ROWS + 2) as usize));
                #[unroll]
                for r in 0..PLANE_ROWS + 2 {
                    let at = (first + comptime!(kz * SLICE + r * ROW + kx)) as usize;
                    let mut row = Right::empty();
                    row.insert(0usize, voxels[at].extract(0usize));
                    let far = at + comptime!((16 * CHANNEL) as usize);
                    row.insert(1usize, voxels[far].extract(0usize));
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
            CubeCount::Static(cubes.min(65535) as u32, cubes.div_ceil(65535) as u32, 1),
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
            assert_cubes(counts),
            CubeDim::new_1d(CUBE),
            address(&[&x, &packed, &output]),
            4,
            buffer(&x),
            buffer(&x),
            buffer(&packed),
            buffer(&output),
            problem,
            blocks,
            size(&x)[2].is_multiple_of(4),
        );
    }
    output
}
