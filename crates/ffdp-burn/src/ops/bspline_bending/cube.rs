//! The bending energy on the GPU: a pass for every banded matrix, over the small control grid.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{BsplineBendingOps, REACH, gram, terms};
use crate::ops::launch::{
    UNITS, address, assert_f32, buffer, empty, sum_over_cube, sum_rows, upload, zeros,
};

/// Entries of a row of a banded matrix.
const ENTRIES: usize = 2 * REACH + 1;

/// Partial sums of the energy.
const PARTIALS: usize = 256;

/// `output += M input` along an axis of `len` control points, `stride` elements apart.
#[cube(launch_unchecked, address_type = "dynamic")]
fn band_kernel(
    input: &[f32],
    table: &[f32],
    output: &mut [f32],
    elements: usize,
    len: u32,
    stride: usize,
) {
    let at = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize)
        * CUBE_DIM_X as usize
        + UNIT_POS_X as usize;
    if at >= elements {
        terminate!();
    }
    let i = ((at / stride) % len as usize) as u32;
    let mut sum = output[at];
    #[unroll]
    for k in 0..comptime!(ENTRIES as u32) {
        let column = i + k;
        if column >= comptime!(REACH as u32) && column < len + comptime!(REACH as u32) {
            let from = at + k as usize * stride - comptime!(REACH) * stride;
            sum += table[i as usize * comptime!(ENTRIES) + comptime!(k as usize)] * input[from];
        }
    }
    output[at] = sum;
}

/// `partials[cube] = sum a b` over the cube's share.
#[cube(launch_unchecked, address_type = "dynamic")]
fn product_kernel(a: &[f32], b: &[f32], partials: &mut [f32], elements: usize) {
    let mut at = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let mut sum = 0.0f32;
    // Kahan: terms of both signs that nearly cancel.
    let mut lost = 0.0f32;
    while at < elements {
        let term = a[at] * b[at] - lost;
        let next = sum + term;
        lost = (next - sum) - term;
        sum = next;
        at += (CUBE_COUNT_X * CUBE_DIM_X) as usize;
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        partials[CUBE_POS_X as usize] = total;
    }
}

/// `onto += scale G^(order) input` along an axis.
fn along(
    input: &CubeTensor,
    onto: CubeTensor,
    (len, stride): (usize, usize),
    order: usize,
    scale: f64,
) -> CubeTensor {
    let elements = input.meta.shape().num_elements();
    let table: Vec<f32> =
        gram(len, order).into_iter().flatten().map(|entry| (scale * entry) as f32).collect();
    let cubes = elements.div_ceil(UNITS as usize);
    unsafe {
        band_kernel::launch_unchecked(
            &input.client,
            CubeCount::Static(cubes.min(65535) as u32, cubes.div_ceil(65535) as u32, 1),
            CubeDim::new_1d(UNITS),
            address(&[input]),
            buffer(input),
            buffer(&upload(input, &table)),
            buffer(&onto),
            elements,
            len as u32,
            stride,
        );
    }
    onto
}

/// `scale K phi`.
fn stiffness(phi: &CubeTensor, spacing: [f64; 3], scale: f64) -> CubeTensor {
    let shape = phi.meta.shape().clone();
    let [d, h, w] = [shape[2], shape[3], shape[4]];
    let new = || zeros(phi, shape.clone());
    let lines = [0, 1, 2].map(|order| along(phi, new(), (w, 1), order, 1.0));
    terms(spacing, shape[0]).into_iter().fold(new(), |sum, term| {
        let [x, y, z] = term.orders;
        let planes = along(&lines[x], new(), (h, w), y, 1.0);
        along(&planes, sum, (d, h * w), z, scale * term.weight)
    })
}

fn energy(phi: &CubeTensor, spacing: [f64; 3]) -> CubeTensor {
    let forces = stiffness(phi, spacing, 1.0);
    let partials = empty(phi, [PARTIALS]);
    unsafe {
        product_kernel::launch_unchecked(
            &phi.client,
            CubeCount::Static(PARTIALS as u32, 1, 1),
            CubeDim::new_1d(UNITS),
            address(&[phi]),
            buffer(phi),
            buffer(&forces),
            buffer(&partials),
            phi.meta.shape().num_elements(),
        );
    }
    sum_rows(&partials, 1, PARTIALS, 1.0)
}

impl BsplineBendingOps for CubeBackend {
    fn bspline_bending_3d(coefficients: FloatTensor<Self>, spacing: [f64; 3]) -> FloatTensor<Self> {
        assert_f32("bspline_bending", &[&coefficients]);
        energy(&into_contiguous(coefficients), spacing)
    }

    fn bspline_bending_3d_backward(
        coefficients: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        spacing: [f64; 3],
    ) -> FloatTensor<Self> {
        use burn::backend::ops::FloatTensorOps;
        assert_f32("bspline_bending", &[&coefficients, &grad]);
        let forces = stiffness(&into_contiguous(coefficients), spacing, 2.0);
        let grad = into_contiguous(grad);
        let grad = CubeBackend::float_reshape(grad, [1, 1, 1, 1, 1].into());
        CubeBackend::float_mul(forces, grad)
    }
}
