//! Inner products on the GPU: of stripes, then the sums of these.

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::InnerProductOps;
use crate::ops::launch::{UNITS, address, assert_f32, buffer, empty, sum_in_tree, sum_rows};

/// Cubes that share the fields: enough to fill the largest GPU, few enough for one cube to add what they found.
const MOST_CUBES: usize = 2048;

/// The sum of one product, and what it has lost.
#[derive(CubeType, Clone, Copy)]
struct Sum<N: Size> {
    sum: Vector<f32, N>,
    lost: Vector<f32, N>,
}

#[cube]
fn none<N: Size>() -> Sum<N> {
    Sum::<N> { sum: Vector::<f32, N>::new(0.0f32), lost: Vector::<f32, N>::new(0.0f32) }
}

/// Kahan: terms of both signs that may nearly cancel.
#[cube]
fn add<N: Size>(to: &mut Sum<N>, a: Vector<f32, N>, b: Vector<f32, N>) {
    let term = a * b - to.lost;
    let next = to.sum + term;
    to.lost = (next - to.sum) - term;
    to.sum = next;
}

/// `partials[k, cube]` of a sum over the lanes and units of the cube.
#[cube]
fn bring<N: Size>(
    of: &Sum<N>,
    tree: &mut Shared<[f32]>,
    partials: &mut [f32],
    k: u32,
    #[comptime] lanes: usize,
) {
    let mut own = 0.0f32;
    #[unroll]
    for lane in 0..lanes {
        own += of.sum.extract(lane);
    }
    let total = sum_in_tree(tree, own);
    if UNIT_POS == 0 {
        partials[(k * CUBE_COUNT_X + CUBE_POS_X) as usize] = total;
    }
}

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
    let mut s0 = none::<N>();
    let mut s1 = none::<N>();
    let mut s2 = none::<N>();
    let mut s3 = none::<N>();
    let mut s4 = none::<N>();
    let mut s5 = none::<N>();
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    while i < len {
        let own = a[i];
        add(&mut s0, own, b0[i]);
        if comptime!(count > 1) {
            add(&mut s1, own, b1[i]);
        }
        if comptime!(count > 2) {
            add(&mut s2, own, b2[i]);
        }
        if comptime!(count > 3) {
            add(&mut s3, own, b3[i]);
        }
        if comptime!(count > 4) {
            add(&mut s4, own, b4[i]);
        }
        if comptime!(count > 5) {
            add(&mut s5, own, b5[i]);
        }
        i += step;
    }
    let mut tree = Shared::<[f32]>::new_slice(256usize);
    bring(&s0, &mut tree, partials, 0u32, lanes);
    if comptime!(count > 1) {
        bring(&s1, &mut tree, partials, 1u32, lanes);
    }
    if comptime!(count > 2) {
        bring(&s2, &mut tree, partials, 2u32, lanes);
    }
    if comptime!(count > 3) {
        bring(&s3, &mut tree, partials, 3u32, lanes);
    }
    if comptime!(count > 4) {
        bring(&s4, &mut tree, partials, 4u32, lanes);
    }
    if comptime!(count > 5) {
        bring(&s5, &mut tree, partials, 5u32, lanes);
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
