//! The Jacobian determinant on the GPU: one sweep for the value, one for the gradient.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Determinant, JacobianOps};
use crate::ops::grid_sample::cube::{Point, inside, len, voxel_of_unit};
use crate::ops::launch::{
    CUBE, Extent, address, assert_f32, buffer, cubes, empty, extent, sum_over_cube, sum_rows,
};
use crate::ops::stencil::{
    Axis, COLUMN, Place, axis, column_cubes, has_next, neighbour, place, voxel_of_column,
};

/// One over the distance of the voxels that a difference is taken between.
#[cube]
fn per_distance(axis: &Axis) -> f32 {
    let whole = select(axis.extent > 1, 1.0f32, 0.0f32);
    select(axis.position > 0 && has_next(axis), 0.5f32, whole)
}

/// One row of `J`: the derivative of `phi` along an axis.
#[cube]
fn row(field: &[f32], first: usize, len: usize, p: &Place, #[comptime] along: u32) -> Point {
    let scale = per_distance(&axis(p, along));
    let back = first + neighbour(p, along, false).at;
    let ahead = first + neighbour(p, along, true).at;
    let mut x = scale * (field[ahead] - field[back]);
    let mut y = scale * (field[ahead + len] - field[back + len]);
    let mut z = scale * (field[ahead + 2 * len] - field[back + 2 * len]);
    if comptime!(along == 0) {
        x += 1.0;
    } else if comptime!(along == 1) {
        y += 1.0;
    } else {
        z += 1.0;
    }
    Point { x, y, z }
}

/// The cofactors of one row.
#[cube]
fn cofactors(field: &[f32], first: usize, len: usize, p: &Place, #[comptime] along: u32) -> Point {
    let a = row(field, first, len, p, comptime!((along + 1) % 3));
    let b = row(field, first, len, p, comptime!((along + 2) % 3));
    Point { x: a.y * b.z - a.z * b.y, y: a.z * b.x - a.x * b.z, z: a.x * b.y - a.y * b.x }
}

#[cube]
fn dot(a: &Point, b: &Point) -> f32 {
    a.x * b.x + a.y * b.y + a.z * b.z
}

#[cube]
fn determinant(field: &[f32], first: usize, len: usize, p: &Place) -> f32 {
    let across = cofactors(field, first, len, p, 0u32);
    dot(&row(field, first, len, p, 0u32), &across)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn determinant_kernel(field: &[f32], output: &mut [f32], size: Extent) {
    let voxel = voxel_of_unit(&size);
    if !inside(&voxel, &size) {
        terminate!();
    }
    let len = len(&size);
    let p = place(&voxel, &size);
    let n = voxel.n as usize;
    output[n * len + p.at] = determinant(field, n * 3 * len, len, &p);
}

/// `partials[cube]`: the sum of `max(0, margin - det)` over a column of voxels a unit.
#[cube(launch_unchecked, address_type = "dynamic")]
fn penalty_kernel(field: &[f32], partials: &mut [f32], size: Extent, margin: f32) {
    let len = len(&size);
    let mut sum = 0.0f32;
    for step in 0..COLUMN {
        let voxel = voxel_of_column(&size, step);
        if inside(&voxel, &size) {
            let p = place(&voxel, &size);
            let det = determinant(field, voxel.n as usize * 3 * len, len, &p);
            sum += max(0.0f32, margin - det);
        }
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        let cube = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) * CUBE_COUNT_X + CUBE_POS_X;
        partials[cube as usize] = total;
    }
}

/// What the penalty's gradient needs.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Hinge {
    margin: f32,
    /// One over the number of voxels.
    mean: f32,
}

/// What the difference at `q` along an axis adds to the gradient of a voxel that takes part in it
/// with the sign `role`.
#[cube]
fn pull(
    field: &[f32],
    grad: &[f32],
    n: usize,
    len: usize,
    q: &Place,
    role: f32,
    hinge: &Hinge,
    #[comptime] along: u32,
    #[comptime] is_penalty: bool,
) -> Point {
    let first = n * 3 * len;
    let across = cofactors(field, first, len, q, along);
    let g = if is_penalty {
        let det = dot(&row(field, first, len, q, along), &across);
        select(det < hinge.margin, -grad[0] * hinge.mean, 0.0f32)
    } else {
        grad[n * len + q.at]
    };
    let weight = g * role * per_distance(&axis(q, along));
    Point { x: weight * across.x, y: weight * across.y, z: weight * across.z }
}

/// The gradient: each voxel gathers from its neighbours, so no atomics.
#[cube(launch_unchecked, address_type = "dynamic")]
fn gradient_kernel(
    field: &[f32],
    grad: &[f32],
    output: &mut [f32],
    size: Extent,
    hinge: Hinge,
    #[comptime] is_penalty: bool,
) {
    let voxel = voxel_of_unit(&size);
    if !inside(&voxel, &size) {
        terminate!();
    }
    let len = len(&size);
    let n = voxel.n as usize;
    let p = place(&voxel, &size);
    let mut x = 0.0f32;
    let mut y = 0.0f32;
    let mut z = 0.0f32;
    #[unroll]
    for along in 0..3u32 {
        let here = axis(&p, along);
        // The voxel ends the difference behind it and begins the one ahead; at the border it begins
        // or ends its own.
        let ends = select(here.position > 0, 1.0f32, -1.0f32);
        let begins = select(has_next(&here), -1.0f32, 1.0f32);
        let q = neighbour(&p, along, false);
        let back = pull(field, grad, n, len, &q, ends, &hinge, along, is_penalty);
        let q = neighbour(&p, along, true);
        let ahead = pull(field, grad, n, len, &q, begins, &hinge, along, is_penalty);
        x += back.x + ahead.x;
        y += back.y + ahead.y;
        z += back.z + ahead.z;
    }
    let start = n * 3 * len + p.at;
    output[start] = x;
    output[start + len] = y;
    output[start + 2 * len] = z;
}

fn batch_and_size(field: &CubeTensor) -> (usize, [usize; 3]) {
    let shape = field.meta.shape();
    (shape[0], [shape[2], shape[3], shape[4]])
}

/// One over the number of voxels.
fn mean(batch: usize, size: [usize; 3]) -> f32 {
    (1.0 / (batch * size.iter().product::<usize>()) as f64) as f32
}

fn determinants(field: &CubeTensor) -> CubeTensor {
    let (batch, size) = batch_and_size(field);
    let output = empty(field, Determinant::Field.output_shape(field.meta.shape()));
    unsafe {
        determinant_kernel::launch_unchecked(
            &field.client,
            cubes("jacobian", batch, size),
            CUBE.into(),
            address(&[field]),
            buffer(field),
            buffer(&output),
            extent(size),
        );
    }
    output
}

fn penalty(field: &CubeTensor, margin: f64) -> CubeTensor {
    let (batch, size) = batch_and_size(field);
    let (count, total) = column_cubes("jacobian_penalty", batch, size);
    let partials = empty(field, [total]);
    unsafe {
        penalty_kernel::launch_unchecked(
            &field.client,
            count,
            CUBE.into(),
            address(&[field]),
            buffer(field),
            buffer(&partials),
            extent(size),
            margin as f32,
        );
    }
    sum_rows(&partials, 1, total, mean(batch, size))
}

impl JacobianOps for CubeBackend {
    fn jacobian_3d(field: FloatTensor<Self>, output: Determinant) -> FloatTensor<Self> {
        assert_f32("jacobian", &[&field]);
        let field = into_contiguous(field);
        match output {
            Determinant::Field => determinants(&field),
            Determinant::Penalty { margin } => penalty(&field, margin),
        }
    }

    fn jacobian_3d_backward(
        field: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        output: Determinant,
    ) -> FloatTensor<Self> {
        assert_f32("jacobian", &[&field, &grad]);
        let (field, grad) = (into_contiguous(field), into_contiguous(grad));
        let (batch, size) = batch_and_size(&field);
        let (margin, is_penalty) = match output {
            Determinant::Field => (0.0, false),
            Determinant::Penalty { margin } => (margin, true),
        };
        let gradient = empty(&field, field.meta.shape().clone());
        unsafe {
            gradient_kernel::launch_unchecked(
                &field.client,
                cubes("jacobian", batch, size),
                CUBE.into(),
                address(&[&field]),
                buffer(&field),
                buffer(&grad),
                buffer(&gradient),
                extent(size),
                HingeLaunch::new(margin as f32, mean(batch, size)),
                is_penalty,
            );
        }
        gradient
    }
}
