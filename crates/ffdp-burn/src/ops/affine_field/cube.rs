//! Affine fields on the GPU: a unit a voxel.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use cubecl::prelude::*;

use super::{AffineFieldOps, Maps};
use crate::ops::grid_sample::cube::{COLUMNS, column_of_unit, columns, inside, len, offset};
use ffdp_kit::launch::{Extent, address, assert_f32, buffer, empty, extent};

/// A row of `[A|t]` and of `M`.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Row {
    a: f32,
    b: f32,
    c: f32,
    t: f32,
    m0: f32,
    m1: f32,
    m2: f32,
}

#[cube]
fn applied(row: &Row, x: f32, y: f32, z: f32, u: &Array<f32>) -> f32 {
    row.a * x + row.b * y + row.c * z + row.t + row.m0 * u[0] + row.m1 * u[1] + row.m2 * u[2]
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn affine_field_kernel(
    field: &[f32],
    output: &mut [f32],
    size: Extent,
    row_x: Row,
    row_y: Row,
    row_z: Row,
) {
    let at = column_of_unit(&size, 1u32);
    if !inside(&at, &size) {
        terminate!();
    }
    let len = len(&size);
    let voxel = (at.n * 3) as usize * len + offset(&at, &size);
    let (x, y, z) = (f32::cast_from(at.x), f32::cast_from(at.y), f32::cast_from(at.z));
    let mut u = Array::<f32>::new(3usize);
    #[unroll]
    for c in 0..3usize {
        u[c] = field[voxel + c * len];
    }
    output[voxel] = applied(&row_x, x, y, z, &u);
    output[voxel + len] = applied(&row_y, x, y, z, &u);
    output[voxel + 2 * len] = applied(&row_z, x, y, z, &u);
}

impl AffineFieldOps for CubeBackend {
    fn affine_field_3d(field: FloatTensor<Self>, maps: Maps) -> FloatTensor<Self> {
        assert_f32("affine_field", &[&field]);
        let field = into_contiguous(field);
        let shape = field.meta.shape().clone();
        let (output, size) = (empty(&field, shape.clone()), [shape[2], shape[3], shape[4]]);
        let row = |i: usize| {
            let ([a, b, c, t], [m0, m1, m2]) = (maps.positions[i], maps.vectors[i]);
            let [a, b, c, t, m0, m1, m2] = [a, b, c, t, m0, m1, m2].map(|value| value as f32);
            RowLaunch::new(a, b, c, t, m0, m1, m2)
        };
        unsafe {
            affine_field_kernel::launch_unchecked(
                &field.client,
                columns("affine_field", shape[0], size, 1),
                COLUMNS.into(),
                address(&[&field]),
                buffer(&field),
                buffer(&output),
                extent(size),
                row(0),
                row(1),
                row(2),
            );
        }
        output
    }
}
