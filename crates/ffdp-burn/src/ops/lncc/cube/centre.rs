//! The constants that images are read relative to.

use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::volumes;
use ffdp_kit::launch::{Extent, UNITS, address, buffer, empty_f32, extent, kind, sum_over_cube};

/// Mean of at most 4096 voxels spread over each volume: the constant that images are read
/// relative to. One cube a volume, first those of the moved image.
#[cube(launch_unchecked, address_type = "dynamic")]
fn centre_kernel<M: Float, F: Float>(
    moved: &[M],
    fixed: &[F],
    centres: &mut [f32],
    size: Extent,
    #[define(M, F)] _kinds: [ElemType; 2],
) {
    let volumes = CUBE_COUNT_X / 2;
    let len = size.d as usize * size.h as usize * size.w as usize;
    let start = (CUBE_POS_X % volumes) as usize * len;
    let step = len.div_ceil(4096usize);
    let mut sum = 0.0f32;
    let mut voxel = UNIT_POS as usize * step;
    while voxel < len {
        if CUBE_POS_X < volumes {
            sum += f32::cast_from(moved[start + voxel]);
        } else {
            sum += f32::cast_from(fixed[start + voxel]);
        }
        voxel += UNITS as usize * step;
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        let samples = len.div_ceil(step);
        centres[CUBE_POS_X as usize] = total / f32::cast_from(samples);
    }
}

/// The centring constants, `[2 volumes]`.
pub(super) fn centres(moved: &CubeTensor, fixed: &CubeTensor) -> CubeTensor {
    let shape = moved.meta.shape();
    let count = 2 * volumes(moved);
    let centres = empty_f32(moved, [count]);
    unsafe {
        centre_kernel::launch_unchecked(
            &moved.client,
            CubeCount::Static(count as u32, 1, 1),
            CubeDim::new_1d(UNITS),
            address(&[moved]),
            buffer(moved),
            buffer(fixed),
            buffer(&centres),
            extent([shape[2], shape[3], shape[4]]),
            [kind(moved), kind(fixed)],
        );
    }
    centres
}
