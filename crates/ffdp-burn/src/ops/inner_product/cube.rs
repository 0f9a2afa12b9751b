//! The inner product on the GPU: of stripes, then the sum of these.

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::InnerProductOps;
use crate::ops::launch::{UNITS, address, assert_f32, buffer, empty, sum_over_cube, sum_rows};

/// Cubes that share the fields: enough to fill the largest GPU, few enough for one cube to add what they found.
const MOST_CUBES: usize = 2048;

/// `partials[cube]`: the sum over the cube's stripe of `len` vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
fn stripes_kernel<N: Size>(
    a: &[Vector<f32, N>],
    b: &[Vector<f32, N>],
    partials: &mut [f32],
    len: usize,
    #[comptime] lanes: usize,
) {
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    let mut sum = Vector::<f32, N>::new(0.0f32);
    // Kahan: terms of both signs that may nearly cancel.
    let mut lost = Vector::<f32, N>::new(0.0f32);
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    while i < len {
        let term = a[i] * b[i] - lost;
        let next = sum + term;
        lost = (next - sum) - term;
        sum = next;
        i += step;
    }
    let mut own = 0.0f32;
    #[unroll]
    for lane in 0..lanes {
        own += sum.extract(lane);
    }
    let total = sum_over_cube(own);
    if UNIT_POS == 0 {
        partials[CUBE_POS_X as usize] = total;
    }
}

impl InnerProductOps for CubeBackend {
    fn inner_product_3d(a: CubeTensor, b: CubeTensor) -> CubeTensor {
        assert_f32("inner_product", &[&a, &b]);
        let (a, b) = (into_contiguous(a), into_contiguous(b));
        let elements = a.meta.shape().num_elements();
        let lanes = if elements.is_multiple_of(4) { 4 } else { 1 };
        let cubes = (elements / lanes).div_ceil(UNITS as usize).clamp(1, MOST_CUBES);
        let partials = empty(&a, [cubes]);
        unsafe {
            stripes_kernel::launch_unchecked(
                &a.client,
                CubeCount::Static(cubes as u32, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[&a]),
                lanes,
                buffer(&a),
                buffer(&b),
                buffer(&partials),
                elements / lanes,
                lanes,
            );
        }
        sum_rows(&partials, 1, cubes, 1.0)
    }
}
