//! Linear layers on the GPU: CubeK's matrix product with a fixed choice of kernel, and bias and
//! activation in one pass.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Activation, LinearOps};
use crate::ops::launch::{UNITS, address, assert_f32, buffer, empty, sum_columns};

/// Tiles that a product should have: two for each of some 130 multiprocessors.
const TILES_WANTED: usize = 264;
/// Rows and columns of a tile, about.
const TILE: usize = 64;
/// Columns of a cube of the backward kernel; its other units have other rows.
const COLUMNS: u32 = 32;
/// Cubes of the backward kernel: four for each of some 130 multiprocessors.
const CUBES_WANTED: usize = 528;

/// `a b` of matrices, or of as many matrices one behind the other, with the kernel that CubeK prefers
/// without trying any: on tensor cores where there are.
fn product(a: CubeTensor, b: CubeTensor) -> CubeTensor {
    let mut shape = a.meta.shape().clone();
    let last = shape.num_dims() - 1;
    shape[last] = b.meta.shape()[last];
    let output = empty(&a, shape);
    let dtype = a.dtype;
    matmul(a, b, Some(output), MatmulStrategy::Cube, dtype)
        .unwrap_or_else(|error| panic!("linear: no kernel for this product: {error:?}"))
}

/// The same elements as a contiguous tensor of another shape.
fn reshaped(tensor: CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
    let (client, device) = (tensor.client, tensor.device);
    CubeTensor::new_contiguous(client, device, shape.into(), tensor.handle, tensor.dtype)
}

/// How many equal slices of `rows` give enough tiles.
fn slices(rows: usize, [k, n]: [usize; 2]) -> usize {
    let tiles = k.div_ceil(TILE) * n.div_ceil(TILE);
    let most = TILES_WANTED.div_ceil(tiles).min(rows.div_ceil(TILE));
    (1..=most).rev().find(|slices| rows.is_multiple_of(*slices)).unwrap_or(1)
}

/// `x^T grad`, sliced along the rows.
fn to_weight(x: CubeTensor, grad: CubeTensor) -> CubeTensor {
    let (x, grad) = (into_contiguous(x), into_contiguous(grad));
    let (rows, sides) = (x.meta.shape()[0], [x.meta.shape()[1], grad.meta.shape()[1]]);
    let slices = slices(rows, sides);
    let x = reshaped(x, [slices, rows / slices, sides[0]]);
    let grad = reshaped(grad, [slices, rows / slices, sides[1]]);
    let partials = product(CubeBackend::float_swap_dims(x, 1, 2), grad);
    match slices {
        1 => reshaped(partials, sides),
        _ => {
            let output = empty(&partials, sides);
            sum_columns(&partials, slices, output)
        }
    }
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
    #[comptime] activation: Activation,
) {
    let at = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize) * UNITS as usize
        + UNIT_POS as usize;
    if at < y.len() {
        y[at] = value(z[at] + bias[at % bias.len()], activation);
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
    #[comptime] activation: Activation,
) {
    let (line, lane) = (UNIT_POS / COLUMNS, UNIT_POS % COLUMNS);
    let column = (CUBE_POS_X * COLUMNS + lane) as usize;
    let lines = comptime!(UNITS / COLUMNS);
    let mut sum = 0.0f32;
    if column < bias.len() {
        let b = bias[column];
        let mut row = CUBE_POS_Y * lines + line;
        while row < rows {
            let at = row as usize * bias.len() + column;
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
    if line == 0 && column < bias.len() {
        #[unroll]
        for other in 1..lines {
            sum += sums[(UNIT_POS + comptime!(other * COLUMNS)) as usize];
        }
        partials[CUBE_POS_Y as usize * bias.len() + column] = sum;
    }
}

impl LinearOps for CubeBackend {
    fn multiply_rows(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("linear", &[&x, &weight]);
        product(into_contiguous(x), weight)
    }

    fn multiply_rows_to_x(grad: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("linear", &[&grad, &weight]);
        product(into_contiguous(grad), Self::float_swap_dims(weight, 0, 1))
    }

    fn multiply_rows_to_weight(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("linear", &[&x, &grad]);
        to_weight(x, grad)
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
                CubeCount::Static(cubes.min(65535) as u32, cubes.div_ceil(65535) as u32, 1),
                CubeDim::new_1d(UNITS),
                address(&[&z]),
                lanes,
                buffer(&z),
                buffer(&bias),
                buffer(&y),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_equal_and_no_more_than_needed() {
        for (rows, sides) in [(107_520, [96, 384]), (210, [768, 768]), (13, [6, 18]), (1, [1, 1])] {
            let found = slices(rows, sides);
            let tiles = sides[0].div_ceil(TILE) * sides[1].div_ceil(TILE);
            assert!(rows.is_multiple_of(found) && found * tiles < TILES_WANTED + tiles, "{found}");
        }
        assert_eq!(slices(107_520, [96, 96]), 64);
    }
}
