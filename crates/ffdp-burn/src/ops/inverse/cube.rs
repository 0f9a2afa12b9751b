//! The inverse on the GPU: a unit solves its point in registers, one gather of the field an iteration.

use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use cubecl::prelude::*;

use super::{
    FIXED_POINT_ITERATIONS, InverseOps, LEAST_DETERMINANT, LONGEST_STEP_VOXELS, NEWTON_ITERATIONS,
    tolerance_voxels,
};
use crate::ops::grid_sample::cube::{
    COLUMNS, Point, column_of_unit, columns, inside, interpolate, len, offset, read_corners,
    sample_at, slopes,
};
use crate::ops::grid_sample::{Interpolation, Padding};
use ffdp_kit::launch::{Extent, address, assert_f32, buffer, empty, extent, size};

/// The components of `f`, and the rows of its Jacobian.
const F: usize = 3;
const F_AND_JACOBIAN: usize = 12;

/// Fills in `f(s) = s + u(y + s)`, then `I + grad u` row by row.
#[cube]
fn linearize(
    f: &mut Array<f32>,
    field: &[f32],
    base: usize,
    size: &Extent,
    y: &Point,
    s: &Array<f32>,
) {
    let position = Point { x: y.x + s[0], y: y.y + s[1], z: y.z + s[2] };
    let taps = sample_at(&position, size, Interpolation::Linear, Padding::Border);
    #[unroll]
    for c in 0..3usize {
        let corners = read_corners(field, base + c * len(size), size, &taps);
        let slope = slopes(&corners, &taps);
        f[c] = s[c] + interpolate(&corners, &taps);
        f[comptime!(F + 3 * c)] = slope.x + comptime!(if c == 0 { 1.0f32 } else { 0.0f32 });
        f[comptime!(F + 3 * c + 1)] = slope.y + comptime!(if c == 1 { 1.0f32 } else { 0.0f32 });
        f[comptime!(F + 3 * c + 2)] = slope.z + comptime!(if c == 2 { 1.0f32 } else { 0.0f32 });
    }
}

/// `|f|^2`.
#[cube]
fn square(f: &Array<f32>) -> f32 {
    f[0] * f[0] + f[1] * f[1] + f[2] * f[2]
}

#[cube]
fn row(f: &Array<f32>, #[comptime] i: usize) -> Point {
    Point {
        x: f[comptime!(F + 3 * i)],
        y: f[comptime!(F + 3 * i + 1)],
        z: f[comptime!(F + 3 * i + 2)],
    }
}

#[cube]
fn cross(a: &Point, b: &Point) -> Point {
    Point { x: a.y * b.z - a.z * b.y, y: a.z * b.x - a.x * b.z, z: a.x * b.y - a.y * b.x }
}

/// Fills in `-J^-1 f`, by Cramer's rule, cut to the longest step.
#[cube]
fn newton_step(step: &mut Array<f32>, f: &Array<f32>) {
    let a = row(f, 0usize);
    let b = row(f, 1usize);
    let c = row(f, 2usize);
    let b_c = cross(&b, &c);
    let c_a = cross(&c, &a);
    let a_b = cross(&a, &b);
    let determinant = a.x * b_c.x + a.y * b_c.y + a.z * b_c.z;
    let least = comptime!(LEAST_DETERMINANT as f32);
    let one_over = -1.0f32 / select(determinant.abs() < least, least.runtime(), determinant);
    let x = one_over * (f[0] * b_c.x + f[1] * c_a.x + f[2] * a_b.x);
    let y = one_over * (f[0] * b_c.y + f[1] * c_a.y + f[2] * a_b.y);
    let z = one_over * (f[0] * b_c.z + f[1] * c_a.z + f[2] * a_b.z);
    let longest = comptime!(LONGEST_STEP_VOXELS as f32).runtime();
    let cut = longest / max((x * x + y * y + z * z).sqrt(), longest);
    step[0] = cut * x;
    step[1] = cut * y;
    step[2] = cut * z;
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn inverse_kernel(
    field: &[f32],
    points: &[f32],
    output: &mut [f32],
    size: Extent,
    field_size: Extent,
    tolerance: f32,
    #[comptime] at_voxels: bool,
) {
    let at = column_of_unit(&size, 1u32);
    if !inside(&at, &size) {
        terminate!();
    }
    let len_points = len(&size);
    let voxel = (at.n * 3) as usize * len_points + offset(&at, &size);
    let mut place = Array::<f32>::new(comptime!(F));
    place[0] = f32::cast_from(at.x);
    place[1] = f32::cast_from(at.y);
    place[2] = f32::cast_from(at.z);
    if comptime!(!at_voxels) {
        #[unroll]
        for c in 0..3usize {
            place[c] = points[voxel + c * len_points];
        }
    }
    let y = Point { x: place[0], y: place[1], z: place[2] };
    let base = (at.n * 3) as usize * len(&field_size);
    let solved = tolerance * tolerance;

    let mut s = Array::<f32>::new(comptime!(F));
    #[unroll]
    for c in 0..3usize {
        s[c] = 0.0f32;
    }
    let mut f = Array::<f32>::new(comptime!(F_AND_JACOBIAN));
    linearize(&mut f, field, base, &field_size, &y, &s);
    let mut left = square(&f);
    let mut step = Array::<f32>::new(comptime!(F));
    let mut there = Array::<f32>::new(comptime!(F));
    let mut f_there = Array::<f32>::new(comptime!(F_AND_JACOBIAN));
    let mut damping = 1.0f32;
    let mut newton = false;
    let mut iteration = 0u32;
    while iteration < FIXED_POINT_ITERATIONS + NEWTON_ITERATIONS && left > solved {
        // s <- -u(y + s) = s - f(s), as long as that brings f down, then Newton's steps.
        newton = newton || iteration >= FIXED_POINT_ITERATIONS;
        if newton {
            newton_step(&mut step, &f);
        } else {
            #[unroll]
            for c in 0..3usize {
                step[c] = -f[c];
            }
        }
        #[unroll]
        for c in 0..3usize {
            there[c] = s[c] + damping * step[c];
        }
        linearize(&mut f_there, field, base, &field_size, &y, &there);
        let left_there = square(&f_there);
        if left_there < left {
            #[unroll]
            for c in 0..3usize {
                s[c] = there[c];
            }
            #[unroll]
            for i in 0..F_AND_JACOBIAN {
                f[i] = f_there[i];
            }
            left = left_there;
            damping = min(2.0 * damping, 1.0f32);
        } else {
            // A step that makes |f| no smaller is taken back: the next one is shorter, and Newton's.
            damping = select(newton, 0.5 * damping, damping);
            newton = true;
        }
        iteration += 1;
    }
    #[unroll]
    for c in 0..3usize {
        output[voxel + c * len_points] = s[c];
    }
}

impl InverseOps for CubeBackend {
    fn inverse_3d(
        field: FloatTensor<Self>,
        points: FloatTensor<Self>,
        at_voxels: bool,
    ) -> FloatTensor<Self> {
        assert_f32("inverse", &[&field, &points]);
        let (field, points) = (into_contiguous(field), into_contiguous(points));
        let output = empty(&points, points.meta.shape().clone());
        unsafe {
            inverse_kernel::launch_unchecked(
                &points.client,
                columns("inverse", points.meta.shape()[0], size(&points), 1),
                COLUMNS.into(),
                address(&[&field, &points]),
                buffer(&field),
                buffer(&points),
                buffer(&output),
                extent(size(&points)),
                extent(size(&field)),
                tolerance_voxels(DType::F32) as f32,
                at_voxels,
            );
        }
        output
    }
}
