//! Linear layers on the GPU: products in f32 or on tensor cores (`product.rs`), or Burn's where the device
//! has none; bias and activation in one pass.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Activation, LinearOps};
use crate::ops::precision::Precision;
use ffdp_kit::cubes::lines_of_cubes;
use ffdp_kit::launch::{UNITS, address, assert_f32, buffer, empty, sum_columns};

mod product;

use product::{Along, Factor, product};

/// Columns of a cube of the backward kernel; its other units have other rows.
const COLUMNS: u32 = 32;
/// Cubes of the backward kernel: four for each of some 130 multiprocessors.
const CUBES_WANTED: usize = 528;

fn transposed(matrix: CubeTensor) -> CubeTensor {
    CubeBackend::float_swap_dims(matrix, 0, 1)
}

/// `f(a)`.
#[cube]
fn value<N: Size>(a: Vector<f32, N>, #[comptime] activation: Activation) -> Vector<f32, N> {
    if comptime!(activation == Activation::Gelu) {
        let root = Vector::<f32, N>::new(comptime!(std::f32::consts::FRAC_1_SQRT_2));
        a * Vector::<f32, N>::new(0.5f32) * (Vector::<f32, N>::new(1.0f32) + (a * root).erf())
    } else {
        a
    }
}

/// The slope of GELU.
#[cube]
fn gelu_slope(a: f32) -> f32 {
    let root = comptime!(std::f32::consts::FRAC_1_SQRT_2);
    // 1 / sqrt(2 pi).
    let peak = comptime!(0.5 * std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2);
    0.5f32 + 0.5f32 * Erf::erf(a * root) + a * peak * (a * a * -0.5f32).exp()
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn activate_kernel<N: Size>(
    z: &[Vector<f32, N>],
    bias: &[Vector<f32, N>],
    y: &mut [Vector<f32, N>],
    rows: u32,
    columns: u32,
    #[comptime] activation: Activation,
) {
    let at = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize) * UNITS as usize
        + UNIT_POS as usize;
    // Not the lengths of the slices: those are of the memory, which may be longer than a tensor.
    if at < rows as usize * columns as usize {
        y[at] = value(z[at] + bias[at % columns as usize], activation);
    }
}

/// The gradient of z, and its sums over the rows of a cube, `[cubes y, N]`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn backward_kernel(
    z: &[f32],
    bias: &[f32],
    grad: &[f32],
    to_z: &mut [f32],
    partials: &mut [f32],
    rows: u32,
    columns: u32,
    #[comptime] activation: Activation,
) {
    let (line, lane) = (UNIT_POS / COLUMNS, UNIT_POS % COLUMNS);
    let column = CUBE_POS_X * COLUMNS + lane;
    let lines = comptime!(UNITS / COLUMNS);
    let mut sum = 0.0f32;
    if column < columns {
        let b = bias[column as usize];
        let mut row = CUBE_POS_Y * lines + line;
        while row < rows {
            let at = row as usize * columns as usize + column as usize;
            if comptime!(activation == Activation::Identity) {
                sum += grad[at];
            } else {
                let g = grad[at] * gelu_slope(z[at] + b);
                to_z[at] = g;
                sum += g;
            }
            row += CUBE_COUNT_Y * lines;
        }
    }
    let mut sums = Shared::<[f32]>::new_slice(256usize);
    sums[UNIT_POS as usize] = sum;
    sync_cube();
    if line == 0 && column < columns {
        #[unroll]
        for other in 1..lines {
            sum += sums[(UNIT_POS + comptime!(other * COLUMNS)) as usize];
        }
        partials[(CUBE_POS_Y * columns + column) as usize] = sum;
    }
}

impl LinearOps for CubeBackend {
    fn multiply_rows(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        assert_f32("linear", &[&x, &weight]);
        let [x, weight] = [x, weight].map(into_contiguous);
        product(
            Factor { matrix: &x, along: Along::Depth },
            Factor { matrix: &weight, along: Along::Result },
            precision,
        )
        .unwrap_or_else(|| Self::float_matmul(x, weight))
    }

    fn multiply_rows_to_x(
        grad: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        assert_f32("linear", &[&grad, &weight]);
        let [grad, weight] = [grad, weight].map(into_contiguous);
        product(
            Factor { matrix: &grad, along: Along::Depth },
            Factor { matrix: &weight, along: Along::Depth },
            precision,
        )
        .unwrap_or_else(|| Self::float_matmul(grad, transposed(weight)))
    }

    fn multiply_rows_to_weight(
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        assert_f32("linear", &[&x, &grad]);
        let [x, grad] = [x, grad].map(into_contiguous);
        product(
            Factor { matrix: &x, along: Along::Result },
            Factor { matrix: &grad, along: Along::Result },
            precision,
        )
        .unwrap_or_else(|| Self::float_matmul(transposed(x), grad))
    }

    fn activate(
        z: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        assert_f32("linear", &[&z, &bias]);
        let [z, bias] = [z, bias].map(into_contiguous);
        let y = empty(&z, z.meta.shape().clone());
        let lanes = if bias.meta.shape()[0].is_multiple_of(4) { 4 } else { 1 };
        let cubes = z.meta.shape().num_elements().div_ceil(lanes * UNITS as usize);
        unsafe {
            activate_kernel::launch_unchecked(
                &z.client,
                lines_of_cubes(cubes),
                CubeDim::new_1d(UNITS),
                address(&[&z]),
                lanes,
                buffer(&z),
                buffer(&bias),
                buffer(&y),
                z.meta.shape()[0] as u32,
                (z.meta.shape()[1] / lanes) as u32,
                activation,
            );
        }
        y
    }

    fn activate_backward(
        z: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        activation: Activation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("linear", &[&z, &bias, &grad]);
        let [z, bias, grad] = [z, bias, grad].map(into_contiguous);
        let [rows, columns] = [z.meta.shape()[0], z.meta.shape()[1]];
        let across = columns.div_ceil(COLUMNS as usize);
        let along =
            CUBES_WANTED.div_ceil(across).min(rows.div_ceil((UNITS / COLUMNS) as usize)).max(1);
        let partials = empty(&z, [along, columns]);
        // The identity writes no gradient: a dummy of one element is bound, and grad returned.
        let to_z = match activation {
            Activation::Identity => empty(&z, [1]),
            Activation::Gelu => empty(&z, z.meta.shape().clone()),
        };
        unsafe {
            backward_kernel::launch_unchecked(
                &z.client,
                CubeCount::Static(across as u32, along as u32, 1),
                CubeDim::new_1d(UNITS),
                address(&[&z]),
                buffer(&z),
                buffer(&bias),
                buffer(&grad),
                buffer(&to_z),
                buffer(&partials),
                rows as u32,
                columns as u32,
                activation,
            );
        }
        let to_bias = sum_columns(&partials, along, empty(&bias, [columns]));
        match activation {
            Activation::Identity => (grad, to_bias),
            Activation::Gelu => (to_z, to_bias),
        }
    }
}
