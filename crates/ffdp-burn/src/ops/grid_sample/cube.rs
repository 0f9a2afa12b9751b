//! The grid sampler's kernels: one unit a voxel, nothing of the size of a grid in memory.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{GridSampleOps, Interpolation, Padding, Sampling};
use crate::ops::launch::{
    CUBE, Extent, address, assert_atomic_add, assert_f32, buffer, cubes, empty, extent,
    sum_over_cube, sum_rows, zeros,
};

/// Slices that one unit of the affine backward pass visits, to keep the partial sums few.
const SLICES: u32 = 16;

/// The two voxels along one axis between which a coordinate lies; see `Tap` in `flex.rs`.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Tap {
    /// Indices, clamped into the image so that they can always be read.
    pub low: u32,
    pub high: u32,
    /// Weights; zero outside the image.
    pub weight_low: f32,
    pub weight_high: f32,
    /// Derivatives of the weights by the coordinate.
    pub slope_low: f32,
    pub slope_high: f32,
}

/// The weights or the slopes of a tap.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Pair {
    pub low: f32,
    pub high: f32,
}

/// A point or vector in index space.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Point {
    pub x: f32,
    pub y: f32,
    pub z: f32,
}

/// A sampled position: one tap per axis.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Sample {
    pub x: Tap,
    pub y: Tap,
    pub z: Tap,
}

/// A 3x3 matrix, row by row.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Matrix {
    xx: f32,
    xy: f32,
    xz: f32,
    yx: f32,
    yy: f32,
    yz: f32,
    zx: f32,
    zy: f32,
    zz: f32,
}

/// The sizes and the matrix `S` that every kernel of this room takes.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Space {
    input: Extent,
    output: Extent,
    scale: Matrix,
    channels: u32,
    /// Elements between the affine maps of consecutive batch entries: 0 or 12.
    affine_stride: u32,
}

/// The output voxel of this unit.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Voxel {
    pub n: u32,
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// The voxel of this unit on a grid launched with [`cubes`].
#[cube]
pub(crate) fn voxel_of_unit(size: &Extent) -> Voxel {
    let tiles = size.d.div_ceil(CUBE_DIM_Z);
    Voxel {
        n: CUBE_POS_Z / tiles,
        x: ABSOLUTE_POS_X,
        y: ABSOLUTE_POS_Y,
        z: (CUBE_POS_Z % tiles) * CUBE_DIM_Z + UNIT_POS_Z,
    }
}

#[cube]
pub(crate) fn inside(at: &Voxel, size: &Extent) -> bool {
    at.x < size.w && at.y < size.h && at.z < size.d
}

/// Elements of one channel.
#[cube]
pub(crate) fn len(size: &Extent) -> usize {
    size.d as usize * size.h as usize * size.w as usize
}

/// The offset of a voxel within its channel.
#[cube]
pub(crate) fn offset(at: &Voxel, size: &Extent) -> usize {
    (at.z as usize * size.h as usize + at.y as usize) * size.w as usize + at.x as usize
}

#[cube]
pub(crate) fn tap(
    coordinate: f32,
    size: u32,
    #[comptime] interpolation: Interpolation,
    #[comptime] padding: Padding,
) -> Tap {
    let last = f32::cast_from(size) - 1.0;
    // Two voxels beyond the border everything is zero; this keeps the casts in range.
    let mut at = clamp(coordinate, -2.0, last + 2.0);
    let mut moves = 1.0f32;
    if comptime!(padding == Padding::Border) {
        moves = select(coordinate > 0.0 && coordinate < last, 1.0f32, 0.0f32);
        at = clamp(coordinate, 0.0, last);
    }
    let mut low = at.floor();
    let mut t = at - low;
    if comptime!(interpolation == Interpolation::Nearest) {
        low = (at + 0.5).floor();
        t = 0.0f32;
        moves = 0.0f32;
    }
    let high = low + 1.0;
    let mut a = 1.0f32;
    let mut b = 1.0f32;
    if comptime!(padding == Padding::Zeros) {
        a = select(low >= 0.0 && low <= last, 1.0f32, 0.0f32);
        b = select(high >= 0.0 && high <= last, 1.0f32, 0.0f32);
    }
    Tap {
        low: u32::cast_from(clamp(low, 0.0, last)),
        high: u32::cast_from(clamp(high, 0.0, last)),
        weight_low: a * (1.0 - t),
        weight_high: b * t,
        slope_low: -a * moves,
        slope_high: b * moves,
    }
}

#[cube]
pub(crate) fn weights(tap: &Tap) -> Pair {
    Pair { low: tap.weight_low, high: tap.weight_high }
}

#[cube]
pub(crate) fn slopes(tap: &Tap) -> Pair {
    Pair { low: tap.slope_low, high: tap.slope_high }
}

/// One row of corners: `wx0 I(x0, y, z) + wx1 I(x1, y, z)`.
#[cube]
fn row(image: &[f32], base: usize, size: &Extent, x: &Tap, y: u32, z: u32, wx: &Pair) -> f32 {
    let start = base + (z as usize * size.h as usize + y as usize) * size.w as usize;
    wx.low * image[start + x.low as usize] + wx.high * image[start + x.high as usize]
}

/// The eight corners: a sum of `wx wy wz I` over the taps.
#[cube]
pub(crate) fn corners(
    image: &[f32],
    base: usize,
    size: &Extent,
    at: &Sample,
    wx: &Pair,
    wy: &Pair,
    wz: &Pair,
) -> f32 {
    let low = wy.low * row(image, base, size, &at.x, at.y.low, at.z.low, wx)
        + wy.high * row(image, base, size, &at.x, at.y.high, at.z.low, wx);
    let high = wy.low * row(image, base, size, &at.x, at.y.low, at.z.high, wx)
        + wy.high * row(image, base, size, &at.x, at.y.high, at.z.high, wx);
    wz.low * low + wz.high * high
}

/// `grad I` at a sample, in image voxels.
#[cube]
pub(crate) fn gradient(image: &[f32], base: usize, size: &Extent, at: &Sample) -> Point {
    let (wx, wy, wz) = (weights(&at.x), weights(&at.y), weights(&at.z));
    Point {
        x: corners(image, base, size, at, &slopes(&at.x), &wy, &wz),
        y: corners(image, base, size, at, &wx, &slopes(&at.y), &wz),
        z: corners(image, base, size, at, &wx, &wy, &slopes(&at.z)),
    }
}

/// The image index of an output voxel: `A p + t + S u(p)`.
#[cube]
fn sampled_index(
    affine: &[f32],
    displacement: &[f32],
    space: &Space,
    at: &Voxel,
    #[comptime] has_displacement: bool,
) -> Point {
    let a = (at.n * space.affine_stride) as usize;
    let (px, py, pz) = (f32::cast_from(at.x), f32::cast_from(at.y), f32::cast_from(at.z));
    let mut x = affine[a] * px + affine[a + 1] * py + affine[a + 2] * pz + affine[a + 3];
    let mut y = affine[a + 4] * px + affine[a + 5] * py + affine[a + 6] * pz + affine[a + 7];
    let mut z = affine[a + 8] * px + affine[a + 9] * py + affine[a + 10] * pz + affine[a + 11];
    if has_displacement {
        let len = len(&space.output);
        let voxel = at.n as usize * 3 * len + offset(at, &space.output);
        let (ux, uy, uz) =
            (displacement[voxel], displacement[voxel + len], displacement[voxel + 2 * len]);
        let s = &space.scale;
        x += s.xx * ux + s.xy * uy + s.xz * uz;
        y += s.yx * ux + s.yy * uy + s.yz * uz;
        z += s.zx * ux + s.zy * uy + s.zz * uz;
    }
    Point { x, y, z }
}

#[cube]
fn sample(
    affine: &[f32],
    displacement: &[f32],
    space: &Space,
    at: &Voxel,
    #[comptime] plan: Plan,
) -> Sample {
    let index = sampled_index(affine, displacement, space, at, comptime!(plan.has_displacement));
    let interpolation = comptime!(plan.interpolation);
    let padding = comptime!(plan.padding);
    Sample {
        x: tap(index.x, space.input.w, interpolation, padding),
        y: tap(index.y, space.input.h, interpolation, padding),
        z: tap(index.z, space.input.d, interpolation, padding),
    }
}

/// `sum_c g_c grad I_c` at an output voxel, in image voxels.
#[cube]
fn index_gradient(
    image: &[f32],
    grad: &[f32],
    space: &Space,
    at: &Voxel,
    sample: &Sample,
) -> Point {
    let (image_len, output_len) = (len(&space.input), len(&space.output));
    let voxel = offset(at, &space.output);
    let first = at.n as usize * space.channels as usize;
    let mut sum = Point { x: 0.0f32, y: 0.0f32, z: 0.0f32 };
    for c in 0..space.channels {
        let channel = first + c as usize;
        let g = grad[channel * output_len + voxel];
        let slope = gradient(image, channel * image_len, &space.input, sample);
        sum.x += g * slope.x;
        sum.y += g * slope.y;
        sum.z += g * slope.z;
    }
    sum
}

/// What is fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    interpolation: Interpolation,
    padding: Padding,
    has_displacement: bool,
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_kernel(
    image: &[f32],
    affine: &[f32],
    displacement: &[f32],
    output: &mut [f32],
    space: Space,
    #[comptime] plan: Plan,
) {
    let at = voxel_of_unit(&space.output);
    if !inside(&at, &space.output) {
        terminate!();
    }
    let s = sample(affine, displacement, &space, &at, plan);
    let (image_len, output_len) = (len(&space.input), len(&space.output));
    for c in 0..space.channels {
        let channel = at.n as usize * space.channels as usize + c as usize;
        output[channel * output_len + offset(&at, &space.output)] = corners(
            image,
            channel * image_len,
            &space.input,
            &s,
            &weights(&s.x),
            &weights(&s.y),
            &weights(&s.z),
        );
    }
}

/// `dL/du = S^T g grad I`: each voxel owns its gradient, so no atomics.
#[cube(launch_unchecked, address_type = "dynamic")]
fn to_displacement_kernel(
    image: &[f32],
    affine: &[f32],
    displacement: &[f32],
    grad: &[f32],
    output: &mut [f32],
    space: Space,
    #[comptime] plan: Plan,
) {
    let at = voxel_of_unit(&space.output);
    if !inside(&at, &space.output) {
        terminate!();
    }
    let taken = sample(affine, displacement, &space, &at, plan);
    let g = index_gradient(image, grad, &space, &at, &taken);
    let s = &space.scale;
    let len = len(&space.output);
    let voxel = at.n as usize * 3 * len + offset(&at, &space.output);
    output[voxel] = s.xx * g.x + s.yx * g.y + s.zx * g.z;
    output[voxel + len] = s.xy * g.x + s.yy * g.y + s.zy * g.z;
    output[voxel + 2 * len] = s.xz * g.x + s.yz * g.y + s.zz * g.z;
}

/// `dL/dI`: every output voxel adds `g` to its eight corners.
#[cube(launch_unchecked, address_type = "dynamic")]
fn to_image_kernel(
    affine: &[f32],
    displacement: &[f32],
    grad: &[f32],
    output: &[Atomic<f32>],
    space: Space,
    #[comptime] plan: Plan,
) {
    let at = voxel_of_unit(&space.output);
    if !inside(&at, &space.output) {
        terminate!();
    }
    let s = sample(affine, displacement, &space, &at, plan);
    let (image_len, output_len) = (len(&space.input), len(&space.output));
    for c in 0..space.channels {
        let channel = at.n as usize * space.channels as usize + c as usize;
        let g = grad[channel * output_len + offset(&at, &space.output)];
        add_to_corners(output, channel * image_len, &space.input, &s, g);
    }
}

/// Adds `g`, weighted, to the eight corners of a sample.
#[cube]
pub(crate) fn add_to_corners(
    output: &[Atomic<f32>],
    base: usize,
    size: &Extent,
    at: &Sample,
    g: f32,
) {
    #[unroll]
    for corner in 0..8u32 {
        let (x, wx) = chosen(&at.x, comptime!(corner & 1 == 0));
        let (y, wy) = chosen(&at.y, comptime!(corner & 2 == 0));
        let (z, wz) = chosen(&at.z, comptime!(corner & 4 == 0));
        let weight = wx * wy * wz;
        if weight != 0.0 {
            let row = (z as usize * size.h as usize + y as usize) * size.w as usize;
            output[base + row + x as usize].fetch_add(g * weight);
        }
    }
}

/// The lower or the upper voxel of a tap, with its weight.
#[cube]
fn chosen(tap: &Tap, #[comptime] low: bool) -> (u32, f32) {
    if low { (tap.low, tap.weight_low) } else { (tap.high, tap.weight_high) }
}

/// `dL/d[A|t]`, one partial sum a cube: `partials[n, entry, cube]`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn to_affine_kernel(
    image: &[f32],
    affine: &[f32],
    displacement: &[f32],
    grad: &[f32],
    partials: &mut [f32],
    space: Space,
    batch: u32,
    #[comptime] plan: Plan,
) {
    let slab = CUBE_DIM_Z * SLICES;
    let slabs = space.output.d.div_ceil(slab);
    let n = CUBE_POS_Z / slabs;
    let mut sums = Array::<f32>::new(12usize);
    #[unroll]
    for entry in 0..12usize {
        sums[entry] = 0.0;
    }
    for step in 0..SLICES {
        let z = (CUBE_POS_Z % slabs) * slab + step * CUBE_DIM_Z + UNIT_POS_Z;
        let at = Voxel { n, x: ABSOLUTE_POS_X, y: ABSOLUTE_POS_Y, z };
        if inside(&at, &space.output) {
            let taken = sample(affine, displacement, &space, &at, plan);
            let g = index_gradient(image, grad, &space, &at, &taken);
            let (px, py, pz) = (f32::cast_from(at.x), f32::cast_from(at.y), f32::cast_from(at.z));
            add_outer(&mut sums, 0usize, g.x, px, py, pz);
            add_outer(&mut sums, 4usize, g.y, px, py, pz);
            add_outer(&mut sums, 8usize, g.z, px, py, pz);
        }
    }
    // Where the cube's sums go: the batch entries of one affine map share a row.
    let cubes_per_volume = CUBE_COUNT_X * CUBE_COUNT_Y * slabs;
    let cube = (CUBE_POS_Z % slabs * CUBE_COUNT_Y + CUBE_POS_Y) * CUBE_COUNT_X + CUBE_POS_X;
    let shared = space.affine_stride == 0;
    let first_row = select(shared, 0u32, n * 12);
    let column = select(shared, n * cubes_per_volume + cube, cube) as usize;
    let columns = select(shared, batch * cubes_per_volume, cubes_per_volume) as usize;
    for entry in 0..12usize {
        let total = sum_over_cube(sums[entry]);
        if UNIT_POS == 0 {
            partials[(first_row as usize + entry) * columns + column] = total;
        }
    }
}

/// Adds `g [x y z 1]` to one row of the matrix.
#[cube]
fn add_outer(sums: &mut Array<f32>, #[comptime] row: usize, g: f32, x: f32, y: f32, z: f32) {
    sums[row] += g * x;
    sums[comptime!(row + 1)] += g * y;
    sums[comptime!(row + 2)] += g * z;
    sums[comptime!(row + 3)] += g;
}

fn matrix(rows: [[f64; 3]; 3]) -> MatrixLaunch {
    let [x, y, z] = rows.map(|row| row.map(|entry| entry as f32));
    MatrixLaunch::new(x[0], x[1], x[2], y[0], y[1], y[2], z[0], z[1], z[2])
}

/// A call, with its operands made contiguous.
struct Call {
    image: CubeTensor,
    affine: CubeTensor,
    displacement: CubeTensor,
    sampling: Sampling,
}

impl Call {
    fn new(
        image: CubeTensor,
        affine: CubeTensor,
        displacement: CubeTensor,
        sampling: Sampling,
    ) -> Self {
        assert_f32("grid_sample", &[&image, &affine, &displacement]);
        let [image, affine, displacement] = [image, affine, displacement].map(into_contiguous);
        Self { image, affine, displacement, sampling }
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
        let Sampling { interpolation, padding, has_displacement, .. } = self.sampling;
        Plan { interpolation, padding, has_displacement }
    }

    fn cubes(&self) -> CubeCount {
        cubes("grid_sample", self.batch(), self.sampling.size)
    }

    fn forward(self) -> CubeTensor {
        let output = empty(&self.image, self.sampling.output_shape(self.image.meta.shape()));
        unsafe {
            forward_kernel::launch_unchecked(
                &self.image.client,
                self.cubes(),
                CUBE.into(),
                address(&[&self.image, &self.displacement, &output]),
                buffer(&self.image),
                buffer(&self.affine),
                buffer(&self.displacement),
                buffer(&output),
                self.space(),
                self.plan(),
            );
        }
        output
    }

    fn to_displacement(&self, grad: &CubeTensor) -> CubeTensor {
        let output = empty(&self.image, self.displacement.meta.shape().clone());
        unsafe {
            to_displacement_kernel::launch_unchecked(
                &self.image.client,
                self.cubes(),
                CUBE.into(),
                address(&[&self.image, grad, &output]),
                buffer(&self.image),
                buffer(&self.affine),
                buffer(&self.displacement),
                buffer(grad),
                buffer(&output),
                self.space(),
                self.plan(),
            );
        }
        output
    }

    fn to_image(&self, grad: &CubeTensor) -> CubeTensor {
        let client = &self.image.client;
        assert_atomic_add("grid_sample", "image", client);
        let output = zeros(&self.image, self.image.meta.shape().clone());
        unsafe {
            to_image_kernel::launch_unchecked(
                client,
                self.cubes(),
                CUBE.into(),
                address(&[&output, &self.displacement, grad]),
                buffer(&self.affine),
                buffer(&self.displacement),
                buffer(grad),
                buffer(&output),
                self.space(),
                self.plan(),
            );
        }
        output
    }

    fn to_affine(&self, grad: &CubeTensor) -> CubeTensor {
        let [d, h, w] = self.sampling.size;
        let count = cubes("grid_sample", self.batch(), [d.div_ceil(SLICES as usize), h, w]);
        let CubeCount::Static(x, y, z) = count.clone() else {
            unreachable!("`cubes` counts on the host")
        };
        let maps = self.affine.meta.shape()[0];
        let columns = (x * y) as usize * z as usize / maps;
        let partials = empty(&self.image, [maps * 12, columns]);
        unsafe {
            to_affine_kernel::launch_unchecked(
                &self.image.client,
                count,
                CUBE.into(),
                address(&[&self.image, &self.displacement, grad]),
                buffer(&self.image),
                buffer(&self.affine),
                buffer(&self.displacement),
                buffer(grad),
                buffer(&partials),
                self.space(),
                self.batch() as u32,
                self.plan(),
            );
        }
        let mut sums = sum_rows(&partials, maps * 12, columns, 1.0);
        sums.meta = self.affine.meta.clone();
        sums
    }
}

impl GridSampleOps for CubeBackend {
    fn grid_sample_3d(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        sampling: Sampling,
    ) -> FloatTensor<Self> {
        Call::new(image, affine, displacement, sampling).forward()
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
        let call = Call::new(image, affine, displacement, sampling);
        let placeholder = || zeros(&grad, [1]);
        (
            if needs[0] { call.to_image(&grad) } else { placeholder() },
            if needs[1] { call.to_affine(&grad) } else { placeholder() },
            if needs[2] { call.to_displacement(&grad) } else { placeholder() },
        )
    }
}
