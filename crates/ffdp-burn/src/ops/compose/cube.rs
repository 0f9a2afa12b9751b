//! Composition on the GPU: one kernel forward, one for the inner field; the outer field's gradient
//! is scattered like that of an image.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::ComposeOps;
use crate::ops::grid_sample::cube::{
    COLUMNS, Call, Cells, ENOUGH, Point, Sample, Voxel, above, column_of_unit, columns, inside,
    interpolate, len, offset_in, pairs_border, read_border, sample_border, slopes,
};
use crate::ops::grid_sample::{Accumulation, Interpolation, Padding, Sampling};
use ffdp_kit::launch::{Extent, assert_f32, buffer, empty, extent, size, wide_address, zeros};

/// Voxels of a unit that are sampled together: their displacements are on their way before the first is waited
/// for. More would take registers, and fewer units would hide less of the time to memory.
const PAIR: u32 = 2;

/// Pairs along z that a unit samples one after the other, if that leaves enough cubes: planes that one pair has
/// read are near for the next.
const PAIRS: u32 = 8;

/// The taps of the outer field at `p + v`.
#[cube]
fn sample(at: &Voxel, v: &Point, outer_size: &Extent, #[comptime] cells: Cells) -> Sample {
    let position = Point {
        x: f32::cast_from(at.x) + v.x,
        y: f32::cast_from(at.y) + v.y,
        z: f32::cast_from(at.z) + v.z,
    };
    sample_border(&position, outer_size, cells)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_kernel(
    outer: &[f32],
    inner: &[f32],
    output: &mut [f32],
    size: Extent,
    outer_size: Extent,
    pairs: u32,
    #[comptime] cells: Cells,
) {
    let first = column_of_unit(&size, PAIR * pairs);
    if !inside(&first, &size) {
        terminate!();
    }
    let (len, outer_len) = (len(&size), len(&outer_size));
    let base = first.n as usize * 3 * outer_len;
    let left = (size.d - first.z).div_ceil(PAIR);
    for step in 0..min(pairs, left) {
        let lowest = above(&first, PAIR * step);
        let mut v = Array::<f32>::new(comptime!(3 * PAIR as usize));
        #[unroll]
        for k in 0..PAIR {
            let at = above(&lowest, k);
            if inside(&at, &size) {
                let voxel = at.n as usize * 3 * len + offset_in(&at, &size, cells.narrow);
                #[unroll]
                for c in 0..3u32 {
                    v[comptime!((3 * k + c) as usize)] = inner[voxel + c as usize * len];
                }
            }
        }
        #[unroll]
        for k in 0..PAIR {
            let at = above(&lowest, k);
            if inside(&at, &size) {
                let own = comptime!(3 * k as usize);
                let u = Point { x: v[own], y: v[comptime!(own + 1)], z: v[comptime!(own + 2)] };
                let s = sample(&at, &u, &outer_size, cells);
                let voxel = at.n as usize * 3 * len + offset_in(&at, &size, cells.narrow);
                let corners_at = pairs_border(base, &outer_size, &s, cells);
                #[unroll]
                for c in 0..3usize {
                    let size = &outer_size;
                    let corners =
                        read_border(outer, base, outer_len, &corners_at, size, &s, c, cells);
                    output[voxel + c * len] =
                        v[comptime!(3 * k as usize + c)] + interpolate(&corners, &s);
                }
            }
        }
    }
}

/// Pairs that a unit samples.
fn pairs(batch: usize, [d, h, w]: [usize; 3]) -> u32 {
    let block = [COLUMNS.x, COLUMNS.y, PAIR * PAIRS].map(|side| side as usize);
    let cubes = batch * w.div_ceil(block[0]) * h.div_ceil(block[1]) * d.div_ceil(block[2]);
    if cubes >= ENOUGH { PAIRS } else { 1 }
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
    #[comptime] cells: Cells,
) {
    let at = column_of_unit(&size, 1u32);
    if !inside(&at, &size) {
        terminate!();
    }
    let (len, outer_len) = (len(&size), len(&outer_size));
    let first = (at.n * 3) as usize;
    let voxel = first * len + offset_in(&at, &size, cells.narrow);
    let v = Point { x: inner[voxel], y: inner[voxel + len], z: inner[voxel + 2 * len] };
    let s = sample(&at, &v, &outer_size, cells);
    let mut x = grad[voxel];
    let mut y = grad[voxel + len];
    let mut z = grad[voxel + 2 * len];
    let base = first * outer_len;
    let pairs = pairs_border(base, &outer_size, &s, cells);
    #[unroll]
    for c in 0..3usize {
        let g = grad[voxel + c * len];
        let corners = read_border(outer, base, outer_len, &pairs, &outer_size, &s, c, cells);
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
            wide_address(&[outer, inner]),
            buffer(outer),
            buffer(inner),
            buffer(grad),
            buffer(&output),
            extent(size(inner)),
            extent(size(outer)),
            Cells::of(outer, size(inner)),
        );
    }
    output
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
        let (batch, size_inner) = (inner.meta.shape()[0], size(&inner));
        let pairs = pairs(batch, size_inner);
        unsafe {
            forward_kernel::launch_unchecked(
                &inner.client,
                columns("compose", batch, size_inner, PAIR * pairs),
                COLUMNS.into(),
                wide_address(&[&outer, &inner]),
                buffer(&outer),
                buffer(&inner),
                buffer(&output),
                extent(size_inner),
                extent(size(&outer)),
                pairs,
                Cells::of(&outer, size_inner),
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
