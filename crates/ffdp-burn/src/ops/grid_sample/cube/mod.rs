//! The grid sampler on the GPU; nothing of the size of a grid in memory.
//!
//! Read first: `voxel.rs` (which unit owns which voxel), `space.rs` (where it samples), `taps.rs` and
//! `corners.rs` (what it reads there). The kernels: `forward.rs`, `gradients.rs` (local),
//! `scatter.rs` and `sink.rs` (the gradient to the image). This file launches them.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::ir::features::AtomicUsage;
use cubecl::ir::settings::Dim3;
use cubecl::prelude::*;

use super::block::GridSampleBlockOps;
use super::{Accumulation, GridSampleOps, Sampling};
use ffdp_kit::cubes::{blocks, launched, lines_of_cubes};
use ffdp_kit::launch::{
    UNITS, address, assert_f32, buffer, empty, extent, kind, readable, sum_rows, wide_address,
    zeros,
};

mod border;
mod corners;
mod forward;
mod gradients;
mod pair;
mod reduce;
mod scatter;
mod sink;
mod space;
mod taps;
mod voxel;

pub(crate) use border::{pairs_border, read_border, sample_border};
pub(crate) use corners::{interpolate, pairs_from, read_corners, read_pairs, slopes};
pub(crate) use space::{Plan as SamplePlan, Space, SpaceLaunch, map_of, matrix, position};
pub(crate) use taps::{Cells, Point, Sample, Tap, below, sample_at, tap, tap_within};
pub(crate) use voxel::{
    COLUMNS, Voxel, above, column_of_unit, columns, inside, len, offset, offset_in, offset_of,
    voxel_of_unit,
};

use forward::forward_kernel;
pub(crate) use gradients::ENOUGH;
use gradients::{HEIGHTS, to_affine_kernel, to_displacement_kernel};
use pair::{PAIR, strides};
use scatter::{BLOCK, UNITS_Z, scatter_kernel};
use sink::{Sink, finish_kernel, largest_kernel};
use space::Plan;

/// Pairs of voxels that a unit samples one after the other in a large volume.
const PAIRS: u32 = 4;

/// Parts of a volume whose largest gradients are found side by side.
const PARTS: u32 = 512;

/// A call, with its operands made contiguous.
pub(crate) struct Call {
    op: &'static str,
    image: CubeTensor,
    affine: CubeTensor,
    displacement: CubeTensor,
    sampling: Sampling,
}

impl Call {
    pub(crate) fn new(
        op: &'static str,
        image: CubeTensor,
        affine: CubeTensor,
        displacement: CubeTensor,
        sampling: Sampling,
    ) -> Self {
        assert_f32(op, &[&affine, &displacement]);
        let image = readable(op, image);
        let [affine, displacement] = [affine, displacement].map(into_contiguous);
        Self { op, image, affine, displacement, sampling }
    }

    fn batch(&self) -> usize {
        self.image.meta.shape()[0]
    }

    fn space(&self) -> SpaceLaunch {
        let shape = self.image.meta.shape();
        SpaceLaunch::new(
            extent([shape[2], shape[3], shape[4]]),
            extent(self.sampling.size),
            matrix(self.sampling.scale),
            shape[1] as u32,
            self.affine_stride(),
        )
    }

    fn affine_stride(&self) -> u32 {
        if self.affine.meta.shape()[0] == 1 { 0 } else { 12 }
    }

    fn plan(&self) -> Plan {
        let Sampling { interpolation, padding, has_affine, has_displacement, .. } = self.sampling;
        Plan {
            interpolation,
            padding,
            mapped: has_affine,
            displaced: has_displacement,
            single: self.image.meta.shape()[1] == 1,
            cells: Cells::of(&self.image, self.sampling.size),
            pairs_along_x: !has_displacement && self.sampling.size[2].is_multiple_of(PAIR as usize),
        }
    }

    /// Values in a vector of the output or its gradient.
    fn width(&self) -> usize {
        strides(self.plan())[0] as usize
    }

    /// Pairs of voxels along z that a unit samples: several, if that leaves enough cubes.
    fn pairs(&self) -> u32 {
        let cubes = self.cubes(PAIRS * strides(self.plan())[1]);
        if cubes.iter().map(|&n| n as usize).product::<usize>() >= ENOUGH { PAIRS } else { 1 }
    }

    /// Cubes whose units own columns of this height.
    fn cubes(&self, height: u32) -> [u32; 3] {
        let block = [COLUMNS.x * strides(self.plan())[0], COLUMNS.y, height];
        blocks(self.op, self.batch(), self.sampling.size, block)
    }

    fn columns(&self, pairs: u32) -> CubeCount {
        launched(self.cubes(pairs * strides(self.plan())[1]))
    }

    /// The first element of a channel between margins, and the elements of a channel.
    fn place(&self, [low, high]: [usize; 2]) -> (usize, usize) {
        let [d, h, w] = self.sampling.size;
        (low * h * w, (low + d + high) * h * w)
    }

    /// The samples between `[low, high]` planes that are not written.
    fn forward(self, margins: [usize; 2]) -> CubeTensor {
        let shape = self.sampling.block_shape(self.image.meta.shape(), margins);
        let (first, channel_len) = self.place(margins);
        let output = empty(&self.displacement, shape);
        let pairs = self.pairs();
        unsafe {
            forward_kernel::launch_unchecked(
                &self.image.client,
                self.columns(pairs),
                COLUMNS.into(),
                wide_address(&[&self.image, &self.displacement, &output]),
                self.width(),
                buffer(&self.image),
                buffer(&self.affine),
                buffer(&self.displacement),
                buffer(&output),
                self.space(),
                first,
                channel_len,
                pairs,
                self.plan(),
                kind(&self.image),
            );
        }
        output
    }

    /// From the gradient of an output between `[low, high]` planes that are not read.
    fn to_displacement(&self, grad: &CubeTensor, margins: [usize; 2]) -> CubeTensor {
        let (first, channel_len) = self.place(margins);
        let output = empty(&self.displacement, self.displacement.meta.shape().clone());
        let pairs = self.pairs();
        unsafe {
            to_displacement_kernel::launch_unchecked(
                &self.image.client,
                self.columns(pairs),
                COLUMNS.into(),
                wide_address(&[&self.image, grad, &output]),
                buffer(&self.image),
                buffer(&self.affine),
                buffer(&self.displacement),
                buffer(grad),
                buffer(&output),
                self.space(),
                first,
                channel_len,
                pairs,
                self.plan(),
                kind(&self.image),
            );
        }
        output
    }

    fn to_affine(&self, grad: &CubeTensor) -> CubeTensor {
        let cubes = |height| {
            blocks(self.op, self.batch(), self.sampling.size, [COLUMNS.x, COLUMNS.y, height])
        };
        let number = |height| cubes(height).iter().map(|&n| n as usize).product::<usize>();
        let [.., lowest] = HEIGHTS;
        let height = HEIGHTS.into_iter().find(|&h| number(h) >= ENOUGH).unwrap_or(lowest);
        let count = cubes(height);
        let maps = self.affine.meta.shape()[0];
        let columns = number(height) / maps;
        let partials = empty(&self.displacement, [maps * 12, columns]);
        unsafe {
            to_affine_kernel::launch_unchecked(
                &self.image.client,
                launched(count),
                COLUMNS.into(),
                wide_address(&[&self.image, &self.displacement, grad]),
                buffer(&self.image),
                buffer(&self.affine),
                buffer(&self.displacement),
                buffer(grad),
                buffer(&partials),
                self.space(),
                self.batch() as u32,
                self.plan(),
                height,
                kind(&self.image),
            );
        }
        let mut sums = sum_rows(&partials, maps * 12, columns, 1.0);
        sums.meta = self.affine.meta.clone();
        sums
    }

    /// Adds the gradient of the image to `onto`, which has the image's shape.
    pub(crate) fn to_image(&self, grad: &CubeTensor, onto: CubeTensor) -> CubeTensor {
        match sink(&self.image.client, self.sampling.accumulation) {
            Sink::Float => self.scatter::<f32>(grad, &empty(grad, [1]), &onto, Sink::Float),
            Sink::Wide => self.scatter_whole::<i64>(grad, &onto, Sink::Wide),
            Sink::Words => self.scatter_whole::<u32>(grad, &onto, Sink::Words),
        }
        onto
    }

    fn scatter<A: Numeric>(
        &self,
        grad: &CubeTensor,
        largest: &CubeTensor,
        output: &CubeTensor,
        sink: Sink,
    ) {
        let count = blocks(self.op, self.batch(), self.sampling.size, BLOCK);
        let elements = self.image.meta.shape().num_elements();
        unsafe {
            scatter_kernel::launch_unchecked::<A>(
                &self.image.client,
                launched(count),
                Dim3::new_3d(BLOCK[0], BLOCK[1], UNITS_Z).into(),
                address(&[output, &self.displacement, grad]),
                buffer(&self.affine),
                buffer(&self.displacement),
                buffer(grad),
                buffer(largest),
                buffer(output),
                self.space(),
                elements,
                self.plan(),
                sink,
            );
        }
    }

    /// Adds whole numbers of 64 bits, which have no order, and then their sums to `onto`.
    fn scatter_whole<A: Numeric>(&self, grad: &CubeTensor, onto: &CubeTensor, sink: Sink) {
        let elements = onto.meta.shape().num_elements();
        let shape = onto.meta.shape();
        let largest = largest(grad, shape[0] * shape[1]);
        // Two words of 32 bits an element, or one of 64.
        let sums = zeros(onto, [2 * elements]);
        self.scatter::<A>(grad, &largest, &sums, sink);
        let cubes = elements.div_ceil(UNITS as usize);
        unsafe {
            finish_kernel::launch_unchecked::<A>(
                &onto.client,
                lines_of_cubes(cubes),
                CubeDim::new_1d(UNITS),
                address(&[&sums]),
                buffer(&sums),
                buffer(&largest),
                buffer(onto),
                elements,
                elements / (shape[0] * shape[1]),
                sink,
            );
        }
    }
}

/// Where scattered gradients are summed on a device.
fn sink(client: &Client, accumulation: Accumulation) -> Sink {
    let adds = |kind: cubecl::ir::Type| {
        client.properties().atomic_type_usage(kind).contains(AtomicUsage::Add)
    };
    let float = adds(cubecl::ir::Type::atomic(f32::elem_type_native()));
    let wide = adds(cubecl::ir::Type::atomic(i64::elem_type_native()));
    match accumulation {
        Accumulation::Fast if float => Sink::Float,
        _ if wide => Sink::Wide,
        _ => Sink::Words,
    }
}

/// The largest size of each of the `volumes` of a gradient, `[volumes]`.
fn largest(grad: &CubeTensor, volumes: usize) -> CubeTensor {
    let reduce = |values: &CubeTensor, parts: u32| {
        let output = empty(values, [volumes * parts as usize]);
        unsafe {
            largest_kernel::launch_unchecked(
                &values.client,
                CubeCount::Static(parts, volumes as u32, 1),
                CubeDim::new_1d(UNITS),
                address(&[values]),
                buffer(values),
                buffer(&output),
                values.meta.shape().num_elements() / volumes,
            );
        }
        output
    };
    reduce(&reduce(grad, PARTS), 1)
}

impl GridSampleBlockOps for CubeBackend {
    fn grid_sample_3d_block(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        sampling: Sampling,
        margins: [usize; 2],
    ) -> FloatTensor<Self> {
        Call::new("grid_sample", image, affine, displacement, sampling).forward(margins)
    }

    fn grid_sample_3d_block_to_displacement(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        sampling: Sampling,
        margins: [usize; 2],
    ) -> FloatTensor<Self> {
        assert_f32("grid_sample", &[&grad]);
        let grad = into_contiguous(grad);
        let call = Call::new("grid_sample", image, affine, displacement, sampling);
        call.to_displacement(&grad, margins)
    }
}

impl GridSampleOps for CubeBackend {
    fn grid_sample_3d(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        sampling: Sampling,
    ) -> FloatTensor<Self> {
        Call::new("grid_sample", image, affine, displacement, sampling).forward([0; 2])
    }

    fn grid_sample_3d_backward(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        sampling: Sampling,
        needs: [bool; 3],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("grid_sample", &[&grad]);
        let grad = into_contiguous(grad);
        let call = Call::new("grid_sample", image, affine, displacement, sampling);
        let placeholder = || empty(&grad, [1]);
        (
            if needs[0] {
                call.to_image(&grad, zeros(&grad, call.image.meta.shape().clone()))
            } else {
                placeholder()
            },
            if needs[1] { call.to_affine(&grad) } else { placeholder() },
            if needs[2] { call.to_displacement(&grad, [0; 2]) } else { placeholder() },
        )
    }
}
