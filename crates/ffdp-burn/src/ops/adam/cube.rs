//! Adam's direction on the GPU: a sweep over the moments, a sweep over the direction, and the two
//! small reductions between and after them; nothing is read back.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{AdamConstants, AdamOps};
use crate::ops::launch::{
    UNITS, address, assert_f32, buffer, empty, max_over_cube, sum_over_cube, sum_rows,
};

/// Cubes per field, at most: each unit strides over the whole field.
const CUBES: usize = 4096;

/// [`AdamConstants`] in a kernel.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Constants {
    beta_mean: f32,
    beta_square: f32,
    correction_mean: f32,
    correction_square: f32,
    /// `1 - b1`, `1 - b2`, rounded once.
    fresh_mean: f32,
    fresh_square: f32,
    epsilon: f32,
    gradient_floor: f32,
}

/// Takes the gradient into the moments; `partials[n, cube]` sums the mean squares.
#[cube(launch_unchecked, address_type = "dynamic")]
fn moments_kernel(
    grad: &[f32],
    mean: &mut [f32],
    square: &mut [f32],
    partials: &mut [f32],
    len: usize,
    constants: Constants,
) {
    let first = CUBE_POS_Y as usize * len;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    let mut sum = 0.0f32;
    while i < len {
        let g = grad[first + i];
        let m = constants.beta_mean * mean[first + i] + constants.fresh_mean * g;
        let v = constants.beta_square * square[first + i] + constants.fresh_square * (g * g);
        mean[first + i] = m;
        square[first + i] = v;
        sum += v;
        i += step;
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        partials[(CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize] = total;
    }
}

/// The direction; `mean_squares[n]` is the mean of `v / c2`, `partials[n, cube]` takes the longest
/// squared length.
#[cube(launch_unchecked, address_type = "dynamic")]
fn direction_kernel(
    mean: &[f32],
    square: &[f32],
    mean_squares: &[f32],
    direction: &mut [f32],
    partials: &mut [f32],
    voxels: usize,
    constants: Constants,
) {
    let first = CUBE_POS_Y as usize * 3 * voxels;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    let rms = mean_squares[CUBE_POS_Y as usize].sqrt();
    let floor = constants.gradient_floor * rms + constants.epsilon;
    let mut voxel = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    let mut longest = 0.0f32;
    while voxel < voxels {
        let mut squared_length = 0.0f32;
        #[unroll]
        for component in 0..3usize {
            let i = first + component * voxels + voxel;
            let m = constants.correction_mean * mean[i];
            let d = m / ((constants.correction_square * square[i]).sqrt() + floor);
            direction[i] = d;
            squared_length += d * d;
        }
        longest = max(longest, squared_length);
        voxel += step;
    }
    let top = max_over_cube(longest);
    if UNIT_POS == 0 {
        partials[(CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize] = top;
    }
}

/// `output[n] = sqrt(max_k partials[n, k])`, one cube a row.
#[cube(launch_unchecked)]
fn longest_kernel(partials: &[f32], output: &mut [f32], columns: u32) {
    let row = CUBE_POS_X;
    let mut longest = 0.0f32;
    let mut k = UNIT_POS;
    while k < columns {
        longest = max(longest, partials[(row * columns + k) as usize]);
        k += UNITS;
    }
    let top = max_over_cube(longest);
    if UNIT_POS == 0 {
        output[row as usize] = top.sqrt();
    }
}

/// Cubes for `len` elements a field.
fn cubes(len: usize) -> u32 {
    len.div_ceil(UNITS as usize).clamp(1, CUBES) as u32
}

/// The tensor, or a copy where something else holds its memory.
fn writable(tensor: CubeTensor) -> CubeTensor {
    let tensor = into_contiguous(tensor);
    if tensor.can_mut() { tensor } else { tensor.copy() }
}

impl AdamOps for CubeBackend {
    fn adam_3d(
        grad: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("adam", &[&grad, &mean, &square]);
        let grad = into_contiguous(grad);
        let (mean, square) = (writable(mean), writable(square));
        let shape = grad.meta.shape().clone();
        let (batch, len) = (shape[0], shape.num_elements() / shape[0]);
        assert!(batch <= 65535, "adam: {batch} fields, more than 65535; split the batch");
        let ([b1, b2], [c1, c2]) = (constants.beta, constants.correction);
        let numbers = || {
            ConstantsLaunch::new(
                b1 as f32,
                b2 as f32,
                c1 as f32,
                c2 as f32,
                (1.0 - b1) as f32,
                (1.0 - b2) as f32,
                constants.epsilon as f32,
                constants.gradient_floor as f32,
            )
        };
        let columns = cubes(len);
        let partials = empty(&grad, [batch * columns as usize]);
        unsafe {
            moments_kernel::launch_unchecked(
                &grad.client,
                CubeCount::Static(columns, batch as u32, 1),
                CubeDim::new_1d(UNITS),
                address(&[&grad]),
                buffer(&grad),
                buffer(&mean),
                buffer(&square),
                buffer(&partials),
                len,
                numbers(),
            );
        }
        let mean_squares = sum_rows(&partials, batch, columns as usize, (c2 / len as f64) as f32);
        let direction = empty(&grad, shape);
        let columns = cubes(len / 3);
        let partials = empty(&grad, [batch * columns as usize]);
        let longest = empty(&grad, [batch]);
        unsafe {
            direction_kernel::launch_unchecked(
                &grad.client,
                CubeCount::Static(columns, batch as u32, 1),
                CubeDim::new_1d(UNITS),
                address(&[&grad]),
                buffer(&mean),
                buffer(&square),
                buffer(&mean_squares),
                buffer(&direction),
                buffer(&partials),
                len / 3,
                numbers(),
            );
            longest_kernel::launch_unchecked(
                &grad.client,
                CubeCount::Static(batch as u32, 1, 1),
                CubeDim::new_1d(UNITS),
                buffer(&partials),
                buffer(&longest),
                columns,
            );
        }
        (direction, longest, mean, square)
    }
}
