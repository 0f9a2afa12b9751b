//! Inner products on the GPU: of stripes, then the sums of these.

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::InnerProductOps;
use crate::ops::launch::{UNITS, address, assert_f32, buffer, empty, sum_in_tree, sum_rows};

/// Cubes that share the fields: enough to fill the largest GPU, few enough for one cube to add what they found.
const MOST_CUBES: usize = 2048;

/// `partials[k, cube]`: the sum over the cube's stripe of `len` vectors, for the first `count` others.
#[cube(launch_unchecked, address_type = "dynamic")]
fn stripes_kernel<N: Size>(
    a: &[Vector<f32, N>],
    b0: &[Vector<f32, N>],
    b1: &[Vector<f32, N>],
    b2: &[Vector<f32, N>],
    b3: &[Vector<f32, N>],
    b4: &[Vector<f32, N>],
    b5: &[Vector<f32, N>],
    partials: &mut [f32],
    len: usize,
    #[comptime] lanes: usize,
    #[comptime] count: usize,
) {
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    let mut sums = Array::<Vector<f32, N>>::new(count);
    // Kahan: terms of both signs that may nearly cancel.
    let mut lost = Array::<Vector<f32, N>>::new(count);
    let mut others = Array::<Vector<f32, N>>::new(count);
    #[unroll]
    for k in 0..count {
        sums[k] = Vector::<f32, N>::new(0.0f32);
        lost[k] = Vector::<f32, N>::new(0.0f32);
    }
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    while i < len {
        let own = a[i];
        others[0usize] = b0[i];
        if comptime!(count > 1) {
            others[1usize] = b1[i];
        }
        if comptime!(count > 2) {
            others[2usize] = b2[i];
        }
        if comptime!(count > 3) {
            others[3usize] = b3[i];
        }
        if comptime!(count > 4) {
            others[4usize] = b4[i];
        }
        if comptime!(count > 5) {
            others[5usize] = b5[i];
        }
        #[unroll]
        for k in 0..count {
            let term = own * others[k] - lost[k];
            let sum = sums[k];
            let next = sum + term;
            lost[k] = (next - sum) - term;
            sums[k] = next;
        }
        i += step;
    }
    let mut tree = Shared::<[f32]>::new_slice(256usize);
    #[unroll]
    for k in 0..count {
        let sum = sums[k];
        let mut own = 0.0f32;
        #[unroll]
        for lane in 0..lanes {
            own += sum.extract(lane);
        }
        let total = sum_in_tree(&mut tree, own);
        if UNIT_POS == 0 {
            partials[k * CUBE_COUNT_X as usize + CUBE_POS_X as usize] = total;
        }
    }
}

impl InnerProductOps for CubeBackend {
    fn inner_products_3d(
        a: CubeTensor,
        b0: CubeTensor,
        b1: CubeTensor,
        b2: CubeTensor,
        b3: CubeTensor,
        b4: CubeTensor,
        b5: CubeTensor,
        count: usize,
    ) -> CubeTensor {
        assert_f32("inner_product", &[&a, &b0, &b1, &b2, &b3, &b4, &b5]);
        let a = into_contiguous(a);
        let [b0, b1, b2, b3, b4, b5] = [b0, b1, b2, b3, b4, b5].map(into_contiguous);
        let elements = a.meta.shape().num_elements();
        let lanes = if elements.is_multiple_of(4) { 4 } else { 1 };
        let cubes = (elements / lanes).div_ceil(UNITS as usize).clamp(1, MOST_CUBES);
        let partials = empty(&a, [count * cubes]);
        unsafe {
            stripes_kernel::launch_unchecked(
                &a.client,
                CubeCount::Static(cubes as u32, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[&a]),
                lanes,
                buffer(&a),
                buffer(&b0),
                buffer(&b1),
                buffer(&b2),
                buffer(&b3),
                buffer(&b4),
                buffer(&b5),
                buffer(&partials),
                elements / lanes,
                lanes,
                count,
            );
        }
        sum_rows(&partials, count, cubes, 1.0)
    }
}
