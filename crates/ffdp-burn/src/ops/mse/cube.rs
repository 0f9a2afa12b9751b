//! The squared difference on the GPU: partial sums per cube, then one deterministic sum.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::MseOps;
use crate::ops::launch::{UNITS, address, assert_f32, buffer, empty, sum_over_cube, sum_rows};

/// Cubes of the reduction, at most: each unit strides over the whole range.
const CUBES: usize = 4096;

#[cube(launch_unchecked, address_type = "dynamic")]
fn sum_kernel(a: &[f32], b: &[f32], partials: &mut [f32], len: usize) {
    let mut sum = 0.0f32;
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    while i < len {
        let difference = a[i] - b[i];
        sum += difference * difference;
        i += step;
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        partials[CUBE_POS_X as usize] = total;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn gradient_kernel(a: &[f32], b: &[f32], grad: &[f32], output: &mut [f32], len: usize) {
    let scale = 2.0f32 * grad[0];
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    while i < len {
        output[i] = scale * (a[i] - b[i]);
        i += step;
    }
}

fn cubes(image: &CubeTensor) -> (usize, u32) {
    let len = image.meta.shape().num_elements();
    (len, len.div_ceil(UNITS as usize).clamp(1, CUBES) as u32)
}

impl MseOps for CubeBackend {
    fn squared_difference(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("mse", &[&a, &b]);
        let (a, b) = (into_contiguous(a), into_contiguous(b));
        let (len, cubes) = cubes(&a);
        let partials = empty(&a, [cubes as usize]);
        unsafe {
            sum_kernel::launch_unchecked(
                &a.client,
                CubeCount::Static(cubes, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[&a]),
                buffer(&a),
                buffer(&b),
                buffer(&partials),
                len,
            );
        }
        sum_rows(&partials, 1, cubes as usize, 1.0)
    }

    fn squared_difference_backward(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        assert_f32("mse", &[&a, &b, &grad]);
        let (a, b, grad) = (into_contiguous(a), into_contiguous(b), into_contiguous(grad));
        let (len, cubes) = cubes(&a);
        let output = empty(&a, a.meta.shape().clone());
        unsafe {
            gradient_kernel::launch_unchecked(
                &a.client,
                CubeCount::Static(cubes, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[&a]),
                buffer(&a),
                buffer(&b),
                buffer(&grad),
                buffer(&output),
                len,
            );
        }
        output
    }
}
