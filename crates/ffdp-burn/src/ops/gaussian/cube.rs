//! Smoothing on the GPU.
//!
//! Small kernels take one march along z (`march.rs`); wide ones (a pyramid's) one pass per axis, here.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::march::{self, Volumes};
use super::{Direction, GaussianOps, GaussianOptions};
use ffdp_kit::launch::{CUBE, Extent, address, assert_f32, buffer, cubes, empty, extent, upload};

/// `1 / (K 1)` at a position of an axis, from the [`table`].
#[cube]
fn inverse_norm(table: &[f32], radius: u32, position: u32, len: u32) -> f32 {
    table[(radius + 1 + position.min(len - 1 - position)) as usize]
}

/// One pass along the axis whose voxels are `stride` apart.
#[cube(launch_unchecked, address_type = "dynamic")]
fn axis_kernel(
    input: &[f32],
    table: &[f32],
    output: &mut [f32],
    size: Extent,
    radius: u32,
    #[comptime] axis: u32,
    #[comptime] direction: Direction,
) {
    let tiles = size.d.div_ceil(CUBE_DIM_Z);
    let volume = CUBE_POS_Z / tiles;
    let (x, y) = (ABSOLUTE_POS_X, ABSOLUTE_POS_Y);
    let z = (CUBE_POS_Z % tiles) * CUBE_DIM_Z + UNIT_POS_Z;
    if x >= size.w || y >= size.h || z >= size.d {
        terminate!();
    }
    let area = size.h as usize * size.w as usize;
    let voxel = (volume as usize * size.d as usize + z as usize) * area
        + y as usize * size.w as usize
        + x as usize;
    let mut position = x;
    let mut len = size.w;
    let mut stride = 1usize;
    if comptime!(axis == 1) {
        position = y;
        len = size.h;
        stride = size.w as usize;
    }
    if comptime!(axis == 2) {
        position = z;
        len = size.d;
        stride = area;
    }
    let first = position - min(radius, position);
    let last = min(position + radius, len - 1);
    let line = voxel - position as usize * stride;
    let mut sum = 0.0f32;
    for j in first..last + 1 {
        let distance = select(j > position, j - position, position - j);
        let mut weight = table[distance as usize];
        if comptime!(direction == Direction::Adjoint) {
            weight *= inverse_norm(table, radius, j, len);
        }
        sum += weight * input[line + j as usize * stride];
    }
    if comptime!(direction == Direction::Forward) {
        sum *= inverse_norm(table, radius, position, len);
    }
    output[voxel] = sum;
}

/// The constants of an axis in one small buffer: the half kernel, then inverse norms of the first
/// half of the axis (the second half mirrors it).
fn table(half: &[f64], len: usize) -> Vec<f32> {
    let reach = |i: usize| half.iter().take(i + 1).skip(1).sum::<f64>();
    let norms = (0..len.div_ceil(2)).map(|i| 1.0 / (half[0] + reach(i) + reach(len - 1 - i)));
    half.iter().copied().chain(norms).map(|value| value as f32).collect()
}

fn along_axis(
    x: &CubeTensor,
    half: &[f64],
    volumes: Volumes,
    axis: usize,
    direction: Direction,
) -> CubeTensor {
    let Volumes { count, size } = volumes;
    let table = upload(x, &table(half, size[2 - axis]));
    let output = empty(x, x.meta.shape().clone());
    unsafe {
        axis_kernel::launch_unchecked(
            &x.client,
            cubes("gaussian", count, size),
            CUBE.into(),
            address(&[x]),
            buffer(x),
            buffer(&table),
            buffer(&output),
            extent(size),
            half.len() as u32 - 1,
            axis as u32,
            direction,
        );
    }
    output
}

impl GaussianOps for CubeBackend {
    fn gaussian_3d(
        x: FloatTensor<Self>,
        options: GaussianOptions,
        direction: Direction,
    ) -> FloatTensor<Self> {
        assert_f32("gaussian", &[&x]);
        let x = into_contiguous(x);
        let shape = x.meta.shape();
        let volumes = Volumes { count: shape[0] * shape[1], size: [shape[2], shape[3], shape[4]] };
        let kernels = [0, 1, 2].map(|axis| options.half_kernel(axis));
        if kernels.iter().all(|half| half.len() <= march::LARGEST_RADIUS + 1) {
            return march::smooth(&x, &kernels, volumes, direction);
        }
        (0..3)
            .filter(|axis| kernels[*axis].len() > 1)
            .fold(x, |x, axis| along_axis(&x, &kernels[axis], volumes, axis, direction))
    }
}
