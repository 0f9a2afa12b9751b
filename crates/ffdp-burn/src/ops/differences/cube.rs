//! Differences on the GPU: a unit a voxel; neighbours come from the caches.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{COEFFICIENTS, DifferencesOps};
use crate::ops::fft::dims_of;
use crate::ops::launch::{CUBE, Extent, assert_f32, buffer, cubes, empty, extent, wide_address};

/// `h` times the derivative at number `at` of `n` of a line that begins at `line`.
#[cube]
fn derivative(data: &[f32], line: usize, at: u32, n: u32, stride: usize) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for s in 0..4u32 {
        let c = comptime!(COEFFICIENTS[s as usize] as f32);
        let above = (at + comptime!(s + 1)) % n;
        let below = (at + n - comptime!(s + 1) % n) % n;
        sum += c * (data[line + above as usize * stride] - data[line + below as usize * stride]);
    }
    sum
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn gradient_kernel(
    image: &[f32],
    output: &mut [f32],
    size: Extent,
    per_x: f32,
    per_y: f32,
    per_z: f32,
) {
    let x = ABSOLUTE_POS_X;
    let y = ABSOLUTE_POS_Y;
    let slices = size.d.div_ceil(CUBE_DIM_Z);
    let z = CUBE_POS_Z % slices * CUBE_DIM_Z + UNIT_POS_Z;
    let n = CUBE_POS_Z / slices;
    if x >= size.w || y >= size.h || z >= size.d {
        terminate!();
    }
    let row = size.w as usize;
    let slice = row * size.h as usize;
    let len = slice * size.d as usize;
    let first = n as usize * len;
    let (ax, ay, az) = (x as usize, y as usize * row, z as usize * slice);
    let to = 3 * first + ax + ay + az;
    output[to] = per_x * derivative(image, first + ay + az, x, size.w, 1usize);
    output[to + len] = per_y * derivative(image, first + ax + az, y, size.h, row);
    output[to + 2 * len] = per_z * derivative(image, first + ax + ay, z, size.d, slice);
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn divergence_kernel(
    field: &[f32],
    output: &mut [f32],
    size: Extent,
    per_x: f32,
    per_y: f32,
    per_z: f32,
) {
    let x = ABSOLUTE_POS_X;
    let y = ABSOLUTE_POS_Y;
    let slices = size.d.div_ceil(CUBE_DIM_Z);
    let z = CUBE_POS_Z % slices * CUBE_DIM_Z + UNIT_POS_Z;
    let n = CUBE_POS_Z / slices;
    if x >= size.w || y >= size.h || z >= size.d {
        terminate!();
    }
    let row = size.w as usize;
    let slice = row * size.h as usize;
    let len = slice * size.d as usize;
    let first = 3 * n as usize * len;
    let (ax, ay, az) = (x as usize, y as usize * row, z as usize * slice);
    output[n as usize * len + ax + ay + az] = per_x
        * derivative(field, first + ay + az, x, size.w, 1usize)
        + per_y * derivative(field, first + len + ax + az, y, size.h, row)
        + per_z * derivative(field, first + 2 * len + ax + ay, z, size.d, slice);
}

/// One over the sizes.
fn per(voxel: [f64; 3]) -> [f32; 3] {
    voxel.map(|h| (1.0 / h) as f32)
}

fn with_channels(like: &CubeTensor, channels: usize) -> CubeTensor {
    let [n, _, d, h, w] = dims_of(like.meta.shape());
    empty(like, [n, channels, d, h, w])
}

impl DifferencesOps for CubeBackend {
    fn periodic_gradient_3d(image: FloatTensor<Self>, voxel: [f64; 3]) -> FloatTensor<Self> {
        assert_f32("periodic_gradient", &[&image]);
        let image = into_contiguous(image);
        let output = with_channels(&image, 3);
        let [n, _, d, h, w] = dims_of(image.meta.shape());
        let [x, y, z] = per(voxel);
        unsafe {
            gradient_kernel::launch_unchecked(
                &image.client,
                cubes("periodic_gradient", n, [d, h, w]),
                CUBE.into(),
                wide_address(&[&image, &output]),
                buffer(&image),
                buffer(&output),
                extent([d, h, w]),
                x,
                y,
                z,
            );
        }
        output
    }

    fn periodic_divergence_3d(field: FloatTensor<Self>, voxel: [f64; 3]) -> FloatTensor<Self> {
        assert_f32("periodic_divergence", &[&field]);
        let field = into_contiguous(field);
        let output = with_channels(&field, 1);
        let [n, _, d, h, w] = dims_of(field.meta.shape());
        let [x, y, z] = per(voxel);
        unsafe {
            divergence_kernel::launch_unchecked(
                &field.client,
                cubes("periodic_divergence", n, [d, h, w]),
                CUBE.into(),
                wide_address(&[&field, &output]),
                buffer(&field),
                buffer(&output),
                extent([d, h, w]),
                x,
                y,
                z,
            );
        }
        output
    }
}
