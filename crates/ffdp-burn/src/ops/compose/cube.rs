//! Composition on the GPU: one kernel forward, one per gradient.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::ComposeOps;
use crate::ops::grid_sample::cube::{
    Sample, Voxel, add_to_corners, corners, gradient, inside, len, offset, tap, voxel_of_unit,
    weights,
};
use crate::ops::grid_sample::{Interpolation, Padding};
use crate::ops::launch::{
    CUBE, Extent, address, assert_atomic_add, assert_f32, buffer, cubes, empty, extent, zeros,
};

/// The taps of the outer field at `p + v(p)`.
#[cube]
fn sample(inner: &[f32], at: &Voxel, size: &Extent, outer_size: &Extent) -> Sample {
    let len = len(size);
    let voxel = at.n as usize * 3 * len + offset(at, size);
    let x = f32::cast_from(at.x) + inner[voxel];
    let y = f32::cast_from(at.y) + inner[voxel + len];
    let z = f32::cast_from(at.z) + inner[voxel + 2 * len];
    Sample {
        x: tap(x, outer_size.w, Interpolation::Linear, Padding::Border),
        y: tap(y, outer_size.h, Interpolation::Linear, Padding::Border),
        z: tap(z, outer_size.d, Interpolation::Linear, Padding::Border),
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_kernel(
    outer: &[f32],
    inner: &[f32],
    output: &mut [f32],
    size: Extent,
    outer_size: Extent,
) {
    let at = voxel_of_unit(&size);
    if !inside(&at, &size) {
        terminate!();
    }
    let s = sample(inner, &at, &size, &outer_size);
    let (wx, wy, wz) = (weights(&s.x), weights(&s.y), weights(&s.z));
    for c in 0..3u32 {
        let channel = (at.n * 3 + c) as usize;
        let voxel = channel * len(&size) + offset(&at, &size);
        let base = channel * len(&outer_size);
        output[voxel] = inner[voxel] + corners(outer, base, &outer_size, &s, &wx, &wy, &wz);
    }
}

/// `dL/dv = g + (grad u)^T g`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn to_inner_kernel(
    outer: &[f32],
    inner: &[f32],
    grad: &[f32],
    output: &mut [f32],
    size: Extent,
    outer_size: Extent,
) {
    let at = voxel_of_unit(&size);
    if !inside(&at, &size) {
        terminate!();
    }
    let s = sample(inner, &at, &size, &outer_size);
    let (len, outer_len) = (len(&size), len(&outer_size));
    let first = (at.n * 3) as usize;
    let voxel = first * len + offset(&at, &size);
    let mut x = grad[voxel];
    let mut y = grad[voxel + len];
    let mut z = grad[voxel + 2 * len];
    for c in 0..3u32 {
        let g = grad[voxel + c as usize * len];
        let slope = gradient(outer, (first + c as usize) * outer_len, &outer_size, &s);
        x += g * slope.x;
        y += g * slope.y;
        z += g * slope.z;
    }
    output[voxel] = x;
    output[voxel + len] = y;
    output[voxel + 2 * len] = z;
}

/// `dL/du`: every voxel adds `g` to its eight corners.
#[cube(launch_unchecked, address_type = "dynamic")]
fn to_outer_kernel(
    inner: &[f32],
    grad: &[f32],
    output: &[Atomic<f32>],
    size: Extent,
    outer_size: Extent,
) {
    let at = voxel_of_unit(&size);
    if !inside(&at, &size) {
        terminate!();
    }
    let s = sample(inner, &at, &size, &outer_size);
    for c in 0..3u32 {
        let channel = (at.n * 3 + c) as usize;
        let g = grad[channel * len(&size) + offset(&at, &size)];
        add_to_corners(output, channel * len(&outer_size), &outer_size, &s, g);
    }
}

fn size(field: &CubeTensor) -> [usize; 3] {
    let shape = field.meta.shape();
    [shape[2], shape[3], shape[4]]
}

impl ComposeOps for CubeBackend {
    fn compose_3d(outer: FloatTensor<Self>, inner: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("compose", &[&outer, &inner]);
        let (outer, inner) = (into_contiguous(outer), into_contiguous(inner));
        let output = empty(&inner, inner.meta.shape().clone());
        unsafe {
            forward_kernel::launch_unchecked(
                &inner.client,
                cubes("compose", inner.meta.shape()[0], size(&inner)),
                CUBE.into(),
                address(&[&outer, &inner]),
                buffer(&outer),
                buffer(&inner),
                buffer(&output),
                extent(size(&inner)),
                extent(size(&outer)),
            );
        }
        output
    }

    fn compose_3d_backward(
        outer: FloatTensor<Self>,
        inner: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("compose", &[&outer, &inner, &grad]);
        let [outer, inner, grad] = [outer, inner, grad].map(into_contiguous);
        let (client, batch) = (&inner.client, inner.meta.shape()[0]);
        let address = address(&[&outer, &inner]);
        let to_outer = if needs[0] { outer.meta.shape().clone() } else { [1].into() };
        let to_outer = zeros(&outer, to_outer);
        if needs[0] {
            assert_atomic_add("compose", "outer field", client);
            unsafe {
                to_outer_kernel::launch_unchecked(
                    client,
                    cubes("compose", batch, size(&inner)),
                    CUBE.into(),
                    address,
                    buffer(&inner),
                    buffer(&grad),
                    buffer(&to_outer),
                    extent(size(&inner)),
                    extent(size(&outer)),
                );
            }
        }
        if !needs[1] {
            return (to_outer, zeros(&inner, [1]));
        }
        let to_inner = empty(&inner, inner.meta.shape().clone());
        unsafe {
            to_inner_kernel::launch_unchecked(
                client,
                cubes("compose", batch, size(&inner)),
                CUBE.into(),
                address,
                buffer(&outer),
                buffer(&inner),
                buffer(&grad),
                buffer(&to_inner),
                extent(size(&inner)),
                extent(size(&outer)),
            );
        }
        (to_outer, to_inner)
    }
}
