//! The mean on the GPU: a unit for each voxel of the result, forward and backward.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use cubecl::prelude::*;

use super::{MeanPoolOps, pooled_shape, resized};
use ffdp_kit::launch::{CUBE, Extent, address, assert_f32, buffer, cubes, empty, extent, size};

/// The start of the channel of this unit's z in volumes of extents `size`.
#[cube]
fn channel_start(channel: u32, size: &Extent) -> usize {
    channel as usize * size.d as usize * size.h as usize * size.w as usize
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_kernel(x: &[f32], y: &mut [f32], from: Extent, to: Extent) {
    let slabs = to.d.div_ceil(CUBE_DIM_Z);
    let channel = CUBE_POS_Z / slabs;
    let (ox, oy) = (ABSOLUTE_POS_X, ABSOLUTE_POS_Y);
    let oz = CUBE_POS_Z % slabs * CUBE_DIM_Z + UNIT_POS_Z;
    if ox >= to.w || oy >= to.h || oz >= to.d {
        terminate!();
    }
    let start = channel_start(channel, &from);
    let mut sum = 0.0f32;
    #[unroll]
    for k in 0..27u32 {
        // One too many, so that nothing is negative.
        let z = 2 * oz + comptime!(k / 9);
        let y = 2 * oy + comptime!(k / 3 % 3);
        let x0 = 2 * ox + comptime!(k % 3);
        if z > 0 && y > 0 && x0 > 0 && z <= from.d && y <= from.h && x0 <= from.w {
            let row = (z - 1) as usize * from.h as usize + (y - 1) as usize;
            sum += x[start + row * from.w as usize + (x0 - 1) as usize];
        }
    }
    let row = oz as usize * to.h as usize + oy as usize;
    y[channel_start(channel, &to) + row * to.w as usize + ox as usize] =
        sum * comptime!(1.0f32 / 27.0);
}

/// Entries of the halved axis around `p`: from `p / 2` on, and how many, of `half` there are.
#[cube]
fn around(p: u32, half: u32) -> u32 {
    min(p.div_ceil(2) + 1, half)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn backward_kernel(grad: &[f32], to_x: &mut [f32], from: Extent, to: Extent) {
    let slabs = to.d.div_ceil(CUBE_DIM_Z);
    let channel = CUBE_POS_Z / slabs;
    let (px, py) = (ABSOLUTE_POS_X, ABSOLUTE_POS_Y);
    let pz = CUBE_POS_Z % slabs * CUBE_DIM_Z + UNIT_POS_Z;
    if px >= to.w || py >= to.h || pz >= to.d {
        terminate!();
    }
    let start = channel_start(channel, &from);
    let mut sum = 0.0f32;
    for z in pz / 2..around(pz, from.d) {
        for y in py / 2..around(py, from.h) {
            for x in px / 2..around(px, from.w) {
                let row = z as usize * from.h as usize + y as usize;
                sum += grad[start + row * from.w as usize + x as usize];
            }
        }
    }
    let row = pz as usize * to.h as usize + py as usize;
    to_x[channel_start(channel, &to) + row * to.w as usize + px as usize] =
        sum * comptime!(1.0f32 / 27.0);
}

impl MeanPoolOps for CubeBackend {
    fn mean_pool_3d(x: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("mean_pool", &[&x]);
        let x = into_contiguous(x);
        let y = empty(&x, pooled_shape(x.meta.shape()));
        let channels = x.meta.shape()[0] * x.meta.shape()[1];
        unsafe {
            forward_kernel::launch_unchecked(
                &x.client,
                cubes("mean_pool", channels, size(&y)),
                CUBE.into(),
                address(&[&x]),
                buffer(&x),
                buffer(&y),
                extent(size(&x)),
                extent(size(&y)),
            );
        }
        y
    }

    fn mean_pool_3d_backward(grad: FloatTensor<Self>, to: [usize; 3]) -> FloatTensor<Self> {
        assert_f32("mean_pool", &[&grad]);
        let grad = into_contiguous(grad);
        let to_x = empty(&grad, resized(grad.meta.shape(), to));
        let channels = grad.meta.shape()[0] * grad.meta.shape()[1];
        unsafe {
            backward_kernel::launch_unchecked(
                &grad.client,
                cubes("mean_pool", channels, to),
                CUBE.into(),
                address(&[&to_x]),
                buffer(&grad),
                buffer(&to_x),
                extent(size(&grad)),
                extent(to),
            );
        }
        to_x
    }
}
