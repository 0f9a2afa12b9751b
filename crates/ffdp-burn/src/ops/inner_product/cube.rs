//! Inner products on the GPU: of stripes, then the sums of these.

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::InnerProductOps;
use ffdp_kit::launch::{
    SUMS, UNITS, address, assert_f32, buffer, empty, stripes, sum_rows, sums_over_cube,
};

/// Cubes that share the fields: enough to fill the largest GPU, few enough for one cube to add what they found.
const MOST_CUBES: usize = 2048;

/// `partials[i * rights + j, cube]`: the sum over the cube's stripe of the products of `a_i` and `b_j`, `len` vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
fn stripes_kernel<N: Size>(
    a0: &[Vector<f32, N>],
    a1: &[Vector<f32, N>],
    a2: &[Vector<f32, N>],
    b0: &[Vector<f32, N>],
    b1: &[Vector<f32, N>],
    b2: &[Vector<f32, N>],
    b3: &[Vector<f32, N>],
    partials: &mut [f32],
    len: usize,
    #[comptime] lanes: usize,
    #[comptime] lefts: usize,
    #[comptime] rights: usize,
) {
    let count = comptime!(lefts * rights);
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    let mut sums = Array::<Vector<f32, N>>::new(count);
    // Kahan: terms of both signs that may nearly cancel.
    let mut lost = Array::<Vector<f32, N>>::new(count);
    let mut a = Array::<Vector<f32, N>>::new(lefts);
    let mut b = Array::<Vector<f32, N>>::new(rights);
    #[unroll]
    for k in 0..count {
        sums[k] = Vector::<f32, N>::new(0.0f32);
        lost[k] = Vector::<f32, N>::new(0.0f32);
    }
    let mut at = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    while at < len {
        a[0usize] = a0[at];
        if comptime!(lefts > 1) {
            a[1usize] = a1[at];
        }
        if comptime!(lefts > 2) {
            a[2usize] = a2[at];
        }
        b[0usize] = b0[at];
        if comptime!(rights > 1) {
            b[1usize] = b1[at];
        }
        if comptime!(rights > 2) {
            b[2usize] = b2[at];
        }
        if comptime!(rights > 3) {
            b[3usize] = b3[at];
        }
        #[unroll]
        for i in 0..lefts {
            #[unroll]
            for j in 0..rights {
                let k = comptime!(i * rights + j);
                let term = a[i] * b[j] - lost[k];
                let sum = sums[k];
                let next = sum + term;
                lost[k] = (next - sum) - term;
                sums[k] = next;
            }
        }
        at += step;
    }
    let mut own = Array::<f32>::new(count);
    #[unroll]
    for k in 0..count {
        let sum = sums[k];
        let mut total = 0.0f32;
        #[unroll]
        for lane in 0..lanes {
            total += sum.extract(lane);
        }
        own[k] = total;
    }
    let mut room = Shared::<[f32]>::new_slice(comptime!(9 * UNITS as usize));
    #[unroll]
    for group in 0..comptime!((count as u32).div_ceil(SUMS)) {
        let first = comptime!(group * SUMS);
        let total = sums_over_cube(&mut room, &own, first, comptime!(count as u32));
        let k = first + UNIT_POS;
        if UNIT_POS < SUMS && k < comptime!(count as u32) {
            partials[k as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize] = total;
        }
    }
}

impl InnerProductOps for CubeBackend {
    fn inner_products_3d(
        a0: CubeTensor,
        a1: CubeTensor,
        a2: CubeTensor,
        b0: CubeTensor,
        b1: CubeTensor,
        b2: CubeTensor,
        b3: CubeTensor,
        [lefts, rights]: [usize; 2],
    ) -> CubeTensor {
        assert_f32("inner_product", &[&a0, &a1, &a2, &b0, &b1, &b2, &b3]);
        let [a0, a1, a2, b0, b1, b2, b3] = [a0, a1, a2, b0, b1, b2, b3].map(into_contiguous);
        let elements = a0.meta.shape().num_elements();
        let lanes = if elements.is_multiple_of(4) { 4 } else { 1 };
        let vectors = elements / lanes;
        let cubes = stripes(vectors, MOST_CUBES);
        let partials = empty(&a0, [lefts * rights * cubes]);
        unsafe {
            stripes_kernel::launch_unchecked(
                &a0.client,
                CubeCount::Static(cubes as u32, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[&a0]),
                lanes,
                buffer(&a0),
                buffer(&a1),
                buffer(&a2),
                buffer(&b0),
                buffer(&b1),
                buffer(&b2),
                buffer(&b3),
                buffer(&partials),
                vectors,
                lanes,
                lefts,
                rights,
            );
        }
        if cubes == 1 { partials } else { sum_rows(&partials, lefts * rights, cubes, 1.0) }
    }
}
