//! The control grid on the GPU.
//!
//! `field.rs`: a unit marches along a column of the output and keeps what the four control planes around
//! it say in registers (`column.rs`), so the dense field is written once and nothing else
//! of its size exists. `transpose.rs`: one pass an axis, z first: the dense gradient is read once, and
//! what is left is smaller by the spacing each time.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use self::field::field_kernel;
use self::transpose::{along_lines_kernel, march_kernel};
use super::{Axis, BsplineOps, Lattice};
use ffdp_kit::cubes::{CUBES_ALONG_AXIS, cubes_in_lines, grid_of_cubes, launched, lines_of_cubes};
use ffdp_kit::launch::{UNITS, address, assert_f32, buffer, empty, extent, upload};

pub(crate) mod banded;
pub(crate) mod column;
mod field;
mod transpose;

/// Cubes that a launch should have: several for each multiprocessor of a large GPU. More would share out
/// the columns in shorter marches, each of which reads four control planes before its first voxel.
const CUBES_WANTED: usize = 2112;

/// Numbers of a position in a table: the first control point, then four weights.
pub(crate) const ENTRY: usize = 5;

/// Per position the first control point (whole, so exact below 2^24) and the weights.
fn table(axis: &Axis) -> impl Iterator<Item = f32> {
    let entry = |taps: super::taps::Taps| {
        let [a, b, c, d] = taps.weights;
        [taps.first as f64, a, b, c, d].map(|value| value as f32)
    };
    axis.taps().into_iter().flat_map(entry)
}

/// The tables of the three axes, one after the other.
pub(crate) fn tables(lattice: &Lattice) -> Vec<f32> {
    lattice.axes.iter().flat_map(table).collect()
}

/// The same, each followed by which positions see its control points.
pub(crate) fn tables_and_ranges(lattice: &Lattice) -> Vec<f32> {
    lattice.axes.iter().flat_map(|axis| table(axis).chain(ranges(axis))).collect()
}

/// Chunks of an axis of `len` that make a launch of `cubes` large enough, and the length of one.
fn chunks(len: usize, shortest: usize, cubes: usize) -> (usize, usize) {
    let wanted = CUBES_WANTED.div_ceil(cubes.max(1));
    let chunk = len.div_ceil(wanted).max(shortest).min(len);
    (len.div_ceil(chunk), chunk)
}

fn forward(coefficients: &CubeTensor, lattice: &Lattice) -> CubeTensor {
    let shape = coefficients.meta.shape();
    let output = empty(coefficients, lattice.output(shape));
    let [d, h, w] = lattice.size();
    // The three components of a field share their tables.
    let together = if shape[1].is_multiple_of(3) { 3 } else { 1 };
    let groups = shape[0] * shape[1] / together;
    let tables = tables(lattice);
    let [x, y] = [w.div_ceil(32), h.div_ceil(8)];
    let (count, chunk) = chunks(d, SHORTEST, x * y * groups);
    unsafe {
        field_kernel::launch_unchecked(
            &coefficients.client,
            grid_of_cubes("bspline", [x, y, groups * count]),
            CubeDim::new_2d(32, 8),
            address(&[coefficients, &output]),
            buffer(coefficients),
            buffer(&upload(coefficients, &tables)),
            buffer(&output),
            extent([d, h, w]),
            extent(lattice.controls()),
            chunk as u32,
            together as u32,
        );
    }
    output
}

/// Planes of a chunk, at least: four control planes are read before the first of them.
const SHORTEST: usize = 16;

/// The transpose along an axis whose elements are `stride` apart.
fn transposed(grad: CubeTensor, axis: &Axis, blocks: usize, stride: usize) -> CubeTensor {
    let identity = axis.controls == 1 && axis.len == 1 && axis.taps()[0].weights[0] == 1.0;
    if identity {
        return grad;
    }
    let output = empty(&grad, [blocks * axis.controls * stride]);
    let table = upload(&grad, &table(axis).chain(ranges(axis)).collect::<Vec<_>>());
    match stride {
        1 => along_lines(&grad, &table, &output, axis, blocks),
        _ => march(&grad, &table, &output, axis, blocks, stride),
    }
    output
}

/// Per control point the first position that sees it, and the one after the last. Neither ever falls, also
/// where a control point lies between positions and none sees it: a chunk reads from the one of its first
/// control point to the other of its last.
fn ranges(axis: &Axis) -> impl Iterator<Item = f32> {
    let firsts: Vec<usize> = axis.taps().iter().map(|taps| taps.first).collect();
    let range = move |control: usize| {
        let start = firsts.partition_point(|first| first + 3 < control);
        let end = firsts.partition_point(|first| *first <= control);
        [start as f32, end as f32]
    };
    (0..axis.controls).flat_map(range)
}

fn march(
    grad: &CubeTensor,
    table: &CubeTensor,
    output: &CubeTensor,
    axis: &Axis,
    blocks: usize,
    stride: usize,
) {
    let tiles = stride.div_ceil(UNITS as usize);
    let (count, chunk) = chunks(axis.controls, 4, tiles * blocks);
    let [x, y] = cubes_in_lines(tiles);
    // Blocks beyond what an axis of the launch takes follow one another.
    let z = (blocks * count).min(CUBES_ALONG_AXIS);
    unsafe {
        march_kernel::launch_unchecked(
            &grad.client,
            launched([x, y, z as u32]),
            CubeDim::new_1d(UNITS),
            address(&[grad, output]),
            buffer(grad),
            buffer(table),
            buffer(output),
            axis.len as u32,
            axis.controls as u32,
            stride,
            blocks as u32,
            chunk as u32,
        );
    }
}

fn along_lines(
    grad: &CubeTensor,
    table: &CubeTensor,
    output: &CubeTensor,
    axis: &Axis,
    lines: usize,
) {
    let cubes = (lines * axis.controls).div_ceil(UNITS as usize);
    unsafe {
        along_lines_kernel::launch_unchecked(
            &grad.client,
            lines_of_cubes(cubes),
            CubeDim::new_1d(UNITS),
            address(&[grad, output]),
            buffer(grad),
            buffer(table),
            buffer(output),
            axis.len as u32,
            axis.controls as u32,
            lines,
        );
    }
}

fn backward(grad: CubeTensor, lattice: &Lattice) -> CubeTensor {
    let shape = lattice.input(grad.meta.shape());
    let volumes = shape[0] * shape[1];
    let [x, y, z] = &lattice.axes;
    let planes = transposed(grad, z, volumes, y.len * x.len);
    let rows = transposed(planes, y, volumes * z.controls, x.len);
    let points = transposed(rows, x, volumes * z.controls * y.controls, 1);
    CubeTensor::new_contiguous(points.client, points.device, shape, points.handle, points.dtype)
}

impl BsplineOps for CubeBackend {
    fn bspline_3d(coefficients: FloatTensor<Self>, lattice: Lattice) -> FloatTensor<Self> {
        assert_f32("bspline", &[&coefficients]);
        forward(&into_contiguous(coefficients), &lattice)
    }

    fn bspline_3d_backward(grad: FloatTensor<Self>, lattice: Lattice) -> FloatTensor<Self> {
        assert_f32("bspline", &[&grad]);
        backward(into_contiguous(grad), &lattice)
    }
}
