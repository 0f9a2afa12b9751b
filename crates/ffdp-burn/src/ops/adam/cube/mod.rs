//! Adam on the GPU: a sum of squares, one sweep that takes the gradient into the moments and gives
//! the direction, and a cube that gathers the cubes' results; nothing is read back.
//!
//! The sweeps move memory and little else, so they read and write four values at a time where
//! the field allows it: 16 bytes a unit and access saturate an H200, 2 (bf16) reach half of it.

mod part;
mod step;

pub(super) use part::{advance_part, longest_of_part, power_of_part, take_part};

use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, bf16};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{AdamConstants, AdamOps, AdamPieces, StepRule, UpdatedMoments};
use ffdp_kit::cubes::CUBES_ALONG_AXIS;
use ffdp_kit::launch::{
    UNITS, address, assert_f32, buffer, empty, max_over_cube, sum_over_cube, writable,
};

/// Cubes per field of the sweep, at most: each unit strides over the whole field.
const CUBES: usize = 4096;
/// Cubes per field of the sum of squares, at most: every cube of the sweep adds their results.
const SUMMING_CUBES: usize = 1024;

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
    /// `(1 - b2) / number of components`: from a sum of squares to its part of the mean.
    fresh_power: f32,
    epsilon: f32,
    gradient_floor: f32,
}

impl AdamConstants {
    /// For fields of `len` components.
    fn launch(&self, len: usize) -> ConstantsLaunch {
        let ([b1, b2], [c1, c2]) = (self.beta, self.correction);
        ConstantsLaunch::new(
            b1 as f32,
            b2 as f32,
            c1 as f32,
            c2 as f32,
            (1.0 - b1) as f32,
            (1.0 - b2) as f32,
            ((1.0 - b2) / len as f64) as f32,
            self.epsilon as f32,
            self.gradient_floor as f32,
        )
    }

    /// Whether the mean of the squares is needed.
    fn is_floored(&self) -> bool {
        self.gradient_floor > 0.0
    }
}

/// What is fixed when the sweep is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    power: Power,
    stores_direction: bool,
    lanes: usize,
}

/// What a sweep knows of the mean of the squares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Power {
    /// There is no floor that would need it.
    Unused,
    /// That before the gradient, and the sums of its squares.
    Before,
    /// That after it.
    After,
}

/// `kappa rms + eps` from the mean of the squares.
#[cube]
fn floor_of(power: f32, constants: &Constants) -> f32 {
    constants.gradient_floor * (constants.correction_square * power).sqrt() + constants.epsilon
}

/// The mean of the squares after a gradient: that of field `n` before, and the sums of `g^2` of
/// the `columns` cubes of that field. Every unit of a cube gets it.
#[cube]
fn power_after(
    power: &[f32],
    energies: &[f32],
    n: u32,
    columns: u32,
    constants: &Constants,
) -> f32 {
    let mut sum = 0.0f32;
    let mut k = UNIT_POS;
    while k < columns {
        sum += energies[(n * columns + k) as usize];
        k += UNITS;
    }
    constants.beta_square * power[n as usize] + constants.fresh_power * sum_over_cube(sum)
}

/// `energies[n, cube]`, partial sums of `g^2`; `len` vectors a field.
#[cube(launch_unchecked, address_type = "dynamic")]
fn energy_kernel<N: Size>(
    grad: &[Vector<f32, N>],
    energies: &mut [f32],
    len: usize,
    #[comptime] lanes: usize,
) {
    let first = CUBE_POS_Y as usize * len;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    let mut sums = Vector::<f32, N>::new(0.0f32);
    while i < len {
        let g = grad[first + i];
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

/// Takes the gradient into the moments, stores the direction if asked to; `partials[n, cube]` is
/// the longest squared length. `voxels` counts vectors, as `len` above.
#[cube(launch_unchecked, address_type = "dynamic")]
fn sweep_kernel<M: Float, N: Size>(
    grad: &[Vector<f32, N>],
    mean: &mut [Vector<M, N>],
    square: &mut [Vector<M, N>],
    power: &[f32],
    energies: &[f32],
    direction: &mut [Vector<f32, N>],
    partials: &mut [f32],
    voxels: usize,
    columns: u32,
    constants: Constants,
    #[comptime] plan: Plan,
) {
    let first = CUBE_POS_Y as usize * 3 * voxels;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    let mut floor = constants.epsilon;
    if comptime!(plan.power == Power::Before) {
        floor = floor_of(power_after(power, energies, CUBE_POS_Y, columns, &constants), &constants);
    } else if comptime!(plan.power == Power::After) {
        floor = floor_of(power[CUBE_POS_Y as usize], &constants);
    }
    let (beta_mean, fresh_mean) =
        (Vector::<f32, N>::new(constants.beta_mean), Vector::<f32, N>::new(constants.fresh_mean));
    let (beta_square, fresh_square) = (
        Vector::<f32, N>::new(constants.beta_square),
        Vector::<f32, N>::new(constants.fresh_square),
    );
    let (correction_mean, correction_square) = (
        Vector::<f32, N>::new(constants.correction_mean),
        Vector::<f32, N>::new(constants.correction_square),
    );
    let floor = Vector::<f32, N>::new(floor);
    let mut longest = Vector::<f32, N>::new(0.0f32);
    let mut voxel = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    while voxel < voxels {
        let mut squared_length = Vector::<f32, N>::new(0.0f32);
        #[unroll]
        for component in 0..3usize {
            let i = first + component * voxels + voxel;
            let g = grad[i];
            // Rounded to the type of storage first, so that the direction follows from what is
            // stored.
            let m = Vector::<M, N>::cast_from(
                beta_mean * Vector::<f32, N>::cast_from(mean[i]) + fresh_mean * g,
            );
            let v = Vector::<M, N>::cast_from(
                beta_square * Vector::<f32, N>::cast_from(square[i]) + fresh_square * (g * g),
            );
            mean[i] = m;
            square[i] = v;
            let scale = (correction_square * Vector::<f32, N>::cast_from(v)).sqrt() + floor;
            let d = correction_mean * Vector::<f32, N>::cast_from(m) / scale;
            if comptime!(plan.stores_direction) {
                direction[i] = d;
            }
            squared_length += d * d;
        }
        longest = max(longest, squared_length);
        voxel += step;
    }
    let mut top = 0.0f32;
    #[unroll]
    for lane in 0..plan.lanes {
        top = max(top, longest.extract(lane));
    }
    let top = max_over_cube(top);
    if UNIT_POS == 0 {
        partials[(CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize] = top;
    }
}

/// `longest[n] = sqrt(max_k partials[n, k])`, and the mean of the squares as every cube of the sweep
/// had it; one cube a field.
#[cube(launch_unchecked)]
fn finish_kernel(
    partials: &[f32],
    power: &[f32],
    energies: &[f32],
    longest: &mut [f32],
    new_power: &mut [f32],
    partial_columns: u32,
    energy_columns: u32,
    constants: Constants,
    #[comptime] floored: bool,
) {
    let n = CUBE_POS_X;
    let mut top = 0.0f32;
    let mut k = UNIT_POS;
    while k < partial_columns {
        top = max(top, partials[(n * partial_columns + k) as usize]);
        k += UNITS;
    }
    let top = max_over_cube(top);
    let mut mean = power[n as usize];
    if floored {
        mean = power_after(power, energies, n, energy_columns, &constants);
    }
    if UNIT_POS == 0 {
        longest[n as usize] = top.sqrt();
        new_power[n as usize] = mean;
    }
}

/// Cubes for `len` vectors a field.
fn cubes(len: usize, most: usize) -> u32 {
    len.div_ceil(UNITS as usize).clamp(1, most) as u32
}

/// Asserts the types that the moments may have.
fn assert_moments(mean: &CubeTensor, square: &CubeTensor) {
    assert!(
        mean.dtype == square.dtype && matches!(mean.dtype, DType::F32 | DType::BF16),
        "adam: the GPU kernels take moments of f32 or bf16, got {:?} and {:?}",
        mean.dtype,
        square.dtype
    );
}

/// Partial sums of the squares of a gradient, and how many there are of each field.
fn energies_of(grad: &CubeTensor) -> (CubeTensor, u32) {
    let shape = grad.meta.shape();
    let (batch, len) = (shape[0], shape.num_elements() / shape[0]);
    let lanes = if (len / 3).is_multiple_of(4) { 4 } else { 1 };
    let columns = cubes(len / lanes, SUMMING_CUBES);
    let energies = empty(grad, [batch * columns as usize]);
    unsafe {
        energy_kernel::launch_unchecked(
            &grad.client,
            CubeCount::Static(columns, batch as u32, 1),
            CubeDim::new_1d(UNITS),
            address(&[grad]),
            lanes,
            buffer(grad),
            buffer(&energies),
            len / lanes,
            lanes,
        );
    }
    (energies, columns)
}

/// Takes a gradient; also returns the direction, a dummy unless `stores_direction`.
fn take(
    [grad, mean, square, power]: [CubeTensor; 4],
    constants: &AdamConstants,
    stores_direction: bool,
) -> (UpdatedMoments<CubeBackend>, CubeTensor) {
    assert_f32("adam", &[&grad, &power]);
    assert_moments(&mean, &square);
    let (grad, power) = (into_contiguous(grad), into_contiguous(power));
    let (mean, square) = (writable(mean), writable(square));
    let shape = grad.meta.shape().clone();
    let (batch, len) = (shape[0], shape.num_elements() / shape[0]);
    assert!(
        batch <= CUBES_ALONG_AXIS,
        "adam: {batch} fields, more than {CUBES_ALONG_AXIS}; split the batch"
    );
    let lanes = if (len / 3).is_multiple_of(4) { 4 } else { 1 };
    let (known, (energies, energy_columns)) = match constants.is_floored() {
        true => (Power::Before, energies_of(&grad)),
        // A dummy.
        false => (Power::Unused, (empty(&grad, [batch]), 1)),
    };

    let columns = cubes(len / 3 / lanes, CUBES);
    let partials = empty(&grad, [batch * columns as usize]);
    // A dummy of one vector.
    let direction = if stores_direction { shape } else { [4].into() };
    let direction = empty(&grad, direction);
    let sweep = match mean.dtype {
        DType::BF16 => sweep_kernel::launch_unchecked::<bf16>,
        _ => sweep_kernel::launch_unchecked::<f32>,
    };
    unsafe {
        sweep(
            &grad.client,
            CubeCount::Static(columns, batch as u32, 1),
            CubeDim::new_1d(UNITS),
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
            energy_columns,
            constants.launch(len),
            Plan { power: known, stores_direction, lanes },
        );
    }

    let sums = FieldSums { partials, columns, energies, energy_columns };
    let (longest, power) = finish(&sums, &power, len, constants);
    (UpdatedMoments { mean, square, power, longest }, direction)
}

/// Partial results of the cubes of each field.
struct FieldSums {
    /// The squared lengths of the longest step.
    partials: CubeTensor,
    columns: u32,
    /// The squares of the gradient; a dummy where no floor asks for them.
    energies: CubeTensor,
    energy_columns: u32,
}

/// The longest step and the new power of each field of `len` numbers.
fn finish(
    sums: &FieldSums,
    power: &CubeTensor,
    len: usize,
    constants: &AdamConstants,
) -> (CubeTensor, CubeTensor) {
    let batch = power.meta.shape()[0];
    let (longest, new_power) = (empty(power, [batch]), empty(power, [batch]));
    unsafe {
        finish_kernel::launch_unchecked(
            &power.client,
            CubeCount::Static(batch as u32, 1, 1),
            CubeDim::new_1d(UNITS),
            buffer(&sums.partials),
            buffer(power),
            buffer(&sums.energies),
            buffer(&longest),
            buffer(&new_power),
            sums.columns,
            sums.energy_columns,
            constants.launch(len),
            constants.is_floored(),
        );
    }
    (longest, new_power)
}

impl AdamPieces for CubeBackend {
    fn take_gradient(
        grad: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        power: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> UpdatedMoments<Self> {
        take([grad, mean, square, power], &constants, false).0
    }

    fn stepped(
        field: FloatTensor<Self>,
        taken: &UpdatedMoments<Self>,
        constants: AdamConstants,
        step: StepRule,
    ) -> FloatTensor<Self> {
        step::stepped(field, taken, &constants, step)
    }
}

impl AdamOps for CubeBackend {
    fn adam_3d(
        grad: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        power: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> (
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
    ) {
        let (taken, direction) = take([grad, mean, square, power], &constants, true);
        (direction, taken.longest, taken.mean, taken.square, taken.power)
    }
}
