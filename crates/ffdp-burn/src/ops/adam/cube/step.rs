//! The step on the GPU: the direction is taken from the moments where the field needs it, so that neither it
//! nor the scaled step is ever stored.

use burn::tensor::{DType, bf16};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::settings::Dim3;
use cubecl::prelude::*;

use super::{Constants, floor_of};
use crate::ops::Update;
use crate::ops::adam::{AdamConstants, StepRule, UpdatedMoments};
use crate::ops::grid_sample::cube::{
    Cells, Point, inside, interpolate, len, offset_in, pairs_border, read_border, sample_border,
    voxel_of_unit,
};
use ffdp_kit::cubes::{blocks, launched};
use ffdp_kit::launch::{Extent, assert_f32, buffer, empty, extent, wide_address};

/// Units of a cube: one plane, so that the corners of its voxels share as many lines as they can.
const TILE: Dim3 = Dim3::new_3d(32, 8, 1);

/// The step for a direction whose longest vector is 1 or shorter, in voxels.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Rate {
    x: f32,
    y: f32,
    z: f32,
}

/// `w(p) = s(p) + u(p + s(p))`, or `s(p) + u(p)`; `s = rate d / max(longest, 1)`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn step_kernel<M: Float>(
    field: &[f32],
    mean: &[M],
    square: &[M],
    power: &[f32],
    longest: &[f32],
    output: &mut [f32],
    size: Extent,
    constants: Constants,
    rate: Rate,
    #[comptime] cells: Cells,
    #[comptime] composes: bool,
) {
    let at = voxel_of_unit(&size);
    if !inside(&at, &size) {
        terminate!();
    }
    let n = at.n as usize;
    let scale = constants.correction_mean / max(longest[n], 1.0f32);
    let floor = floor_of(power[n], &constants);
    let len = len(&size);
    let voxel = n * 3 * len + offset_in(&at, &size, cells.narrow);
    let mut step = Array::<f32>::new(3usize);
    step[0] = rate.x * scale;
    step[1] = rate.y * scale;
    step[2] = rate.z * scale;
    #[unroll]
    for c in 0..3usize {
        let m = f32::cast_from(mean[voxel + c * len]);
        let v = f32::cast_from(square[voxel + c * len]);
        step[c] *= m / ((constants.correction_square * v).sqrt() + floor);
    }
    if comptime!(composes) {
        let position = Point {
            x: f32::cast_from(at.x) + step[0],
            y: f32::cast_from(at.y) + step[1],
            z: f32::cast_from(at.z) + step[2],
        };
        let s = sample_border(&position, &size, cells);
        let base = n * 3 * len;
        let pairs = pairs_border(base, &size, &s, cells);
        #[unroll]
        for c in 0..3usize {
            let corners = read_border(field, base, len, &pairs, &size, &s, c, cells);
            output[voxel + c * len] = step[c] + interpolate(&corners, &s);
        }
    } else {
        #[unroll]
        for c in 0..3usize {
            output[voxel + c * len] = step[c] + field[voxel + c * len];
        }
    }
}

/// The field after the step that `taken` proposes.
pub(super) fn stepped(
    field: CubeTensor,
    taken: &UpdatedMoments<burn_cubecl::CubeBackend>,
    constants: &AdamConstants,
    StepRule { rate, update }: StepRule,
) -> CubeTensor {
    assert_f32("adam", &[&field]);
    let field = into_contiguous(field);
    let shape = field.meta.shape().clone();
    let (batch, [d, h, w]) = (shape[0], [shape[2], shape[3], shape[4]]);
    let count = blocks("adam", batch, [d, h, w], [TILE.x, TILE.y, 1]);
    let output = empty(&field, shape);
    let kernel = match taken.mean.dtype {
        DType::BF16 => step_kernel::launch_unchecked::<bf16>,
        _ => step_kernel::launch_unchecked::<f32>,
    };
    let [x, y, z] = rate.map(|rate| rate as f32);
    unsafe {
        kernel(
            &field.client,
            launched(count),
            TILE.into(),
            wide_address(&[&field]),
            buffer(&field),
            buffer(&taken.mean),
            buffer(&taken.square),
            buffer(&taken.power),
            buffer(&taken.longest),
            buffer(&output),
            extent([d, h, w]),
            constants.launch(3 * d * h * w),
            RateLaunch::new(x, y, z),
            Cells::of(&field, [d, h, w]),
            update == Update::Compositive,
        );
    }
    output
}
