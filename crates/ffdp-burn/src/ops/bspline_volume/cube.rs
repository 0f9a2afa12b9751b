//! The volume penalty on the GPU: a unit a point.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::BsplineVolumeOps;
use crate::ops::launch::{UNITS, address, assert_f32, buffer, empty, sum_over_cube, sum_rows};

#[derive(CubeType, Clone, Copy)]
struct Vector3 {
    x: f32,
    y: f32,
    z: f32,
}

#[cube]
fn cross(a: &Vector3, b: &Vector3) -> Vector3 {
    Vector3 { x: a.y * b.z - a.z * b.y, y: a.z * b.x - a.x * b.z, z: a.x * b.y - a.y * b.x }
}

#[cube]
fn dot(a: &Vector3, b: &Vector3) -> f32 {
    a.x * b.x + a.y * b.y + a.z * b.z
}

/// An entry of the unit matrix.
fn unit(diagonal: bool) -> f32 {
    if diagonal { 1.0 } else { 0.0 }
}

/// A column of `J`: a derivative, plus one on the diagonal.
#[cube]
fn column(along: &[f32], first: usize, points: usize, #[comptime] axis: u32) -> Vector3 {
    Vector3 {
        x: along[first] + comptime!(unit(axis == 0)),
        y: along[first + points] + comptime!(unit(axis == 1)),
        z: along[first + 2 * points] + comptime!(unit(axis == 2)),
    }
}

#[cube]
fn store(output: &mut [f32], first: usize, points: usize, scale: f32, v: &Vector3) {
    output[first] = scale * v.x;
    output[first + points] = scale * v.y;
    output[first + 2 * points] = scale * v.z;
}

/// The first element of point `at` of a batch of volumes of `points`.
#[cube]
fn first_of(at: usize, points: usize) -> usize {
    at / points * 3 * points + at % points
}

/// `partials[cube]`: the sum of `(log det J)^2` over the cube's share of `count` points.
#[cube(launch_unchecked, address_type = "dynamic")]
fn value_kernel(
    along_x: &[f32],
    along_y: &[f32],
    along_z: &[f32],
    partials: &mut [f32],
    points: usize,
    count: usize,
    least: f32,
) {
    let mut at = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let mut sum = 0.0f32;
    while at < count {
        let first = first_of(at, points);
        let x = column(along_x, first, points, 0u32);
        let y = column(along_y, first, points, 1u32);
        let z = column(along_z, first, points, 2u32);
        let det = dot(&x, &cross(&y, &z));
        let held = max(det, least);
        let log = held.ln();
        sum += log * log + 2.0 * log / held * min(det - least, 0.0f32);
        at += (CUBE_COUNT_X * CUBE_DIM_X) as usize;
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        partials[CUBE_POS_X as usize] = total;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn gradient_kernel(
    along_x: &[f32],
    along_y: &[f32],
    along_z: &[f32],
    grad: &[f32],
    to_x: &mut [f32],
    to_y: &mut [f32],
    to_z: &mut [f32],
    points: usize,
    count: usize,
    least: f32,
    scale: f32,
) {
    let mut at = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    while at < count {
        let first = first_of(at, points);
        let x = column(along_x, first, points, 0u32);
        let y = column(along_y, first, points, 1u32);
        let z = column(along_z, first, points, 2u32);
        let of_x = cross(&y, &z);
        let held = max(dot(&x, &of_x), least);
        let slope = grad[0] * scale * 2.0 * held.ln() / held;
        store(to_x, first, points, slope, &of_x);
        store(to_y, first, points, slope, &cross(&z, &x));
        store(to_z, first, points, slope, &cross(&x, &y));
        at += (CUBE_COUNT_X * CUBE_DIM_X) as usize;
    }
}

/// Cubes of a launch, at most: several for each multiprocessor of a large GPU.
const CUBES: usize = 2112;

struct Call {
    along: [CubeTensor; 3],
    points: usize,
    count: usize,
    least: f32,
}

impl Call {
    fn new(along: [CubeTensor; 3], least: f64) -> Self {
        assert_f32("bspline_volume", &along.each_ref());
        let along = along.map(into_contiguous);
        let shape = along[0].meta.shape();
        let points = shape[2] * shape[3] * shape[4];
        Self { points, count: shape[0] * points, least: least as f32, along }
    }

    fn cubes(&self) -> usize {
        self.count.div_ceil(UNITS as usize).min(CUBES)
    }

    fn value(&self) -> CubeTensor {
        let [x, y, z] = &self.along;
        let partials = empty(x, [self.cubes()]);
        unsafe {
            value_kernel::launch_unchecked(
                &x.client,
                CubeCount::Static(self.cubes() as u32, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[x]),
                buffer(x),
                buffer(y),
                buffer(z),
                buffer(&partials),
                self.points,
                self.count,
                self.least,
            );
        }
        sum_rows(&partials, 1, self.cubes(), (1.0 / self.count as f64) as f32)
    }

    fn gradients(&self, grad: &CubeTensor) -> [CubeTensor; 3] {
        let [x, y, z] = &self.along;
        let to = self.along.each_ref().map(|t| empty(t, t.meta.shape().clone()));
        unsafe {
            gradient_kernel::launch_unchecked(
                &x.client,
                CubeCount::Static(self.cubes() as u32, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[x]),
                buffer(x),
                buffer(y),
                buffer(z),
                buffer(grad),
                buffer(&to[0]),
                buffer(&to[1]),
                buffer(&to[2]),
                self.points,
                self.count,
                self.least,
                (1.0 / self.count as f64) as f32,
            );
        }
        to
    }
}

impl BsplineVolumeOps for CubeBackend {
    fn log_volume_3d(
        along_x: FloatTensor<Self>,
        along_y: FloatTensor<Self>,
        along_z: FloatTensor<Self>,
        least: f64,
    ) -> FloatTensor<Self> {
        Call::new([along_x, along_y, along_z], least).value()
    }

    fn log_volume_3d_backward(
        along_x: FloatTensor<Self>,
        along_y: FloatTensor<Self>,
        along_z: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        least: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("bspline_volume", &[&grad]);
        let grad = into_contiguous(grad);
        let [x, y, z] = Call::new([along_x, along_y, along_z], least).gradients(&grad);
        (x, y, z)
    }
}
