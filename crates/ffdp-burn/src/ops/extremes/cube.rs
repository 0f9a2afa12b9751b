//! The extremes on the GPU: of stripes of a component, then of these.

use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::ExtremesOps;
use ffdp_kit::cubes::grid_of_cubes;
use ffdp_kit::launch::{UNITS, address, assert_f32, buffer, empty, max_over_cube, stripes};

/// Cubes that share a component: enough to fill the largest GPU three components at a time, few enough for
/// one cube to go through their results.
const MOST_CUBES: usize = 1024;

/// `partials[component, cube, 2]`: the largest `-u` and `u` of a stripe. Components of `len` vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
fn stripes_kernel<N: Size>(
    field: &[Vector<f32, N>],
    partials: &mut [f32],
    len: usize,
    #[comptime] lanes: usize,
) {
    let first = CUBE_POS_Y as usize * len;
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    let mut low = Vector::<f32, N>::new(f32::MIN);
    let mut high = Vector::<f32, N>::new(f32::MIN);
    let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    while i < len {
        let u = field[first + i];
        low = max(low, -u);
        high = max(high, u);
        i += step;
    }
    let mut bottom = f32::MIN.runtime();
    let mut top = f32::MIN.runtime();
    #[unroll]
    for lane in 0..lanes {
        bottom = max(bottom, low.extract(lane));
        top = max(top, high.extract(lane));
    }
    let bottom = max_over_cube(bottom);
    let top = max_over_cube(top);
    if UNIT_POS == 0 {
        let cube = (CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize;
        partials[2 * cube] = bottom;
        partials[2 * cube + 1] = top;
    }
}

/// `ends[component] = (min u, max u)`, one cube a component.
#[cube(launch_unchecked)]
fn ends_kernel(partials: &[f32], ends: &mut [f32], columns: u32) {
    let first = CUBE_POS_X * columns;
    let mut bottom = f32::MIN.runtime();
    let mut top = f32::MIN.runtime();
    let mut k = UNIT_POS;
    while k < columns {
        bottom = max(bottom, partials[(2 * (first + k)) as usize]);
        top = max(top, partials[(2 * (first + k) + 1) as usize]);
        k += UNITS;
    }
    let bottom = max_over_cube(bottom);
    let top = max_over_cube(top);
    if UNIT_POS == 0 {
        ends[(2 * CUBE_POS_X) as usize] = -bottom;
        ends[(2 * CUBE_POS_X + 1) as usize] = top;
    }
}

/// `partials[cube]`: the largest sum of the squares of `channels` components, of a stripe of all `batch` entries.
#[cube(launch_unchecked, address_type = "dynamic")]
fn lengths_kernel<N: Size>(
    field: &[Vector<f32, N>],
    partials: &mut [f32],
    batch: usize,
    len: usize,
    #[comptime] channels: usize,
    #[comptime] lanes: usize,
) {
    let step = CUBE_COUNT_X as usize * UNITS as usize;
    let mut most = Vector::<f32, N>::new(0.0f32);
    for entry in 0..batch {
        let mut i = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
        while i < len {
            let mut squared = Vector::<f32, N>::new(0.0f32);
            #[unroll]
            for c in 0..channels {
                let u = field[(entry * channels + c) * len + i];
                squared += u * u;
            }
            most = max(most, squared);
            i += step;
        }
    }
    let mut own = 0.0f32;
    #[unroll]
    for lane in 0..lanes {
        own = max(own, most.extract(lane));
    }
    let longest = max_over_cube(own);
    if UNIT_POS == 0 {
        partials[CUBE_POS_X as usize] = longest;
    }
}

/// The largest of `partials`, none of which is negative; one cube.
#[cube(launch_unchecked)]
fn largest_kernel(partials: &[f32], largest: &mut [f32], columns: u32) {
    let mut own = 0.0f32;
    let mut k = UNIT_POS;
    while k < columns {
        own = max(own, partials[k as usize]);
        k += UNITS;
    }
    let most = max_over_cube(own);
    if UNIT_POS == 0 {
        largest[0] = most;
    }
}

impl ExtremesOps for CubeBackend {
    fn extremes_3d(field: CubeTensor) -> CubeTensor {
        assert_f32("extremes", &[&field]);
        let field = into_contiguous(field);
        let shape = field.meta.shape();
        let (batch, channels) = (shape[0], shape[1]);
        let (rows, len) = (batch * channels, shape.num_elements() / (batch * channels));
        let lanes = if len.is_multiple_of(4) { 4 } else { 1 };
        let columns = (len / lanes).div_ceil(UNITS as usize).clamp(1, MOST_CUBES);
        let partials = empty(&field, [rows * columns * 2]);
        let ends = empty(&field, [batch, channels, 2]);
        let dim = CubeDim::new_1d(UNITS);
        unsafe {
            stripes_kernel::launch_unchecked(
                &field.client,
                grid_of_cubes("extremes", [columns, rows, 1]),
                dim,
                address(&[&field]),
                lanes,
                buffer(&field),
                buffer(&partials),
                len / lanes,
                lanes,
            );
            ends_kernel::launch_unchecked(
                &field.client,
                CubeCount::Static(rows as u32, 1, 1),
                dim,
                buffer(&partials),
                buffer(&ends),
                columns as u32,
            );
        }
        ends
    }

    fn longest_3d(field: CubeTensor) -> CubeTensor {
        assert_f32("longest", &[&field]);
        let field = into_contiguous(field);
        let shape = field.meta.shape();
        let (batch, channels) = (shape[0], shape[1]);
        let len = shape.num_elements() / (batch * channels);
        let lanes = if len.is_multiple_of(4) { 4 } else { 1 };
        let vectors = len / lanes;
        let columns = stripes(vectors, MOST_CUBES);
        let partials = empty(&field, [columns]);
        let dim = CubeDim::new_1d(UNITS);
        unsafe {
            lengths_kernel::launch_unchecked(
                &field.client,
                CubeCount::Static(columns as u32, 1, 1),
                dim,
                address(&[&field]),
                lanes,
                buffer(&field),
                buffer(&partials),
                batch,
                vectors,
                channels,
                lanes,
            );
        }
        if columns == 1 {
            return partials;
        }
        let longest = empty(&field, [1]);
        unsafe {
            largest_kernel::launch_unchecked(
                &field.client,
                CubeCount::Static(1, 1, 1),
                dim,
                buffer(&partials),
                buffer(&longest),
                columns as u32,
            );
        }
        longest
    }
}
