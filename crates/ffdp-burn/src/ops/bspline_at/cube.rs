//! The field at any points on the GPU: a unit a point.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use cubecl::prelude::*;

use super::{Beyond, BsplineAtOps};
use ffdp_kit::cubes::lines_of_cubes;
use ffdp_kit::launch::{Extent, UNITS, address, assert_f32, buffer, empty, extent};

/// The four control points around an index, `stride` elements apart, and their weights, 0 for those
/// that do not exist.
#[derive(CubeType)]
struct Around {
    at: Array<usize>,
    weight: Array<f32>,
}

/// Spacings by which an index may miss the border of the grid and yet lie on it: rounding of some
/// hundreds in f32.
const ON_BORDER: f32 = 1e-4;

#[cube]
fn around(t: f32, controls: u32, stride: usize, #[comptime] beyond: Beyond) -> Around {
    let mut at = Array::<usize>::new(4usize);
    let mut weight = Array::<f32>::new(4usize);
    let last = f32::cast_from(controls);
    // Three control points beyond the grid everything is zero; this keeps the cast in range.
    let mut inside = clamp(t, -3.0f32, last + 2.0f32);
    let mut factor = 1.0f32;
    if comptime!(beyond == Beyond::Cut) {
        let (low, high) = (1.0f32, last - 2.0f32);
        let there = t >= low - ON_BORDER && t <= high + ON_BORDER;
        factor = select(there, 1.0f32, 0.0f32);
        inside = clamp(t, low, high);
    }
    let alone = controls == 1;
    let cell = inside.floor();
    let u = inside - cell;
    let v = 1.0f32 - u;
    weight[0] = v * v * v * comptime!(1.0f32 / 6.0);
    weight[1] = comptime!(2.0f32 / 3.0) - u * u * (1.0f32 - 0.5f32 * u);
    weight[2] = comptime!(2.0f32 / 3.0) - v * v * (1.0f32 - 0.5f32 * v);
    weight[3] = u * u * u * comptime!(1.0f32 / 6.0);
    #[unroll]
    for tap in 0..4u32 {
        let control = i32::cast_from(cell) + comptime!(tap as i32 - 1);
        // As unsigned numbers, indices below zero lie beyond every size.
        let exists = u32::reinterpret(control) < controls;
        let share = select(exists, factor * weight[tap as usize], 0.0f32);
        let constant = comptime!(if tap == 0 { 1.0f32 } else { 0.0f32 });
        weight[tap as usize] = select(alone, constant, share);
        at[tap as usize] = u32::reinterpret(select(exists, control, 0i32)) as usize * stride;
    }
    Around { at, weight }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn at_kernel(
    coefficients: &[f32],
    indices: &[f32],
    output: &mut [f32],
    controls: Extent,
    points: usize,
    total: usize,
    #[comptime] beyond: Beyond,
) {
    let at = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize)
        * CUBE_DIM_X as usize
        + UNIT_POS_X as usize;
    if at >= total {
        terminate!();
    }
    let (n, point) = (at / points, at % points);
    let first = n * 3 * points + point;
    let area = controls.h as usize * controls.w as usize;
    let volume = controls.d as usize * area;
    let x = around(indices[first], controls.w, 1usize, beyond);
    let y = around(indices[first + points], controls.h, controls.w as usize, beyond);
    let z = around(indices[first + 2 * points], controls.d, area, beyond);
    #[unroll]
    for c in 0..3usize {
        let field = (3 * n + c) * volume;
        let mut sum = 0.0f32;
        #[unroll]
        for k in 0..4usize {
            #[unroll]
            for j in 0..4usize {
                let row = field + z.at[k] + y.at[j];
                let mut along = 0.0f32;
                #[unroll]
                for i in 0..4usize {
                    along += x.weight[i] * coefficients[row + x.at[i]];
                }
                sum += z.weight[k] * y.weight[j] * along;
            }
        }
        output[first + c * points] = sum;
    }
}

impl BsplineAtOps for CubeBackend {
    fn bspline_at_3d(
        coefficients: FloatTensor<Self>,
        indices: FloatTensor<Self>,
        beyond: Beyond,
    ) -> FloatTensor<Self> {
        assert_f32("bspline_at", &[&coefficients, &indices]);
        let (phi, indices) = (into_contiguous(coefficients), into_contiguous(indices));
        let shape = indices.meta.shape().clone();
        let output = empty(&indices, shape.clone());
        let points = shape[2] * shape[3] * shape[4];
        let controls = phi.meta.shape();
        let cubes = (shape[0] * points).div_ceil(UNITS as usize);
        unsafe {
            at_kernel::launch_unchecked(
                &phi.client,
                lines_of_cubes(cubes),
                CubeDim::new_1d(UNITS),
                address(&[&phi, &indices]),
                buffer(&phi),
                buffer(&indices),
                buffer(&output),
                extent([controls[2], controls[3], controls[4]]),
                points,
                shape[0] * points,
                beyond,
            );
        }
        output
    }
}
