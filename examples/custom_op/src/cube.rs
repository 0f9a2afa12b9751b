//! The loss on the GPU: partial sums per cube, then one deterministic sum.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use ffdp_kit::launch::{UNITS, address, assert_f32, buffer, empty, sum_over_cube, sum_rows};

use super::CharbonnierOps;

/// Cubes, at most: each unit strides over the whole range.
const CUBES: usize = 4096;

/// `r`.
#[cube]
fn root(difference: f32, epsilon: f32) -> f32 {
    (difference * difference + epsilon * epsilon).sqrt()
}

#[cube]
fn rho(difference: f32, epsilon: f32) -> f32 {
    difference * difference / (root(difference, epsilon) + epsilon)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn sum_kernel(
    a: &[f32],
    b: &[f32],
    weights: &[f32],
    partials: &mut [f32],
    len: usize,
    epsilon: f32,
) {
    let mut sum = 0.0f32;
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    while i < len {
        sum += weights[i] * rho(a[i] - b[i], epsilon);
        i += step;
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        partials[CUBE_POS_X as usize] = total;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn to_image_kernel(
    a: &[f32],
    b: &[f32],
    weights: &[f32],
    grad: &[f32],
    output: &mut [f32],
    len: usize,
    epsilon: f32,
) {
    let scale = grad[0];
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    while i < len {
        let difference = a[i] - b[i];
        output[i] = scale * weights[i] * difference / root(difference, epsilon);
        i += step;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn to_weights_kernel(
    a: &[f32],
    b: &[f32],
    grad: &[f32],
    output: &mut [f32],
    len: usize,
    epsilon: f32,
) {
    let scale = grad[0];
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    while i < len {
        output[i] = scale * rho(a[i] - b[i], epsilon);
        i += step;
    }
}

/// Tensors as the kernels read them.
fn readable<const N: usize>(tensors: [CubeTensor; N]) -> [CubeTensor; N] {
    assert_f32("charbonnier", &tensors.each_ref());
    tensors.map(into_contiguous)
}

/// Elements of a tensor, and cubes that share them.
fn shares(tensor: &CubeTensor) -> (usize, u32) {
    let len = tensor.meta.shape().num_elements();
    (len, len.div_ceil(UNITS as usize).clamp(1, CUBES) as u32)
}

impl CharbonnierOps for CubeBackend {
    fn charbonnier(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let [a, b, weights] = readable([a, b, weights]);
        let (len, cubes) = shares(&a);
        let partials = empty(&a, [cubes as usize]);
        unsafe {
            sum_kernel::launch_unchecked(
                &a.client,
                CubeCount::Static(cubes, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[&a]),
                buffer(&a),
                buffer(&b),
                buffer(&weights),
                buffer(&partials),
                len,
                epsilon as f32,
            );
        }
        sum_rows(&partials, 1, cubes as usize, 1.0)
    }

    fn charbonnier_to_image(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let [a, b, weights, grad] = readable([a, b, weights, grad]);
        let (len, cubes) = shares(&a);
        let output = empty(&a, a.meta.shape().clone());
        unsafe {
            to_image_kernel::launch_unchecked(
                &a.client,
                CubeCount::Static(cubes, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[&a]),
                buffer(&a),
                buffer(&b),
                buffer(&weights),
                buffer(&grad),
                buffer(&output),
                len,
                epsilon as f32,
            );
        }
        output
    }

    fn charbonnier_to_weights(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let [a, b, grad] = readable([a, b, grad]);
        let (len, cubes) = shares(&a);
        let output = empty(&a, a.meta.shape().clone());
        unsafe {
            to_weights_kernel::launch_unchecked(
                &a.client,
                CubeCount::Static(cubes, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[&a]),
                buffer(&a),
                buffer(&b),
                buffer(&grad),
                buffer(&output),
                len,
                epsilon as f32,
            );
        }
        output
    }
}
