//! `dL/dw[o, c](k) = sum_p dL/dy[o](p) x[c](p + k - padding)`.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::{Problem, len, problem, size};
use super::{INPUTS, ROWS, TAPS};
use ffdp_kit::cubes::grid_of_cubes;
use ffdp_kit::launch::{address, buffer, empty, sum_columns};
use ffdp_kit::tensor_cores::{LANES, Left, Right, Sums, add_product, rounded};

/// Voxels of the gradient in shared memory; a plane has a slice, and the nine taps of one `kz`.
const TILE: [u32; 3] = [4, 4, 16];
const SLICE: u32 = TILE[1] * TILE[2];
/// Per output. 4 modulo 32 banks, so that eight outputs of four voxels lie in different ones.
const OUTPUT: u32 = TILE[0] * SLICE + 4;
/// Voxels of the input.
const INPUT_ROW: u32 = TILE[2] + 2;
const INPUT_SLICE: u32 = (TILE[1] + 2) * INPUT_ROW;
const INPUT_VOXELS: u32 = (TILE[0] + 2) * INPUT_SLICE;
/// Per input. 12 modulo 32 banks, so that eight inputs of four voxels lie in different ones.
const INPUT: u32 = INPUT_VOXELS + 4;
/// Taps of a plane: with all 27, sums would fill the registers and few planes would run at a time.
const PLANE_TAPS: u32 = 9;
/// Units of a cube.
const CUBE: u32 = TILE[0] * 3 * LANES;
/// Voxels that a unit brings, per channel.
const BROUGHT: u32 = INPUT_VOXELS.div_ceil(CUBE);
const BROUGHT_GRADIENT: u32 = (TILE[0] * SLICE).div_ceil(CUBE);
/// Cubes that the device should have: two for each of some 130 multiprocessors, twice.
const CUBES_WANTED: usize = 528;

/// A cube has 16 outputs, eight inputs and some tiles, and leaves `partials[cube z][o, c, k]`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn to_weight_kernel(x: &[f32], grad: &[f32], partials: &mut [f32], problem: Problem, batch: u32) {
    let (extent, input) = (&problem.output, &problem.input);
    let (first_input, first_output) = (CUBE_POS_X * INPUTS, CUBE_POS_Y * ROWS);
    let tiles_x = extent.w.div_ceil(comptime!(TILE[2]));
    let tiles_y = extent.h.div_ceil(comptime!(TILE[1]));
    let tiles_z = extent.d.div_ceil(comptime!(TILE[0]));
    let tiles = batch * tiles_z * tiles_y * tiles_x;
    let (plane, lane) = (UNIT_POS / LANES, UNIT_POS % LANES);
    let (g, t) = (lane / 4, lane % 4);
    let (slice, kz) = (plane % comptime!(TILE[0]), plane / comptime!(TILE[0]));
    let mut values = Shared::<[u32]>::new_slice(comptime!((INPUTS * INPUT) as usize));
    let mut gradients = Shared::<[u32]>::new_slice(comptime!((ROWS * OUTPUT) as usize));
    let mut sums = Array::<Sums>::new(comptime!(PLANE_TAPS as usize));
    #[unroll]
    for tap in 0..PLANE_TAPS {
        sums[tap as usize] = Sums::new(0.0f32);
    }

    let mut tile = CUBE_POS_Z;
    while tile < tiles {
        let first_x = tile % tiles_x * comptime!(TILE[2]);
        let first_y = tile / tiles_x % tiles_y * comptime!(TILE[1]);
        let first_z = tile / tiles_x / tiles_y % tiles_z * comptime!(TILE[0]);
        let n = tile / tiles_x / tiles_y / tiles_z;
        sync_cube();
        #[unroll]
        for i in 0..BROUGHT {
            let at = UNIT_POS + i * CUBE;
            if at < INPUT_VOXELS {
                let z = (first_z + at / INPUT_SLICE) as i32 - problem.padding.d as i32;
                let y = (first_y + at % INPUT_SLICE / INPUT_ROW) as i32 - problem.padding.h as i32;
                let sx = (first_x + at % INPUT_ROW) as i32 - problem.padding.w as i32;
                let inside = z >= 0
                    && y >= 0
                    && sx >= 0
                    && z < input.d as i32
                    && y < input.h as i32
                    && sx < input.w as i32;
                let there = ((z * input.h as i32 + y) * input.w as i32 + sx) as usize;
                #[unroll]
                for c in 0..INPUTS {
                    let channel = first_input + c;
                    let mut value = 0.0f32;
                    if inside && channel < problem.channels {
                        value = x[(n * problem.channels + channel) as usize * len(input) + there];
                    }
                    values[(c * INPUT + at) as usize] = rounded(value);
                }
            }
        }
        #[unroll]
        for i in 0..BROUGHT_GRADIENT {
            let at = UNIT_POS + i * CUBE;
            let z = first_z + at / SLICE;
            let y = first_y + at % SLICE / comptime!(TILE[2]);
            let sx = first_x + at % comptime!(TILE[2]);
            let inside = z < extent.d && y < extent.h && sx < extent.w;
            let there = (z * extent.h + y) as usize * extent.w as usize + sx as usize;
            if at < comptime!(TILE[0] * SLICE) {
                #[unroll]
                for o in 0..ROWS {
                    let output = first_output + o;
                    let mut value = 0.0f32;
                    if inside && output < problem.outputs {
                        value = grad[(n * problem.outputs + output) as usize * len(extent) + there];
                    }
                    gradients[(o * OUTPUT + at) as usize] = rounded(value);
                }
            }
        }
        sync_cube();
        for half in 0..2u32 {
            let mut left = Array::<Left>::new(comptime!(TILE[1] as usize));
            #[unroll]
            for r in 0..comptime!(TILE[1]) {
                let at =
                    (g * OUTPUT + slice * SLICE + r * comptime!(TILE[2]) + half * 8 + t) as usize;
                let mut row = Left::empty();
                row.insert(0usize, gradients[at]);
                row.insert(1usize, gradients[at + comptime!((8 * OUTPUT) as usize)]);
                row.insert(2usize, gradients[at + 4]);
                row.insert(3usize, gradients[at + comptime!((8 * OUTPUT + 4) as usize)]);
                left[r as usize] = row;
            }
            let first = g * INPUT + (slice + kz) * INPUT_SLICE + half * 8 + t;
            #[unroll]
            for kx in 0..3u32 {
                let mut rows = Array::<Right>::new(comptime!((TILE[1] + 2) as usize));
                #[unroll]
                for r in 0..comptime!(TILE[1] + 2) {
                    let at = (first + comptime!(r * INPUT_ROW + kx)) as usize;
                    let mut row = Right::empty();
                    row.insert(0usize, values[at]);
                    row.insert(1usize, values[at + 4]);
                    rows[r as usize] = row;
                }
                #[unroll]
                for r in 0..comptime!(TILE[1]) {
                    #[unroll]
                    for ky in 0..3u32 {
                        let tap = comptime!((ky * 3 + kx) as usize);
                        let row = rows[comptime!((r + ky) as usize)];
                        sums[tap] = add_product(left[r as usize], row, sums[tap]);
                    }
                }
            }
        }
        tile += CUBE_COUNT_Z;
    }

    // The slices add their sums one after the other, in the shared memory of the values.
    for turn in 0..comptime!(TILE[0]) {
        sync_cube();
        if turn == slice {
            #[unroll]
            for tap in 0..PLANE_TAPS {
                #[unroll]
                for e in 0..4u32 {
                    let at = ((kz * PLANE_TAPS + tap) * 128 + lane * 4 + e) as usize;
                    let mut sum = sums[tap as usize].extract(e as usize);
                    if turn > 0 {
                        sum += f32::reinterpret(values[at]);
                    }
                    values[at] = u32::reinterpret(sum);
                }
            }
        }
    }
    sync_cube();
    let pairs = problem.outputs as usize * problem.channels as usize;
    let mut at = UNIT_POS;
    while at < comptime!(TAPS * 128) {
        let (tap, lane, element) = (at / 128, at / 4 % 32, at % 4);
        let o = first_output + lane / 4 + 8 * (element / 2);
        let c = first_input + lane % 4 * 2 + element % 2;
        if o < problem.outputs && c < problem.channels {
            let pair = o as usize * problem.channels as usize + c as usize;
            let row = CUBE_POS_Z as usize * pairs + pair;
            partials[row * 27 + tap as usize] = f32::reinterpret(values[at as usize]);
        }
        at += CUBE;
    }
}

/// The gradient of the weight.
pub(in super::super) fn to_weight(
    x: CubeTensor,
    weight: CubeTensor,
    grad: CubeTensor,
    padding: [usize; 3],
) -> CubeTensor {
    let (x, grad) = (into_contiguous(x), into_contiguous(grad));
    let shape = weight.meta.shape().clone();
    let (batch, outputs, channels) = (x.meta.shape()[0], shape[0], shape[1]);
    let blocks = [channels.div_ceil(INPUTS as usize), outputs.div_ceil(ROWS as usize)];
    let [d, h, w] = size(&grad);
    let tiles = batch
        * d.div_ceil(TILE[0] as usize)
        * h.div_ceil(TILE[1] as usize)
        * w.div_ceil(TILE[2] as usize);
    let columns = CUBES_WANTED.div_ceil(blocks[0] * blocks[1]).min(tiles);
    let output = empty(&x, shape.clone());
    let partials = match columns {
        1 => output.clone(),
        _ => empty(&x, [columns, shape.num_elements()]),
    };
    unsafe {
        to_weight_kernel::launch_unchecked(
            &x.client,
            grid_of_cubes("conv3d", [blocks[0], blocks[1], columns]),
            CubeDim::new_1d(CUBE),
            address(&[&x, &grad, &partials]),
            buffer(&x),
            buffer(&grad),
            buffer(&partials),
            problem(&x, &grad, outputs, padding),
            batch as u32,
        );
    }
    match columns {
        1 => output,
        _ => sum_columns(&partials, columns, output),
    }
}
