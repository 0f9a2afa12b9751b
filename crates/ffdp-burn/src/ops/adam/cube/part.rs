//! The pieces of a step on the GPU that know a part of the field only: the moments after a gradient,
//! and the longest vector that they propose.

use burn::tensor::{DType, bf16};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{
    CUBES, Constants, Plan, Power, assert_moments, cubes, energies_of, floor_of, power_after,
    sweep_kernel,
};
use crate::ops::adam::AdamConstants;
use ffdp_kit::cubes::CUBES_ALONG_AXIS;
use ffdp_kit::launch::{
    UNITS, address, assert_f32, buffer, empty, max_over_cube, sum_over_cube, writable,
};

/// Takes the gradient into the moments; `energies[n, cube]` are partial sums of `g^2`. `len` vectors
/// a field.
#[cube(launch_unchecked, address_type = "dynamic")]
fn take_kernel<M: Float, N: Size>(
    grad: &[Vector<f32, N>],
    mean: &mut [Vector<M, N>],
    square: &mut [Vector<M, N>],
    energies: &mut [f32],
    len: usize,
    constants: Constants,
    #[comptime] lanes: usize,
) {
    let first = CUBE_POS_Y as usize * len;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    let (beta_mean, fresh_mean) =
        (Vector::<f32, N>::new(constants.beta_mean), Vector::<f32, N>::new(constants.fresh_mean));
    let (beta_square, fresh_square) = (
        Vector::<f32, N>::new(constants.beta_square),
        Vector::<f32, N>::new(constants.fresh_square),
    );
    let mut sums = Vector::<f32, N>::new(0.0f32);
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    while i < len {
        let g = grad[first + i];
        let m = beta_mean * Vector::<f32, N>::cast_from(mean[first + i]) + fresh_mean * g;
        let v =
            beta_square * Vector::<f32, N>::cast_from(square[first + i]) + fresh_square * (g * g);
        mean[first + i] = Vector::<M, N>::cast_from(m);
        square[first + i] = Vector::<M, N>::cast_from(v);
        sums += g * g;
        i += step;
    }
    let mut sum = 0.0f32;
    #[unroll]
    for lane in 0..lanes {
        sum += sums.extract(lane);
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        energies[(CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize] = total;
    }
}

/// `mean v` of each part, one cube a field.
#[cube(launch_unchecked)]
fn power_kernel(
    power: &[f32],
    energies: &[f32],
    new_power: &mut [f32],
    columns: u32,
    constants: Constants,
) {
    let after = power_after(power, energies, CUBE_POS_X, columns, &constants);
    if UNIT_POS == 0 {
        new_power[CUBE_POS_X as usize] = after;
    }
}

/// `partials[n, cube]`, the longest squared length of the direction; `voxels` counts vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
fn longest_kernel<M: Float, N: Size>(
    mean: &[Vector<M, N>],
    square: &[Vector<M, N>],
    power: &[f32],
    partials: &mut [f32],
    voxels: usize,
    constants: Constants,
    #[comptime] lanes: usize,
) {
    let first = CUBE_POS_Y as usize * 3 * voxels;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    let floor = Vector::<f32, N>::new(floor_of(power[CUBE_POS_Y as usize], &constants));
    let (correction_mean, correction_square) = (
        Vector::<f32, N>::new(constants.correction_mean),
        Vector::<f32, N>::new(constants.correction_square),
    );
    let mut longest = Vector::<f32, N>::new(0.0f32);
    let mut voxel = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    while voxel < voxels {
        let mut squared_length = Vector::<f32, N>::new(0.0f32);
        #[unroll]
        for component in 0..3usize {
            let i = first + component * voxels + voxel;
            let v = Vector::<f32, N>::cast_from(square[i]);
            let scale = (correction_square * v).sqrt() + floor;
            let d = correction_mean * Vector::<f32, N>::cast_from(mean[i]) / scale;
            squared_length += d * d;
        }
        longest = max(longest, squared_length);
        voxel += step;
    }
    let mut top = 0.0f32;
    #[unroll]
    for lane in 0..lanes {
        top = max(top, longest.extract(lane));
    }
    let top = max_over_cube(top);
    if UNIT_POS == 0 {
        partials[(CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize] = top;
    }
}

/// `longest[n] = sqrt(max_k partials[n, k])`, one cube a field.
#[cube(launch_unchecked)]
fn length_kernel(partials: &[f32], longest: &mut [f32], columns: u32) {
    let mut top = 0.0f32;
    let mut k = UNIT_POS;
    while k < columns {
        top = max(top, partials[(CUBE_POS_X * columns + k) as usize]);
        k += UNITS;
    }
    let top = max_over_cube(top);
    if UNIT_POS == 0 {
        longest[CUBE_POS_X as usize] = top.sqrt();
    }
}

struct Sizes {
    /// Fields.
    batch: usize,
    /// Values of a field.
    len: usize,
    /// Values that are read at a time.
    lanes: usize,
}

fn sizes(field: &CubeTensor) -> Sizes {
    let shape = field.meta.shape();
    let (batch, len) = (shape[0], shape.num_elements() / shape[0]);
    assert!(
        batch <= CUBES_ALONG_AXIS,
        "adam: {batch} fields, more than {CUBES_ALONG_AXIS}; split the batch"
    );
    Sizes { batch, len, lanes: if (len / 3).is_multiple_of(4) { 4 } else { 1 } }
}

/// See [`AdamPartOps::adam_take_3d`](crate::ops::adam::part::AdamPartOps::adam_take_3d).
pub(in crate::ops::adam) fn take_part(
    [grad, mean, square, power]: [CubeTensor; 4],
    constants: &AdamConstants,
) -> (CubeTensor, CubeTensor, CubeTensor) {
    assert_f32("adam", &[&grad, &power]);
    assert_moments(&mean, &square);
    let (grad, power) = (into_contiguous(grad), into_contiguous(power));
    let (mean, square) = (writable(mean), writable(square));
    let Sizes { batch, len, lanes } = sizes(&grad);
    let (columns, dim) = (cubes(len / lanes, CUBES), CubeDim::new_1d(UNITS));
    let energies = empty(&grad, [batch * columns as usize]);
    let new_power = empty(&power, [batch]);
    let take = match mean.dtype {
        DType::BF16 => take_kernel::launch_unchecked::<bf16>,
        _ => take_kernel::launch_unchecked::<f32>,
    };
    unsafe {
        take(
            &grad.client,
            CubeCount::Static(columns, batch as u32, 1),
            dim,
            address(&[&grad]),
            lanes,
            buffer(&grad),
            buffer(&mean),
            buffer(&square),
            buffer(&energies),
            len / lanes,
            constants.launch(len),
            lanes,
        );
        power_kernel::launch_unchecked(
            &grad.client,
            CubeCount::Static(batch as u32, 1, 1),
            dim,
            buffer(&power),
            buffer(&energies),
            buffer(&new_power),
            columns,
            constants.launch(len),
        );
    }
    (mean, square, new_power)
}

/// See [`AdamPartOps::adam_longest_3d`](crate::ops::adam::part::AdamPartOps::adam_longest_3d).
pub(in crate::ops::adam) fn longest_of_part(
    [mean, square, power]: [CubeTensor; 3],
    constants: &AdamConstants,
) -> CubeTensor {
    assert_f32("adam", &[&power]);
    assert_moments(&mean, &square);
    let [mean, square, power] = [mean, square, power].map(into_contiguous);
    let Sizes { batch, len, lanes } = sizes(&mean);
    let (columns, dim) = (cubes(len / 3 / lanes, CUBES), CubeDim::new_1d(UNITS));
    let partials = empty(&power, [batch * columns as usize]);
    let longest = empty(&power, [batch]);
    let kernel = match mean.dtype {
        DType::BF16 => longest_kernel::launch_unchecked::<bf16>,
        _ => longest_kernel::launch_unchecked::<f32>,
    };
    unsafe {
        kernel(
            &mean.client,
            CubeCount::Static(columns, batch as u32, 1),
            dim,
            address(&[&mean]),
            lanes,
            buffer(&mean),
            buffer(&square),
            buffer(&power),
            buffer(&partials),
            len / 3 / lanes,
            constants.launch(len),
            lanes,
        );
        length_kernel::launch_unchecked(
            &mean.client,
            CubeCount::Static(batch as u32, 1, 1),
            dim,
            buffer(&partials),
            buffer(&longest),
            columns,
        );
    }
    longest
}

/// See [`AdamPartOps::adam_power_3d`](crate::ops::adam::part::AdamPartOps::adam_power_3d).
pub(in crate::ops::adam) fn power_of_part(
    [grad, power]: [CubeTensor; 2],
    constants: &AdamConstants,
) -> CubeTensor {
    assert_f32("adam", &[&grad, &power]);
    let (grad, power) = (into_contiguous(grad), into_contiguous(power));
    let Sizes { batch, len, .. } = sizes(&grad);
    let (energies, columns) = energies_of(&grad);
    let new_power = empty(&power, [batch]);
    unsafe {
        power_kernel::launch_unchecked(
            &grad.client,
            CubeCount::Static(batch as u32, 1, 1),
            CubeDim::new_1d(UNITS),
            buffer(&power),
            buffer(&energies),
            buffer(&new_power),
            columns,
            constants.launch(len),
        );
    }
    new_power
}

/// See [`AdamPartOps::adam_advance_3d`](crate::ops::adam::part::AdamPartOps::adam_advance_3d).
pub(in crate::ops::adam) fn advance_part(
    [grad, mean, square, power]: [CubeTensor; 4],
    constants: &AdamConstants,
) -> (CubeTensor, CubeTensor, CubeTensor) {
    assert_f32("adam", &[&grad, &power]);
    assert_moments(&mean, &square);
    let (grad, power) = (into_contiguous(grad), into_contiguous(power));
    let (mean, square) = (writable(mean), writable(square));
    let Sizes { batch, len, lanes } = sizes(&grad);
    let (columns, dim) = (cubes(len / 3 / lanes, CUBES), CubeDim::new_1d(UNITS));
    let partials = empty(&grad, [batch * columns as usize]);
    // Dummies: of sums that are not read, and of one vector of a direction that is not stored.
    let (energies, direction) = (empty(&grad, [batch]), empty(&grad, [4]));
    let longest = empty(&power, [batch]);
    let sweep = match mean.dtype {
        DType::BF16 => sweep_kernel::launch_unchecked::<bf16>,
        _ => sweep_kernel::launch_unchecked::<f32>,
    };
    unsafe {
        sweep(
            &grad.client,
            CubeCount::Static(columns, batch as u32, 1),
            dim,
            address(&[&grad]),
            lanes,
            buffer(&grad),
            buffer(&mean),
            buffer(&square),
            buffer(&power),
            buffer(&energies),
            buffer(&direction),
            buffer(&partials),
            len / 3 / lanes,
            1,
            constants.launch(len),
            Plan { power: Power::After, stores_direction: false, lanes },
        );
        length_kernel::launch_unchecked(
            &grad.client,
            CubeCount::Static(batch as u32, 1, 1),
            dim,
            buffer(&partials),
            buffer(&longest),
            columns,
        );
    }
    (mean, square, longest)
}
