//! Roughness on the GPU: one sweep for the value, one for the gradient.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{RegularityOps, Roughness};
use crate::ops::grid_sample::cube::{inside, len, voxel_of_unit};
use crate::ops::launch::{
    CUBE, Extent, address, assert_f32, buffer, cubes, empty, extent, sum_over_cube, sum_rows,
};
use crate::ops::stencil::{
    Axis, COLUMN, Place, axis, backward, column_cubes, forward, has_next, neighbour, place,
    voxel_of_column,
};

/// [`super::Weights`] in a kernel, and `eps`.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Numbers {
    x: f32,
    y: f32,
    z: f32,
    xy: f32,
    xz: f32,
    yz: f32,
    epsilon: f32,
}

/// [`Roughness`] without its number: fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Diffusion,
    Bending,
    TotalVariation,
}

/// `u(p + e) - 2 u(p) + u(p - e)`, 0 where it does not exist.
#[cube]
fn second(field: &[f32], at: usize, axis: &Axis) -> f32 {
    let mut difference = 0.0f32;
    if axis.position > 0 && has_next(axis) {
        difference = field[at - axis.stride] - 2.0 * field[at] + field[at + axis.stride];
    }
    difference
}

/// The adjoint of [`second`] after it: `D(p - e) - 2 D(p) + D(p + e)`.
#[cube]
fn second_twice(field: &[f32], base: usize, p: &Place, #[comptime] along: u32) -> f32 {
    let here = axis(p, along);
    let mut sum = second(field, base + p.at, &here) * (-2.0f32);
    if here.position > 0 {
        let q = neighbour(p, along, false);
        sum += second(field, base + q.at, &axis(&q, along));
    }
    if has_next(&here) {
        let q = neighbour(p, along, true);
        sum += second(field, base + q.at, &axis(&q, along));
    }
    sum
}

/// The second difference of the cell above a voxel across two axes, 0 where it does not exist.
#[cube]
fn mixed(field: &[f32], at: usize, a: &Axis, b: &Axis) -> f32 {
    let mut difference = 0.0f32;
    if has_next(a) && has_next(b) {
        difference = (field[at + a.stride + b.stride] - field[at + a.stride])
            - (field[at + b.stride] - field[at]);
    }
    difference
}

/// The adjoint of [`mixed`] after it: the four cells around a voxel, with alternating signs.
#[cube]
fn mixed_twice(
    field: &[f32],
    base: usize,
    p: &Place,
    #[comptime] first: u32,
    #[comptime] other: u32,
) -> f32 {
    let (a, b) = (axis(p, first), axis(p, other));
    let mut sum = mixed(field, base + p.at, &a, &b);
    if a.position > 0 {
        let q = neighbour(p, first, false);
        sum -= mixed(field, base + q.at, &axis(&q, first), &b);
    }
    if b.position > 0 {
        let q = neighbour(p, other, false);
        sum -= mixed(field, base + q.at, &a, &axis(&q, other));
    }
    if a.position > 0 && b.position > 0 {
        let side = neighbour(p, first, false);
        let q = neighbour(&side, other, false);
        sum += mixed(field, base + q.at, &axis(&q, first), &axis(&q, other));
    }
    sum
}

/// `sum_(a, c) (d_a u_c)^2`.
#[cube]
fn squared_length(field: &[f32], first: usize, len: usize, p: &Place) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for component in 0..3usize {
        let at = first + component * len + p.at;
        let x = forward(field, at, &p.x);
        let y = forward(field, at, &p.y);
        let z = forward(field, at, &p.z);
        sum += x * x + y * y + z * z;
    }
    sum
}

/// What a voxel adds to the roughness.
#[cube]
fn density(
    field: &[f32],
    first: usize,
    len: usize,
    p: &Place,
    numbers: &Numbers,
    #[comptime] kind: Kind,
) -> f32 {
    let mut sum = 0.0f32;
    if comptime!(kind == Kind::TotalVariation) {
        let squares = squared_length(field, first, len, p);
        let epsilon = numbers.epsilon;
        // sqrt(s + e^2) - e, without the cancellation.
        sum = numbers.x * (squares / ((squares + epsilon * epsilon).sqrt() + epsilon));
    } else {
        #[unroll]
        for component in 0..3usize {
            let at = first + component * len + p.at;
            if comptime!(kind == Kind::Diffusion) {
                let x = forward(field, at, &p.x);
                let y = forward(field, at, &p.y);
                let z = forward(field, at, &p.z);
                sum += numbers.x * (x * x) + numbers.y * (y * y) + numbers.z * (z * z);
            } else {
                let x = second(field, at, &p.x);
                let y = second(field, at, &p.y);
                let z = second(field, at, &p.z);
                sum += numbers.x * (x * x) + numbers.y * (y * y) + numbers.z * (z * z);
                let xy = mixed(field, at, &p.x, &p.y);
                let xz = mixed(field, at, &p.x, &p.z);
                let yz = mixed(field, at, &p.y, &p.z);
                sum += numbers.xy * (xy * xy) + numbers.xz * (xz * xz) + numbers.yz * (yz * yz);
            }
        }
    }
    sum
}

/// `partials[cube]`: the sum over a column of voxels a unit.
#[cube(launch_unchecked, address_type = "dynamic")]
fn value_kernel(
    field: &[f32],
    partials: &mut [f32],
    size: Extent,
    numbers: Numbers,
    #[comptime] kind: Kind,
) {
    let len = len(&size);
    let mut sum = 0.0f32;
    for step in 0..COLUMN {
        let at = voxel_of_column(&size, step);
        if inside(&at, &size) {
            let first = at.n as usize * 3 * len;
            sum += density(field, first, len, &place(&at, &size), &numbers, kind);
        }
    }
    let total = sum_over_cube(sum);
    if UNIT_POS == 0 {
        let cube = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) * CUBE_COUNT_X + CUBE_POS_X;
        partials[cube as usize] = total;
    }
}

/// One over the length of the differences at a voxel.
#[cube]
fn inverse_length(field: &[f32], first: usize, len: usize, p: &Place, epsilon: f32) -> f32 {
    let squares = squared_length(field, first, len, p);
    1.0 / (squares + epsilon * epsilon).sqrt()
}

/// The gradient of total variation: a difference over its length, out of the voxel and into it.
#[cube]
fn total_variation_gradient(
    field: &[f32],
    output: &mut [f32],
    first: usize,
    len: usize,
    p: &Place,
    scale: f32,
    epsilon: f32,
) {
    let out = inverse_length(field, first, len, p, epsilon);
    let mut x = 0.0f32;
    let mut y = 0.0f32;
    let mut z = 0.0f32;
    if p.x.position > 0 {
        x = inverse_length(field, first, len, &neighbour(p, 0u32, false), epsilon);
    }
    if p.y.position > 0 {
        y = inverse_length(field, first, len, &neighbour(p, 1u32, false), epsilon);
    }
    if p.z.position > 0 {
        z = inverse_length(field, first, len, &neighbour(p, 2u32, false), epsilon);
    }
    #[unroll]
    for component in 0..3usize {
        let at = first + component * len + p.at;
        let ahead = forward(field, at, &p.x) + forward(field, at, &p.y) + forward(field, at, &p.z);
        let into = x * backward(field, at, &p.x)
            + y * backward(field, at, &p.y)
            + z * backward(field, at, &p.z);
        output[at] = scale * (into - out * ahead);
    }
}

/// The gradient: each voxel gathers the differences that it takes part in, so no atomics.
#[cube(launch_unchecked, address_type = "dynamic")]
fn gradient_kernel(
    field: &[f32],
    grad: &[f32],
    output: &mut [f32],
    size: Extent,
    numbers: Numbers,
    #[comptime] kind: Kind,
) {
    let voxel = voxel_of_unit(&size);
    if !inside(&voxel, &size) {
        terminate!();
    }
    let len = len(&size);
    let first = voxel.n as usize * 3 * len;
    let p = place(&voxel, &size);
    if comptime!(kind == Kind::TotalVariation) {
        let scale = grad[0] * numbers.x;
        total_variation_gradient(field, output, first, len, &p, scale, numbers.epsilon);
    } else {
        let scale = 2.0 * grad[0];
        #[unroll]
        for component in 0..3usize {
            let base = first + component * len;
            let at = base + p.at;
            let mut sum = 0.0f32;
            if comptime!(kind == Kind::Diffusion) {
                sum += numbers.x * (backward(field, at, &p.x) - forward(field, at, &p.x));
                sum += numbers.y * (backward(field, at, &p.y) - forward(field, at, &p.y));
                sum += numbers.z * (backward(field, at, &p.z) - forward(field, at, &p.z));
            } else {
                sum += numbers.x * second_twice(field, base, &p, 0u32);
                sum += numbers.y * second_twice(field, base, &p, 1u32);
                sum += numbers.z * second_twice(field, base, &p, 2u32);
                sum += numbers.xy * mixed_twice(field, base, &p, 0u32, 1u32);
                sum += numbers.xz * mixed_twice(field, base, &p, 0u32, 2u32);
                sum += numbers.yz * mixed_twice(field, base, &p, 1u32, 2u32);
            }
            output[at] = scale * sum;
        }
    }
}

/// A call: the contiguous field and what is computed of it.
struct Call {
    field: CubeTensor,
    batch: usize,
    size: [usize; 3],
    roughness: Roughness,
}

impl Call {
    fn new(field: CubeTensor, roughness: Roughness) -> Self {
        assert_f32("regularity", &[&field]);
        let field = into_contiguous(field);
        let shape = field.meta.shape();
        let (batch, size) = (shape[0], [shape[2], shape[3], shape[4]]);
        Self { field, batch, size, roughness }
    }

    fn kind(&self) -> Kind {
        match self.roughness {
            Roughness::Diffusion => Kind::Diffusion,
            Roughness::Bending => Kind::Bending,
            Roughness::TotalVariation { .. } => Kind::TotalVariation,
        }
    }

    fn numbers(&self) -> NumbersLaunch {
        let weights = self.roughness.weights(self.field.meta.shape());
        let [x, y, z] = weights.along.map(|weight| weight as f32);
        let [xy, xz, yz] = weights.across.map(|weight| weight as f32);
        let epsilon = match self.roughness {
            Roughness::TotalVariation { epsilon } => epsilon as f32,
            _ => 0.0,
        };
        NumbersLaunch::new(x, y, z, xy, xz, yz, epsilon)
    }

    fn value(self) -> CubeTensor {
        let (count, total) = column_cubes("regularity", self.batch, self.size);
        let partials = empty(&self.field, [total]);
        unsafe {
            value_kernel::launch_unchecked(
                &self.field.client,
                count,
                CUBE.into(),
                address(&[&self.field]),
                buffer(&self.field),
                buffer(&partials),
                extent(self.size),
                self.numbers(),
                self.kind(),
            );
        }
        sum_rows(&partials, 1, total, 1.0)
    }

    fn gradient(self, grad: CubeTensor) -> CubeTensor {
        assert_f32("regularity", &[&grad]);
        let grad = into_contiguous(grad);
        let output = empty(&self.field, self.field.meta.shape().clone());
        unsafe {
            gradient_kernel::launch_unchecked(
                &self.field.client,
                cubes("regularity", self.batch, self.size),
                CUBE.into(),
                address(&[&self.field]),
                buffer(&self.field),
                buffer(&grad),
                buffer(&output),
                extent(self.size),
                self.numbers(),
                self.kind(),
            );
        }
        output
    }
}

impl RegularityOps for CubeBackend {
    fn roughness_3d(field: FloatTensor<Self>, roughness: Roughness) -> FloatTensor<Self> {
        Call::new(field, roughness).value()
    }

    fn roughness_3d_backward(
        field: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        roughness: Roughness,
    ) -> FloatTensor<Self> {
        Call::new(field, roughness).gradient(grad)
    }
}
