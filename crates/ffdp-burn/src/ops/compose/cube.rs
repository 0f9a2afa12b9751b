//! Composition on the GPU: one kernel forward, one for the inner field; the outer field's gradient
//! is scattered like that of an image.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::ComposeOps;
use crate::ops::grid_sample::cube::{
    COLUMNS, Call, Point, Sample, Voxel, above, column_of_unit, columns, inside, interpolate, len,
    offset, read_corners, sample_at, slopes,
};
use crate::ops::grid_sample::{Accumulation, Interpolation, Padding, Sampling};
use crate::ops::launch::{Extent, address, assert_f32, buffer, empty, extent, zeros};

/// Voxels of a unit: all their displacements are on their way before the first is waited for.
const HEIGHT: u32 = 4;

/// The taps of the outer field at `p + v`.
#[cube]
fn sample(at: &Voxel, v: &Point, outer_size: &Extent) -> Sample {
    let position = Point {
        x: f32::cast_from(at.x) + v.x,
        y: f32::cast_from(at.y) + v.y,
        z: f32::cast_from(at.z) + v.z,
    };
    sample_at(&position, outer_size, Interpolation::Linear, Padding::Border)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_kernel(
    outer: &[f32],
    inner: &[f32],
    output: &mut [f32],
    size: Extent,
    outer_size: Extent,
) {
    let first = column_of_unit(&size, HEIGHT);
    if !inside(&first, &size) {
        terminate!();
    }
    let (len, outer_len) = (len(&size), len(&outer_size));
    let mut v = Array::<f32>::new(comptime!(3 * HEIGHT as usize));
    #[unroll]
    for k in 0..HEIGHT {
        let at = above(&first, k);
        if inside(&at, &size) {
            let voxel = at.n as usize * 3 * len + offset(&at, &size);
            #[unroll]
            for c in 0..3u32 {
                v[comptime!((3 * k + c) as usize)] = inner[voxel + c as usize * len];
            }
        }
    }
    #[unroll]
    for k in 0..HEIGHT {
        let at = above(&first, k);
        if inside(&at, &size) {
            let own = comptime!(3 * k as usize);
            let u = Point { x: v[own], y: v[comptime!(own + 1)], z: v[comptime!(own + 2)] };
            let s = sample(&at, &u, &outer_size);
            let voxel = at.n as usize * 3 * len + offset(&at, &size);
            #[unroll]
            for c in 0..3u32 {
                let base = (at.n * 3 + c) as usize * outer_len;
                let corners = read_corners(outer, base, &outer_size, &s);
                output[voxel + c as usize * len] =
                    v[comptime!((3 * k + c) as usize)] + interpolate(&corners, &s);
            }
        }
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
    let at = column_of_unit(&size, 1u32);
    if !inside(&at, &size) {
        terminate!();
    }
    let (len, outer_len) = (len(&size), len(&outer_size));
    let first = (at.n * 3) as usize;
    let voxel = first * len + offset(&at, &size);
    let v = Point { x: inner[voxel], y: inner[voxel + len], z: inner[voxel + 2 * len] };
    let s = sample(&at, &v, &outer_size);
    let mut x = grad[voxel];
    let mut y = grad[voxel + len];
    let mut z = grad[voxel + 2 * len];
    #[unroll]
    for c in 0..3u32 {
        let g = grad[voxel + c as usize * len];
        let corners = read_corners(outer, (first + c as usize) * outer_len, &outer_size, &s);
        let slope = slopes(&corners, &s);
        x += g * slope.x;
        y += g * slope.y;
        z += g * slope.z;
    }
    output[voxel] = x;
    output[voxel + len] = y;
    output[voxel + 2 * len] = z;
}

/// The sampler of the outer field: `p + v(p)`, continued with its border values.
fn sampler(outer: &CubeTensor, inner: &CubeTensor, accumulation: Accumulation) -> Call {
    let sampling = Sampling {
        interpolation: Interpolation::Linear,
        padding: Padding::Border,
        scale: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        size: size(inner),
        has_affine: false,
        has_displacement: true,
        accumulation,
    };
    let no_affine = empty(inner, [1, 3, 4]);
    Call::new("compose", outer.clone(), no_affine, inner.clone(), sampling)
}

fn to_inner(outer: &CubeTensor, inner: &CubeTensor, grad: &CubeTensor) -> CubeTensor {
    let output = empty(inner, inner.meta.shape().clone());
    unsafe {
        to_inner_kernel::launch_unchecked(
            &inner.client,
            columns("compose", inner.meta.shape()[0], size(inner), 1),
            COLUMNS.into(),
            address(&[outer, inner]),
            buffer(outer),
            buffer(inner),
            buffer(grad),
            buffer(&output),
            extent(size(inner)),
            extent(size(outer)),
        );
    }
    output
}

fn size(field: &CubeTensor) -> [usize; 3] {
    let shape = field.meta.shape();
    [shape[2], shape[3], shape[4]]
}

impl ComposeOps for CubeBackend {
    fn compose_3d(
        outer: FloatTensor<Self>,
        inner: FloatTensor<Self>,
        _: Accumulation,
    ) -> FloatTensor<Self> {
        assert_f32("compose", &[&outer, &inner]);
        let (outer, inner) = (into_contiguous(outer), into_contiguous(inner));
        let output = empty(&inner, inner.meta.shape().clone());
        unsafe {
            forward_kernel::launch_unchecked(
                &inner.client,
                columns("compose", inner.meta.shape()[0], size(&inner), HEIGHT),
                COLUMNS.into(),
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

    fn square_3d(field: FloatTensor<Self>, accumulation: Accumulation) -> FloatTensor<Self> {
        Self::compose_3d(field.clone(), field, accumulation)
    }

    fn compose_3d_backward(
        outer: FloatTensor<Self>,
        inner: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: [bool; 2],
        accumulation: Accumulation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("compose", &[&outer, &inner, &grad]);
        let [outer, inner, grad] = [outer, inner, grad].map(into_contiguous);
        let placeholder = || empty(&inner, [1]);
        let to_outer = || {
            let onto = zeros(&outer, outer.meta.shape().clone());
            sampler(&outer, &inner, accumulation).to_image(&grad, onto)
        };
        (
            if needs[0] { to_outer() } else { placeholder() },
            if needs[1] { to_inner(&outer, &inner, &grad) } else { placeholder() },
        )
    }

    fn square_3d_backward(
        field: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        accumulation: Accumulation,
    ) -> FloatTensor<Self> {
        assert_f32("exp", &[&field, &grad]);
        let [field, grad] = [field, grad].map(into_contiguous);
        // The local gradient is where the scattered one starts from.
        let onto = to_inner(&field, &field, &grad);
        sampler(&field, &field, accumulation).to_image(&grad, onto)
    }
}
