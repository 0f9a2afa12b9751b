//! Upsampling on the GPU: a unit owns an input voxel and the 2^3 output voxels in its place.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use cubecl::prelude::*;

use super::{UpsampleOps, halved_shape, joined_shape};
use ffdp_kit::launch::{CUBE, Extent, address, assert_f32, buffer, cubes, empty, extent, size};

/// Where a unit is: its voxel, and its channel of all samples.
#[derive(CubeType, Clone, Copy)]
struct UnitPosition {
    x: u32,
    y: u32,
    z: u32,
    channel: u32,
}

#[cube]
fn place(size: &Extent) -> UnitPosition {
    let slabs = size.d.div_ceil(CUBE_DIM_Z);
    UnitPosition {
        x: ABSOLUTE_POS_X,
        y: ABSOLUTE_POS_Y,
        z: CUBE_POS_Z % slabs * CUBE_DIM_Z + UNIT_POS_Z,
        channel: CUBE_POS_Z / slabs,
    }
}

/// `i + k - 1` for `k` of 0, 1, 2, kept within `0..n`.
#[cube]
fn neighbour(i: u32, #[comptime] k: u32, n: u32) -> u32 {
    if comptime!(k == 0) {
        select(i > 0, i - 1, i)
    } else if comptime!(k == 1) {
        i
    } else {
        min(i + 1, n - 1)
    }
}

/// Both outputs of three neighbours: even (`odd` 0) or odd.
#[cube]
fn between(before: f32, here: f32, behind: f32, #[comptime] odd: u32) -> f32 {
    if comptime!(odd == 0) {
        0.75f32 * here + 0.25f32 * before
    } else {
        0.75f32 * here + 0.25f32 * behind
    }
}

/// The pair at `(z, y, x)` of the halved grid, in a channel of doubled extents.
#[cube]
fn pair_at(size: &Extent, channel: u32, z: u32, y: u32, x: u32) -> usize {
    ((channel as usize * (2 * size.d) as usize + z as usize) * (2 * size.h) as usize + y as usize)
        * size.w as usize
        + x as usize
}

/// `size` is that of `x`; of `channels` joined ones the first `own` are upsampled.
#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_kernel<N: Size>(
    x: &[f32],
    skip: &[Vector<f32, N>],
    output: &mut [Vector<f32, N>],
    size: Extent,
    own: u32,
    channels: u32,
) {
    let at = place(&size);
    if at.x >= size.w || at.y >= size.h || at.z >= size.d {
        terminate!();
    }
    let (n, c) = (at.channel / channels, at.channel % channels);
    if c >= own {
        let from = n * (channels - own) + (c - own);
        #[unroll]
        for i in 0..4u32 {
            let (z, y) = (2 * at.z + comptime!(i / 2), 2 * at.y + comptime!(i % 2));
            output[pair_at(&size, at.channel, z, y, at.x)] = skip[pair_at(&size, from, z, y, at.x)];
        }
        terminate!();
    }
    let volume = (n * own + c) as usize * size.d as usize * size.h as usize * size.w as usize;
    // Along x, then along y: [z][y odd][x odd].
    let mut planes = Array::<f32>::new(12usize);
    #[unroll]
    for kz in 0..3u32 {
        let z = neighbour(at.z, kz, size.d);
        let mut rows = Array::<f32>::new(6usize);
        #[unroll]
        for ky in 0..3u32 {
            let y = neighbour(at.y, ky, size.h);
            let row = volume + (z as usize * size.h as usize + y as usize) * size.w as usize;
            let before = x[row + neighbour(at.x, 0u32, size.w) as usize];
            let here = x[row + at.x as usize];
            let behind = x[row + neighbour(at.x, 2u32, size.w) as usize];
            rows[comptime!((2 * ky) as usize)] = between(before, here, behind, 0u32);
            rows[comptime!((2 * ky + 1) as usize)] = between(before, here, behind, 1u32);
        }
        #[unroll]
        for i in 0..4u32 {
            let odd_x = comptime!((i % 2) as usize);
            planes[comptime!((4 * kz + i) as usize)] = between(
                rows[odd_x],
                rows[comptime!(2 + odd_x)],
                rows[comptime!(4 + odd_x)],
                comptime!(i / 2),
            );
        }
    }
    #[unroll]
    for i in 0..4u32 {
        let (odd_z, odd_y) = comptime!((i / 2, i % 2));
        let mut pair = Vector::<f32, N>::empty();
        #[unroll]
        for odd_x in 0..2u32 {
            let of = comptime!((2 * odd_y + odd_x) as usize);
            let value =
                between(planes[of], planes[comptime!(4 + of)], planes[comptime!(8 + of)], odd_z);
            pair.insert(odd_x as usize, value);
        }
        output[pair_at(&size, at.channel, 2 * at.z + odd_z, 2 * at.y + odd_y, at.x)] = pair;
    }
}

/// `i`-th of the four values of the doubled grid that the voxel `at` takes part in, kept inside.
#[cube]
fn taking_part(at: u32, #[comptime] i: u32, n: u32) -> u32 {
    if comptime!(i == 0) {
        select(at > 0, 2 * at - 1, 0u32)
    } else if comptime!(i == 3) {
        min(2 * at + 2, 2 * n - 1)
    } else {
        2 * at + comptime!(i - 1)
    }
}

/// The weight of [`taking_part`].
fn share(i: u32) -> f32 {
    if i == 1 || i == 2 { 0.75 } else { 0.25 }
}

/// `size` is that of `to_x`; of `channels` joined ones the first `own` are read.
#[cube(launch_unchecked, address_type = "dynamic")]
fn backward_kernel<N: Size>(
    grad: &[Vector<f32, N>],
    to_x: &mut [f32],
    size: Extent,
    own: u32,
    channels: u32,
) {
    let at = place(&size);
    if at.x >= size.w || at.y >= size.h || at.z >= size.d {
        terminate!();
    }
    let channel = at.channel / own * channels + at.channel % own;
    let mut sum = 0.0f32;
    #[unroll]
    for i in 0..16u32 {
        let z = taking_part(at.z, comptime!(i / 4), size.d);
        let y = taking_part(at.y, comptime!(i % 4), size.h);
        let here = grad[pair_at(&size, channel, z, y, at.x)];
        let before = grad[pair_at(&size, channel, z, y, neighbour(at.x, 0u32, size.w))];
        let behind = grad[pair_at(&size, channel, z, y, neighbour(at.x, 2u32, size.w))];
        let (first, second) = (here.extract(0usize), here.extract(1usize));
        // At a border the missing neighbour is the border's own value.
        let left = select(at.x > 0, before.extract(1usize), first);
        let right = select(at.x + 1 < size.w, behind.extract(0usize), second);
        let row = 0.75f32 * (first + second) + 0.25f32 * (left + right);
        sum += comptime!(share(i / 4) * share(i % 4)) * row;
    }
    let row =
        (at.channel as usize * size.d as usize + at.z as usize) * size.h as usize + at.y as usize;
    to_x[row * size.w as usize + at.x as usize] = sum;
}

impl UpsampleOps for CubeBackend {
    fn upsample_3d(
        x: FloatTensor<Self>,
        skip: FloatTensor<Self>,
        joins: bool,
    ) -> FloatTensor<Self> {
        assert_f32("upsample", &[&x, &skip]);
        let x = into_contiguous(x);
        let shape = joined_shape(x.meta.shape(), skip.meta.shape(), joins);
        let output = empty(&x, shape.clone());
        // A dummy of one pair where nothing is joined.
        let skip = if joins { into_contiguous(skip) } else { empty(&x, [2]) };
        unsafe {
            forward_kernel::launch_unchecked(
                &x.client,
                cubes("upsample", shape[0] * shape[1], size(&x)),
                CUBE.into(),
                address(&[&output]),
                2,
                buffer(&x),
                buffer(&skip),
                buffer(&output),
                extent(size(&x)),
                x.meta.shape()[1] as u32,
                shape[1] as u32,
            );
        }
        output
    }

    fn upsample_3d_backward(grad: FloatTensor<Self>, channels: usize) -> FloatTensor<Self> {
        assert_f32("upsample", &[&grad]);
        let grad = into_contiguous(grad);
        let joined = grad.meta.shape()[1];
        let to_x = empty(&grad, halved_shape(grad.meta.shape(), channels));
        unsafe {
            backward_kernel::launch_unchecked(
                &grad.client,
                cubes("upsample", to_x.meta.shape()[0] * channels, size(&to_x)),
                CUBE.into(),
                address(&[&grad]),
                2,
                buffer(&grad),
                buffer(&to_x),
                extent(size(&to_x)),
                channels as u32,
                joined as u32,
            );
        }
        to_x
    }
}
