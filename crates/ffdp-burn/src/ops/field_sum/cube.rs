//! Sums on the GPU: of stripes, then the sums of these.

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::FieldSumOps;
use ffdp_kit::cubes::CUBES_ALONG_AXIS;
use ffdp_kit::launch::{
    UNITS, address, assert_f32, buffer, empty, stripes, sum_over_cube, sum_rows,
};

/// Cubes that share a part: enough to fill the largest GPU, few enough for one cube to add what they found.
const MOST_CUBES: usize = 2048;

/// `partials[part, cube]`: the sum over the cube's stripe of the `len` vectors of a part.
#[cube(launch_unchecked, address_type = "dynamic")]
fn stripes_kernel<N: Size>(
    x: &[Vector<f32, N>],
    partials: &mut [f32],
    parts: u32,
    len: usize,
    #[comptime] lanes: usize,
) {
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    let mut part = CUBE_POS_Y;
    while part < parts {
        let first = part as usize * len;
        let mut sum = Vector::<f32, N>::new(0.0f32);
        // Kahan: terms of both signs that may nearly cancel.
        let mut lost = Vector::<f32, N>::new(0.0f32);
        let mut at = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
        while at < len {
            let term = x[first + at] - lost;
            let next = sum + term;
            lost = (next - sum) - term;
            sum = next;
            at += step;
        }
        let mut own = 0.0f32;
        #[unroll]
        for lane in 0..lanes {
            own += sum.extract(lane);
        }
        let total = sum_over_cube(own);
        if UNIT_POS == 0 {
            partials[(part * CUBE_COUNT_X + CUBE_POS_X) as usize] = total;
        }
        part += CUBE_COUNT_Y;
    }
}

impl FieldSumOps for CubeBackend {
    fn part_sums(x: CubeTensor, parts: usize) -> CubeTensor {
        assert_f32("field_sum", &[&x]);
        let x = into_contiguous(x);
        let len = x.meta.shape().num_elements() / parts;
        let lanes = if len.is_multiple_of(4) { 4 } else { 1 };
        let vectors = len / lanes;
        let columns = stripes(vectors, MOST_CUBES);
        let partials = empty(&x, [parts * columns]);
        unsafe {
            stripes_kernel::launch_unchecked(
                &x.client,
                CubeCount::Static(columns as u32, parts.min(CUBES_ALONG_AXIS) as u32, 1),
                CubeDim::new_1d(UNITS),
                address(&[&x]),
                lanes,
                buffer(&x),
                buffer(&partials),
                parts as u32,
                vectors,
                lanes,
            );
        }
        if columns == 1 { partials } else { sum_rows(&partials, parts, columns, 1.0) }
    }
}
