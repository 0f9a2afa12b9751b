//! Differences on the GPU: a unit marches along z and keeps the nine planes around it in registers; neighbours along x
//! and y come from the cache, at distances that are found once a column.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{COEFFICIENTS, DifferencesOps};
use crate::ops::fft::dims_of;
use ffdp_kit::cubes::{blocks, launched};
use ffdp_kit::launch::{Extent, assert_f32, buffer, empty, extent, wide_address};

/// Columns of a cube along x and y: neighbours along y are mostly the cube's own.
const UNITS_X: u32 = 32;
const UNITS_Y: u32 = 8;

/// Planes that a unit marches over; it reads eight more.
const CHUNK: usize = 32;

/// Planes of the difference to one side.
const REACH: u32 = 4;

/// Where the neighbours at `at + 1..=4`, then at `at - 1..=4`, of a circle of `n` lie, `stride` elements apart.
#[cube]
fn neighbours(at: u32, n: u32, stride: usize) -> Array<usize> {
    let mut found = Array::<usize>::new(8usize);
    #[unroll]
    for s in 0..4u32 {
        let above = (at + comptime!(s + 1)) % n;
        let below = (at + n - comptime!(s + 1) % n) % n;
        found[s as usize] = above as usize * stride;
        found[comptime!((s + 4) as usize)] = below as usize * stride;
    }
    found
}

/// `h` times the derivative at a voxel of a line that begins at `line`.
#[cube]
fn along_line(data: &[f32], line: usize, around: &Array<usize>) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for s in 0..4u32 {
        let c = comptime!(COEFFICIENTS[s as usize] as f32);
        let above = data[line + around[s as usize]];
        sum += c * (above - data[line + around[comptime!((s + 4) as usize)]]);
    }
    sum
}

/// `h` times the derivative at the middle of nine planes.
#[cube]
fn along_column(planes: &Array<f32>) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for s in 0..4u32 {
        let c = comptime!(COEFFICIENTS[s as usize] as f32);
        sum += c * (planes[comptime!((5 + s) as usize)] - planes[comptime!((3 - s) as usize)]);
    }
    sum
}

/// The plane after `z` of a circle of `d`.
#[cube]
fn after(z: u32, d: u32) -> u32 {
    select(z + 1 == d, 0u32, z + 1)
}

/// Moves all planes one place down and `new` to the top.
#[cube]
fn shift(planes: &mut Array<f32>, new: f32) {
    #[unroll]
    for i in 0..8usize {
        planes[i] = planes[i + 1];
    }
    planes[8] = new;
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn gradient_kernel(
    image: &[f32],
    output: &mut [f32],
    size: Extent,
    chunk: u32,
    per_x: f32,
    per_y: f32,
    per_z: f32,
) {
    let x = CUBE_POS_X * UNITS_X + UNIT_POS_X;
    let y = CUBE_POS_Y * UNITS_Y + UNIT_POS_Y;
    if x >= size.w || y >= size.h {
        terminate!();
    }
    let chunks = size.d.div_ceil(chunk);
    let start = CUBE_POS_Z % chunks * chunk;
    let stop = min(start + chunk, size.d);
    let row = size.w as usize;
    let slice = row * size.h as usize;
    let len = slice * size.d as usize;
    let first = (CUBE_POS_Z / chunks) as usize * len;
    let column = y as usize * row + x as usize;
    let along_x = neighbours(x, size.w, 1usize);
    let along_y = neighbours(y, size.h, row);
    // A ring of nine planes, one short of those around the first.
    let mut planes = Array::<f32>::new(9usize);
    let mut next = (start + REACH * size.d - REACH) % size.d;
    #[unroll]
    for i in 0..8usize {
        planes[i + 1] = image[first + column + next as usize * slice];
        next = after(next, size.d);
    }
    for z in start..stop {
        shift(&mut planes, image[first + column + next as usize * slice]);
        next = after(next, size.d);
        let plane = first + z as usize * slice;
        let to = plane + 2 * first + column;
        output[to] = per_x * along_line(image, plane + y as usize * row, &along_x);
        output[to + len] = per_y * along_line(image, plane + x as usize, &along_y);
        output[to + 2 * len] = per_z * along_column(&planes);
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn divergence_kernel(
    field: &[f32],
    output: &mut [f32],
    size: Extent,
    chunk: u32,
    per_x: f32,
    per_y: f32,
    per_z: f32,
) {
    let x = CUBE_POS_X * UNITS_X + UNIT_POS_X;
    let y = CUBE_POS_Y * UNITS_Y + UNIT_POS_Y;
    if x >= size.w || y >= size.h {
        terminate!();
    }
    let chunks = size.d.div_ceil(chunk);
    let start = CUBE_POS_Z % chunks * chunk;
    let stop = min(start + chunk, size.d);
    let row = size.w as usize;
    let slice = row * size.h as usize;
    let len = slice * size.d as usize;
    let volume = (CUBE_POS_Z / chunks) as usize * len;
    let first = 3 * volume;
    let column = y as usize * row + x as usize;
    let along_x = neighbours(x, size.w, 1usize);
    let along_y = neighbours(y, size.h, row);
    let third = first + 2 * len + column;
    // A ring of nine planes, one short of those around the first.
    let mut planes = Array::<f32>::new(9usize);
    let mut next = (start + REACH * size.d - REACH) % size.d;
    #[unroll]
    for i in 0..8usize {
        planes[i + 1] = field[third + next as usize * slice];
        next = after(next, size.d);
    }
    for z in start..stop {
        shift(&mut planes, field[third + next as usize * slice]);
        next = after(next, size.d);
        let plane = z as usize * slice;
        output[volume + plane + column] = per_x
            * along_line(field, first + plane + y as usize * row, &along_x)
            + per_y * along_line(field, first + len + plane + x as usize, &along_y)
            + per_z * along_column(&planes);
    }
}

/// The cubes for `n` volumes.
fn cubes(n: usize, size: [usize; 3]) -> CubeCount {
    launched(blocks("differences", n, size, [UNITS_X, UNITS_Y, CHUNK as u32]))
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
                cubes(n, [d, h, w]),
                CubeDim::new_2d(UNITS_X, UNITS_Y),
                wide_address(&[&image, &output]),
                buffer(&image),
                buffer(&output),
                extent([d, h, w]),
                CHUNK as u32,
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
                cubes(n, [d, h, w]),
                CubeDim::new_2d(UNITS_X, UNITS_Y),
                wide_address(&[&field, &output]),
                buffer(&field),
                buffer(&output),
                extent([d, h, w]),
                CHUNK as u32,
                x,
                y,
                z,
            );
        }
        output
    }
}
