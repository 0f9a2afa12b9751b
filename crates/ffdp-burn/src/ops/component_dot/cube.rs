//! Inner products of components on the GPU: a unit a vector of voxels.

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::ComponentDotOps;
use ffdp_kit::cubes::lines_of_cubes;
use ffdp_kit::launch::{UNITS, address, assert_f32, buffer, empty};

/// `output[n, p] = sum_c a[n, c, p] b[n, c, p]`; components of `len` vectors, `count` vectors of the result.
#[cube(launch_unchecked, address_type = "dynamic")]
fn dot_kernel<N: Size>(
    a: &[Vector<f32, N>],
    b: &[Vector<f32, N>],
    output: &mut [Vector<f32, N>],
    len: usize,
    count: usize,
    #[comptime] channels: usize,
) {
    let at = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize)
        * CUBE_DIM_X as usize
        + UNIT_POS_X as usize;
    if at >= count {
        terminate!();
    }
    let first = at / len * channels * len + at % len;
    let mut sum = a[first] * b[first];
    #[unroll]
    for c in 1..channels {
        let from = first + c * len;
        sum += a[from] * b[from];
    }
    output[at] = sum;
}

impl ComponentDotOps for CubeBackend {
    fn component_dot_3d(a: CubeTensor, b: CubeTensor) -> CubeTensor {
        assert_f32("component_dot", &[&a, &b]);
        let (a, b) = (into_contiguous(a), into_contiguous(b));
        let shape = a.meta.shape().clone();
        let [batch, channels, d, h, w] = [0, 1, 2, 3, 4].map(|axis| shape[axis]);
        let output = empty(&a, [batch, 1, d, h, w]);
        let len = d * h * w;
        let lanes = if len.is_multiple_of(4) { 4 } else { 1 };
        let count = batch * len / lanes;
        let cubes = count.div_ceil(UNITS as usize).max(1);
        unsafe {
            dot_kernel::launch_unchecked(
                &a.client,
                lines_of_cubes(cubes),
                CubeDim::new_1d(UNITS),
                address(&[&a, &b, &output]),
                lanes,
                buffer(&a),
                buffer(&b),
                buffer(&output),
                len / lanes,
                count,
                channels,
            );
        }
        output
    }
}
