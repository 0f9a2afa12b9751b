//! The normalised gradient on the GPU: a unit a voxel, neighbours from the cache.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::{Edges, NormalizedGradientOps};
use crate::ops::grid_sample::cube::{COLUMNS, column_of_unit, columns, inside, len, offset};
use ffdp_kit::launch::{Extent, address, assert_f32, buffer, empty_f32, extent, kind, readable};

/// One over the sizes of a voxel, and `eta` squared.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Scale {
    x: f32,
    y: f32,
    z: f32,
    eta_squared: f32,
}

impl Edges {
    fn launch(self) -> ScaleLaunch {
        let [x, y, z] = self.voxel.map(|h| (1.0 / h) as f32);
        ScaleLaunch::new(x, y, z, (self.eta * self.eta) as f32)
    }
}

/// Voxels to the neighbours before and after on an axis, 0 at its ends, and one over their distance.
#[derive(CubeType, Clone, Copy)]
struct Ends {
    before: u32,
    after: u32,
    per: f32,
}

#[cube]
fn ends(position: u32, len: u32, per: f32) -> Ends {
    let before = select(position > 0, 1u32, 0u32);
    let after = select(position + 1 < len, 1u32, 0u32);
    Ends { before, after, per: per / f32::cast_from(max(before + after, 1u32)) }
}

/// The difference along an axis whose voxels are `stride` apart, times one over the distance.
#[cube]
fn difference<T: Float>(image: &[T], voxel: usize, ends: &Ends, stride: usize) -> f32 {
    let after = f32::cast_from(image[voxel + ends.after as usize * stride]);
    let before = f32::cast_from(image[voxel - ends.before as usize * stride]);
    (after - before) * ends.per
}

/// `G` and one over `rho` of a voxel at (x, y, z).
#[cube]
fn slope<T: Float>(
    image: &[T],
    first: usize,
    size: &Extent,
    scale: &Scale,
    x: u32,
    y: u32,
    z: u32,
) -> Array<f32> {
    let (row, area) = (size.w as usize, size.h as usize * size.w as usize);
    let voxel = first + z as usize * area + y as usize * row + x as usize;
    let mut slope = Array::<f32>::new(4usize);
    slope[0] = difference(image, voxel, &ends(x, size.w, scale.x), 1usize);
    slope[1] = difference(image, voxel, &ends(y, size.h, scale.y), row);
    slope[2] = difference(image, voxel, &ends(z, size.d, scale.z), area);
    let squared = slope[0] * slope[0] + slope[1] * slope[1] + slope[2] * slope[2];
    slope[3] = 1.0f32 / (squared + scale.eta_squared).sqrt();
    slope
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_kernel<T: Float>(
    image: &[T],
    output: &mut [f32],
    size: Extent,
    scale: Scale,
    #[define(T)] _kind: ElemType,
) {
    let at = column_of_unit(&size, 1u32);
    if !inside(&at, &size) {
        terminate!();
    }
    let len = len(&size);
    let slope = slope(image, at.n as usize * len, &size, &scale, at.x, at.y, at.z);
    let voxel = at.n as usize * 3 * len + offset(&at, &size);
    #[unroll]
    for axis in 0..3usize {
        output[voxel + axis * len] = slope[axis] * slope[3];
    }
}

/// One component of `dL/dG` of a voxel at (x, y, z).
#[cube]
fn pulled<T: Float>(
    image: &[T],
    grad: &[f32],
    n: usize,
    size: &Extent,
    scale: &Scale,
    x: u32,
    y: u32,
    z: u32,
    #[comptime] axis: usize,
) -> f32 {
    let len = len(size);
    let slope = slope(image, n * len, size, scale, x, y, z);
    let place = (z as usize * size.h as usize + y as usize) * size.w as usize + x as usize;
    let first = n * 3 * len + place;
    let mut along = 0.0f32;
    #[unroll]
    for a in 0..3usize {
        along += slope[a] * grad[first + a * len];
    }
    let per = slope[3];
    per * (grad[first + axis * len] - slope[axis] * along * per * per)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn backward_kernel<T: Float>(
    image: &[T],
    grad: &[f32],
    output: &mut [f32],
    size: Extent,
    scale: Scale,
    #[define(T)] _kind: ElemType,
) {
    let at = column_of_unit(&size, 1u32);
    if !inside(&at, &size) {
        terminate!();
    }
    let n = at.n as usize;
    let mut sum = 0.0f32;
    #[unroll]
    for axis in 0..3usize {
        let mut position = at.x;
        let mut size_along = size.w;
        let mut per = scale.x;
        if comptime!(axis == 1) {
            position = at.y;
            size_along = size.h;
            per = scale.y;
        }
        if comptime!(axis == 2) {
            position = at.z;
            size_along = size.d;
            per = scale.z;
        }
        // The voxel before has this one after it, and the other way round; at an end the voxel is its own neighbour.
        #[unroll]
        for side in 0..3usize {
            let reaches = if comptime!(side == 0) {
                position > 0
            } else if comptime!(side == 1) {
                size_along > 1 && (position == 0 || position + 1 == size_along)
            } else {
                position + 1 < size_along
            };
            if reaches {
                let mut x = at.x;
                let mut y = at.y;
                let mut z = at.z;
                let source = position + comptime!(side as u32) - 1;
                if comptime!(axis == 0) {
                    x = source;
                }
                if comptime!(axis == 1) {
                    y = source;
                }
                if comptime!(axis == 2) {
                    z = source;
                }
                let mut sign = 1.0f32;
                if comptime!(side == 1) {
                    sign = select(position == 0, -1.0f32, 1.0f32);
                }
                if comptime!(side == 2) {
                    sign = (-1.0f32).runtime();
                }
                let ends = ends(source, size_along, per);
                sum += sign * ends.per * pulled(image, grad, n, &size, &scale, x, y, z, axis);
            }
        }
    }
    output[n * len(&size) + offset(&at, &size)] = sum;
}

impl NormalizedGradientOps for CubeBackend {
    fn normalized_gradient_3d(image: FloatTensor<Self>, edges: Edges) -> FloatTensor<Self> {
        let image = readable("normalized_gradient", image);
        let shape = image.meta.shape();
        let (batch, size) = (shape[0], [shape[2], shape[3], shape[4]]);
        let [d, h, w] = size;
        let output = empty_f32(&image, [batch, 3, d, h, w]);
        unsafe {
            forward_kernel::launch_unchecked(
                &image.client,
                columns("normalized_gradient", batch, size, 1),
                COLUMNS.into(),
                address(&[&output]),
                buffer(&image),
                buffer(&output),
                extent(size),
                edges.launch(),
                kind(&image),
            );
        }
        output
    }

    fn normalized_gradient_3d_backward(
        image: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        edges: Edges,
    ) -> FloatTensor<Self> {
        assert_f32("normalized_gradient", &[&grad]);
        let (image, grad) = (readable("normalized_gradient", image), into_contiguous(grad));
        let shape = image.meta.shape().clone();
        let (batch, size) = (shape[0], [shape[2], shape[3], shape[4]]);
        let output = empty_f32(&image, shape);
        unsafe {
            backward_kernel::launch_unchecked(
                &image.client,
                columns("normalized_gradient", batch, size, 1),
                COLUMNS.into(),
                address(&[&grad]),
                buffer(&image),
                buffer(&grad),
                buffer(&output),
                extent(size),
                edges.launch(),
                kind(&image),
            );
        }
        output
    }
}
