//! The convolution in f32, on any GPU: direct kernels, for every size and without tuning.
//!
//! A unit owns four neighbouring voxels of up to eight outputs, so that every value and weight it
//! reads is used many times.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::settings::Dim3;
use cubecl::prelude::*;

use super::{Problem, len, problem, size};
use crate::ops::conv3d::output_shape;
use ffdp_kit::cubes::grid_of_cubes;
use ffdp_kit::launch::{SUMS, UNITS, address, buffer, empty, sum_rows, sums_over_cube};

/// Neighbouring voxels along x of one unit.
const VOXELS: u32 = 4;
/// Units of a cube of the forward kernel: 32 x 8 x 4 voxels.
const CUBE: Dim3 = Dim3::new_3d(8, 8, 4);
/// Cubes that the weight's gradient should have, so that every multiprocessor has work.
const CUBES_WANTED: usize = 2048;
/// `y[o](p) = sum_{c, k} w[o, c](k) x[c](p + k - padding)`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_kernel(
    x: &[f32],
    weight: &[f32],
    output: &mut [f32],
    problem: Problem,
    #[comptime] k: u32,
    #[comptime] block: u32,
) {
    let (size, input) = (&problem.output, &problem.input);
    let groups = problem.outputs.div_ceil(block);
    let tiles = size.d.div_ceil(CUBE_DIM_Z);
    let first_output = CUBE_POS_Z / tiles % groups * block;
    let n = CUBE_POS_Z / tiles / groups;
    let first_x = ABSOLUTE_POS_X * VOXELS;
    let y = ABSOLUTE_POS_Y;
    let z = CUBE_POS_Z % tiles * CUBE_DIM_Z + UNIT_POS_Z;
    if first_x >= size.w || y >= size.h || z >= size.d {
        terminate!();
    }
    let mut sums = Array::<f32>::new(comptime!((block * VOXELS) as usize));
    #[unroll]
    for i in 0..block * VOXELS {
        sums[i as usize] = 0.0f32;
    }
    let left = first_x as i32 - problem.padding.w as i32;
    let top = y as i32 - problem.padding.h as i32;
    let front = z as i32 - problem.padding.d as i32;
    let last = problem.outputs - 1;
    for c in 0..problem.channels {
        let volume = (n * problem.channels + c) as usize * len(input);
        for kz in 0..k {
            let sz = front + kz as i32;
            for ky in 0..k {
                let sy = top + ky as i32;
                if sz >= 0 && sy >= 0 && sz < input.d as i32 && sy < input.h as i32 {
                    let row =
                        volume + (sz as usize * input.h as usize + sy as usize) * input.w as usize;
                    let mut line = Array::<f32>::new(comptime!((VOXELS + k - 1) as usize));
                    #[unroll]
                    for i in 0..VOXELS + k - 1 {
                        let sx = left + i as i32;
                        let mut value = 0.0f32;
                        if sx >= 0 && sx < input.w as i32 {
                            value = x[row + sx as usize];
                        }
                        line[i as usize] = value;
                    }
                    let tap = (kz * k + ky) * k;
                    #[unroll]
                    for o in 0..block {
                        // Outputs beyond the last repeat it; they are not written.
                        let from = min(first_output + o, last) * problem.channels + c;
                        let from = from as usize * comptime!((k * k * k) as usize) + tap as usize;
                        #[unroll]
                        for kx in 0..k {
                            let w = weight[from + kx as usize];
                            #[unroll]
                            for v in 0..VOXELS {
                                sums[comptime!((o * VOXELS + v) as usize)] +=
                                    w * line[comptime!((v + kx) as usize)];
                            }
                        }
                    }
                }
            }
        }
    }
    let voxel = (z as usize * size.h as usize + y as usize) * size.w as usize + first_x as usize;
    #[unroll]
    for o in 0..block {
        let output_channel = first_output + o;
        if output_channel <= last {
            let start = (n * problem.outputs + output_channel) as usize * len(size) + voxel;
            #[unroll]
            for v in 0..VOXELS {
                if first_x + v < size.w {
                    output[start + v as usize] = sums[comptime!((o * VOXELS + v) as usize)];
                }
            }
        }
    }
}

/// `dL/dw[o, c](k) = sum_p dL/dy[o](p) x[c](p + k - padding)`: a cube has one input channel,
/// `block` outputs and some slices, and leaves `partials[o, c, k, (n, slab)]`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn to_weight_kernel(
    x: &[f32],
    grad: &[f32],
    partials: &mut [f32],
    problem: Problem,
    slabs: u32,
    #[comptime] k: u32,
    #[comptime] block: u32,
) {
    let (size, input) = (&problem.output, &problem.input);
    let taps = comptime!(k * k * k);
    let (c, first_output) = (CUBE_POS_X, CUBE_POS_Y * block);
    let n = CUBE_POS_Z / slabs;
    let slices = size.d.div_ceil(slabs);
    let first_slice = CUBE_POS_Z % slabs * slices;
    let last_slice = min(first_slice + slices, size.d);
    let volume = (n * problem.channels + c) as usize * len(input);
    let last = problem.outputs - 1;
    let mut sums = Array::<f32>::new(comptime!((block * taps) as usize));
    #[unroll]
    for i in 0..block * taps {
        sums[i as usize] = 0.0f32;
    }
    let area = size.h * size.w;
    let mut g = Array::<f32>::new(comptime!(block as usize));
    for z in first_slice..last_slice {
        let mut voxel = UNIT_POS;
        while voxel < area {
            let (px, py) = (voxel % size.w, voxel / size.w);
            let at = z as usize * area as usize + voxel as usize;
            #[unroll]
            for o in 0..block {
                let channel = (n * problem.outputs + min(first_output + o, last)) as usize;
                g[o as usize] = grad[channel * len(size) + at];
            }
            #[unroll]
            for kz in 0..k {
                let sz = (z + kz) as i32 - problem.padding.d as i32;
                #[unroll]
                for ky in 0..k {
                    let sy = (py + ky) as i32 - problem.padding.h as i32;
                    if sz >= 0 && sy >= 0 && sz < input.d as i32 && sy < input.h as i32 {
                        let row = volume
                            + (sz as usize * input.h as usize + sy as usize) * input.w as usize;
                        #[unroll]
                        for kx in 0..k {
                            let sx = (px + kx) as i32 - problem.padding.w as i32;
                            let mut value = 0.0f32;
                            if sx >= 0 && sx < input.w as i32 {
                                value = x[row + sx as usize];
                            }
                            #[unroll]
                            for o in 0..block {
                                let tap = comptime!((o * taps + (kz * k + ky) * k + kx) as usize);
                                sums[tap] += g[o as usize] * value;
                            }
                        }
                    }
                }
            }
            voxel += UNITS;
        }
    }
    let columns = CUBE_COUNT_Z as usize;
    let mut room = Shared::<[f32]>::new_slice(comptime!(9 * UNITS as usize));
    #[unroll]
    for group in 0..comptime!((block * taps).div_ceil(SUMS)) {
        let first = comptime!(group * SUMS);
        let total = sums_over_cube(&mut room, &sums, first, comptime!(block * taps));
        let i = first + UNIT_POS;
        let output_channel = first_output + i / taps;
        if UNIT_POS < SUMS && i < block * taps && output_channel <= last {
            let row = (output_channel * problem.channels + c) * taps + i % taps;
            partials[row as usize * columns + CUBE_POS_Z as usize] = total;
        }
    }
}

pub(super) fn forward(x: CubeTensor, weight: CubeTensor, padding: [usize; 3]) -> CubeTensor {
    let (x, weight) = (into_contiguous(x), into_contiguous(weight));
    let output = empty(&x, output_shape(x.meta.shape(), weight.meta.shape(), padding));
    let (batch, outputs) = (x.meta.shape()[0], weight.meta.shape()[0]);
    let block = if outputs <= 4 { 4 } else { 8 };
    let [d, h, w] = size(&output);
    let counts = [
        w.div_ceil((CUBE.x * VOXELS) as usize),
        h.div_ceil(CUBE.y as usize),
        batch * outputs.div_ceil(block) * d.div_ceil(CUBE.z as usize),
    ];
    unsafe {
        forward_kernel::launch_unchecked(
            &x.client,
            grid_of_cubes("conv3d", counts),
            CUBE.into(),
            address(&[&x, &output]),
            buffer(&x),
            buffer(&weight),
            buffer(&output),
            problem(&x, &output, outputs, padding),
            weight.meta.shape()[2] as u32,
            block as u32,
        );
    }
    output
}

pub(super) fn to_weight(
    x: CubeTensor,
    weight: CubeTensor,
    grad: CubeTensor,
    padding: [usize; 3],
) -> CubeTensor {
    let (x, grad) = (into_contiguous(x), into_contiguous(grad));
    let shape = weight.meta.shape().clone();
    let [outputs, channels, k] = [shape[0], shape[1], shape[2]];
    // The sums of all taps of a block are held in registers.
    let block = if k <= 3 { 4 } else { 1 };
    let pairs = channels * outputs.div_ceil(block);
    let batch = x.meta.shape()[0];
    let slabs = CUBES_WANTED.div_ceil(pairs * batch).min(size(&grad)[0]);
    let columns = batch * slabs;
    let rows = shape.num_elements();
    let partials = empty(&x, [rows, columns]);
    unsafe {
        to_weight_kernel::launch_unchecked(
            &x.client,
            grid_of_cubes("conv3d", [channels, outputs.div_ceil(block), columns]),
            CubeDim::new_1d(UNITS),
            address(&[&x, &grad, &partials]),
            buffer(&x),
            buffer(&grad),
            buffer(&partials),
            problem(&x, &grad, outputs, padding),
            slabs as u32,
            k as u32,
            block as u32,
        );
    }
    let sums = if columns == 1 { partials } else { sum_rows(&partials, rows, columns, 1.0) };
    CubeTensor::new_contiguous(sums.client, sums.device, shape, sums.handle, sums.dtype)
}
