//! Sums of fields on the GPU: one launch.

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{CombinationOps, Factors};
use ffdp_kit::cubes::lines_of_cubes;
use ffdp_kit::launch::{UNITS, address, assert_f32, buffer, empty};

/// The factors; those beyond the last term are 0 and not looked at.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Scales {
    a0: f32,
    a1: f32,
    a2: f32,
    a3: f32,
    a4: f32,
    a5: f32,
}

/// `output = sum_k a_k x_k` of the first `count` terms.
#[cube(launch_unchecked, address_type = "dynamic")]
fn combination_kernel<N: Size>(
    x0: &[Vector<f32, N>],
    x1: &[Vector<f32, N>],
    x2: &[Vector<f32, N>],
    x3: &[Vector<f32, N>],
    x4: &[Vector<f32, N>],
    x5: &[Vector<f32, N>],
    output: &mut [Vector<f32, N>],
    scales: Scales,
    len: usize,
    #[comptime] count: usize,
) {
    let at = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize)
        * CUBE_DIM_X as usize
        + UNIT_POS_X as usize;
    if at >= len {
        terminate!();
    }
    let mut sum = x0[at] * Vector::<f32, N>::new(scales.a0);
    if comptime!(count > 1) {
        sum += x1[at] * Vector::<f32, N>::new(scales.a1);
    }
    if comptime!(count > 2) {
        sum += x2[at] * Vector::<f32, N>::new(scales.a2);
    }
    if comptime!(count > 3) {
        sum += x3[at] * Vector::<f32, N>::new(scales.a3);
    }
    if comptime!(count > 4) {
        sum += x4[at] * Vector::<f32, N>::new(scales.a4);
    }
    if comptime!(count > 5) {
        sum += x5[at] * Vector::<f32, N>::new(scales.a5);
    }
    output[at] = sum;
}

impl CombinationOps for CubeBackend {
    fn combination_3d(
        x0: CubeTensor,
        x1: CubeTensor,
        x2: CubeTensor,
        x3: CubeTensor,
        x4: CubeTensor,
        x5: CubeTensor,
        factors: Factors,
    ) -> CubeTensor {
        assert_f32("combination", &[&x0, &x1, &x2, &x3, &x4, &x5]);
        let [x0, x1, x2, x3, x4, x5] = [x0, x1, x2, x3, x4, x5].map(into_contiguous);
        let output = empty(&x0, x0.meta.shape().clone());
        let elements = x0.meta.shape().num_elements();
        let lanes = if elements.is_multiple_of(4) { 4 } else { 1 };
        let cubes = (elements / lanes).div_ceil(UNITS as usize).max(1);
        let [a0, a1, a2, a3, a4, a5] = factors.values.map(|a| a as f32);
        unsafe {
            combination_kernel::launch_unchecked(
                &x0.client,
                lines_of_cubes(cubes),
                CubeDim::new_1d(UNITS),
                address(&[&x0]),
                lanes,
                buffer(&x0),
                buffer(&x1),
                buffer(&x2),
                buffer(&x3),
                buffer(&x4),
                buffer(&x5),
                buffer(&output),
                ScalesLaunch::new(a0, a1, a2, a3, a4, a5),
                elements / lanes,
                factors.count,
            );
        }
        output
    }
}
