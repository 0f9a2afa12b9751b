//! The squared difference on the GPU: partial sums per cube, then one deterministic sum.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::MseOps;
use ffdp_kit::launch::{
    UNITS, address, assert_f32, buffer, empty_f32, kind, readable, sum_over_cube, sum_rows,
};

/// Cubes of the reduction, at most: each unit strides over the whole range.
const CUBES: usize = 4096;
/// Values in a vector, where the images divide into vectors.
const WIDTH: usize = 4;

/// The images have `len` vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
fn sum_kernel<N: Size, A: Float, B: Float>(
    a: &[Vector<A, N>],
    b: &[Vector<B, N>],
    partials: &mut [f32],
    len: usize,
    #[comptime] width: usize,
    #[define(A, B)] _kinds: [ElemType; 2],
) {
    let mut sum = 0.0f32;
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    while i < len {
        let difference = Vector::<f32, N>::cast_from(a[i]) - Vector::<f32, N>::cast_from(b[i]);
        #[unroll]
        for k in 0..width {
            sum += difference.extract(k) * difference.extract(k);
        }
        i += step;
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        partials[CUBE_POS_X as usize] = total;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn gradient_kernel<N: Size, A: Float, B: Float>(
    a: &[Vector<A, N>],
    b: &[Vector<B, N>],
    grad: &[f32],
    output: &mut [Vector<f32, N>],
    len: usize,
    #[define(A, B)] _kinds: [ElemType; 2],
) {
    let scale = Vector::<f32, N>::new(2.0f32 * grad[0]);
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    while i < len {
        let difference = Vector::<f32, N>::cast_from(a[i]) - Vector::<f32, N>::cast_from(b[i]);
        output[i] = scale * difference;
        i += step;
    }
}

/// How an image is shared by cubes.
struct Shares {
    /// Values in a vector.
    width: usize,
    /// Vectors of the image.
    len: usize,
    cubes: u32,
}

fn shares(image: &CubeTensor) -> Shares {
    let elements = image.meta.shape().num_elements();
    let width = if elements.is_multiple_of(WIDTH) { WIDTH } else { 1 };
    let len = elements / width;
    Shares { width, len, cubes: len.div_ceil(UNITS as usize).clamp(1, CUBES) as u32 }
}

impl MseOps for CubeBackend {
    fn squared_difference(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        let (a, b) = (readable("mse", a), readable("mse", b));
        let Shares { width, len, cubes } = shares(&a);
        let partials = empty_f32(&a, [cubes as usize]);
        unsafe {
            sum_kernel::launch_unchecked(
                &a.client,
                CubeCount::Static(cubes, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[&a]),
                width,
                buffer(&a),
                buffer(&b),
                buffer(&partials),
                len,
                width,
                [kind(&a), kind(&b)],
            );
        }
        sum_rows(&partials, 1, cubes as usize, 1.0)
    }

    fn squared_difference_backward(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        assert_f32("mse", &[&grad]);
        let (a, b, grad) = (readable("mse", a), readable("mse", b), into_contiguous(grad));
        let Shares { width, len, cubes } = shares(&a);
        let output = empty_f32(&a, a.meta.shape().clone());
        unsafe {
            gradient_kernel::launch_unchecked(
                &a.client,
                CubeCount::Static(cubes, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[&output]),
                width,
                buffer(&a),
                buffer(&b),
                buffer(&grad),
                buffer(&output),
                len,
                [kind(&a), kind(&b)],
            );
        }
        output
    }
}
