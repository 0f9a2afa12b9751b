//! The normalisation on the GPU: the moments of pieces, merged; the result; backward likewise.
//!
//! Moments are merged by Chan's formula: a cube sums differences from a voxel of its own piece, then
//! the means and variances of the pieces are put together. An offset of a channel costs no digits.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::part::InstanceNormPartOps;
use super::{InstanceNormOps, InstanceNormOptions};
use ffdp_kit::cubes::{cubes_in_lines, launched};
use ffdp_kit::launch::{
    UNITS, address, assert_f32, buffer, empty, sum_in_tree, sum_over_cube, sum_rows,
};

/// Vectors of a piece, at least: 8 for each unit, so that sums in the cube are a small part.
const LEAST: usize = 8 * UNITS as usize;
/// Pieces of a channel, at most.
const MOST_PIECES: usize = 512;

/// How the vectors of the channels are dealt to cubes: cube x a piece, cube y and z a row.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Plan {
    /// Channels of all samples.
    rows: u32,
    /// Vectors of a row.
    len: u32,
    /// Vectors of a piece.
    piece: u32,
}

/// The row of this cube; may lie beyond the last.
#[cube]
fn own_row() -> u32 {
    CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y
}

/// The sum of a vector's lanes.
#[cube]
fn across<N: Size>(vector: Vector<f32, N>, #[comptime] lanes: u32) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for i in 0..lanes {
        sum += vector.extract(i as usize);
    }
    sum
}

/// Means and variances of the pieces, `moments[2][row][piece]`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn moments_kernel<N: Size>(
    x: &[Vector<f32, N>],
    moments: &mut [f32],
    plan: Plan,
    #[comptime] lanes: u32,
) {
    let row = own_row();
    if row >= plan.rows {
        terminate!();
    }
    let start = row as usize * plan.len as usize;
    let first = CUBE_POS_X * plan.piece;
    let stop = min(first + plan.piece, plan.len);
    let pivot = x[start + first as usize].extract(0usize);
    let mut sum = Vector::<f32, N>::new(0.0f32);
    let mut squares = Vector::<f32, N>::new(0.0f32);
    let mut i = first + UNIT_POS;
    while i < stop {
        let d = x[start + i as usize] - Vector::<f32, N>::new(pivot);
        sum += d;
        squares += d * d;
        i += UNITS;
    }
    let mut tree = Shared::<[f32]>::new_slice(256usize);
    let sum = sum_in_tree(&mut tree, across(sum, lanes));
    let squares = sum_in_tree(&mut tree, across(squares, lanes));
    if UNIT_POS == 0 {
        let count = f32::cast_from((stop - first) * lanes);
        let shift = sum / count;
        let at = row as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize;
        moments[at] = pivot + shift;
        let variances = plan.rows as usize * CUBE_COUNT_X as usize;
        moments[variances + at] = max(squares / count - shift * shift, 0.0f32);
    }
}

/// What [`merge_kernel`] writes behind the means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Second {
    /// `1 / sqrt(v + eps)`.
    Scale,
    /// `v`.
    Variance,
}

/// `pair[0][row]`, the mean, and `pair[1][row] = 1 / sqrt(v + eps)` or the variance itself, a cube a row.
#[cube(launch_unchecked, address_type = "dynamic")]
fn merge_kernel(
    moments: &[f32],
    pair: &mut [f32],
    plan: Plan,
    pieces: u32,
    epsilon: f32,
    #[comptime] second: Second,
) {
    let row = own_row();
    if row >= plan.rows {
        terminate!();
    }
    let start = row as usize * pieces as usize;
    let variances = (plan.rows as usize + row as usize) * pieces as usize;
    let total = f32::cast_from(plan.len);
    let mut sum = 0.0f32;
    let mut i = UNIT_POS;
    while i < pieces {
        let share = f32::cast_from(min(plan.piece, plan.len - i * plan.piece)) / total;
        sum += share * moments[start + i as usize];
        i += UNITS;
    }
    let mean = sum_over_cube(sum);
    sum = 0.0f32;
    i = UNIT_POS;
    while i < pieces {
        let share = f32::cast_from(min(plan.piece, plan.len - i * plan.piece)) / total;
        let d = moments[start + i as usize] - mean;
        sum += share * (moments[variances + i as usize] + d * d);
        i += UNITS;
    }
    let variance = sum_over_cube(sum);
    if UNIT_POS == 0 {
        pair[row as usize] = mean;
        pair[(plan.rows + row) as usize] = match comptime!(second) {
            Second::Scale => 1.0f32 / (variance + epsilon).sqrt(),
            Second::Variance => variance,
        };
    }
}

/// `scaling[2][row]` of a volume whose parts have `moments[part][2][row]` and `shares[part]` of its voxels.
#[cube(launch_unchecked, address_type = "dynamic")]
fn scaling_kernel(
    moments: &[f32],
    shares: &[f32],
    scaling: &mut [f32],
    rows: u32,
    parts: u32,
    epsilon: f32,
) {
    let row = ABSOLUTE_POS as u32;
    if row >= rows {
        terminate!();
    }
    let mut mean = 0.0f32;
    for k in 0..parts {
        mean += shares[k as usize] * moments[(2 * k * rows + row) as usize];
    }
    let mut variance = 0.0f32;
    for k in 0..parts {
        let d = moments[(2 * k * rows + row) as usize] - mean;
        variance += shares[k as usize] * (moments[((2 * k + 1) * rows + row) as usize] + d * d);
    }
    scaling[row as usize] = mean;
    scaling[(rows + row) as usize] = 1.0f32 / (variance + epsilon).sqrt();
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn apply_kernel<N: Size>(
    x: &[Vector<f32, N>],
    scaling: &[f32],
    y: &mut [Vector<f32, N>],
    plan: Plan,
    slope: f32,
    #[comptime] lanes: u32,
) {
    let row = own_row();
    if row >= plan.rows {
        terminate!();
    }
    let start = row as usize * plan.len as usize;
    let (mean, scale) = (scaling[row as usize], scaling[(plan.rows + row) as usize]);
    let stop = min((CUBE_POS_X + 1) * plan.piece, plan.len);
    let mut i = CUBE_POS_X * plan.piece + UNIT_POS;
    while i < stop {
        let values = x[start + i as usize];
        let mut result = Vector::<f32, N>::empty();
        #[unroll]
        for k in 0..lanes {
            let n = (values.extract(k as usize) - mean) * scale;
            result.insert(k as usize, select(n > 0.0f32, n, slope * n));
        }
        y[start + i as usize] = result;
        i += UNITS;
    }
}

/// `sums[0][row][piece]` of `h` and `sums[1][row][piece]` of `h n`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn products_kernel<N: Size>(
    y: &[Vector<f32, N>],
    grad: &[Vector<f32, N>],
    sums: &mut [f32],
    plan: Plan,
    slope: f32,
    #[comptime] lanes: u32,
) {
    let row = own_row();
    if row >= plan.rows {
        terminate!();
    }
    let start = row as usize * plan.len as usize;
    let stop = min((CUBE_POS_X + 1) * plan.piece, plan.len);
    let mut sum = Vector::<f32, N>::new(0.0f32);
    let mut products = Vector::<f32, N>::new(0.0f32);
    let mut i = CUBE_POS_X * plan.piece + UNIT_POS;
    while i < stop {
        let (values, grads) = (y[start + i as usize], grad[start + i as usize]);
        // h n = (dL/dy slope) (y / slope) below zero.
        products += grads * values;
        let mut h = Vector::<f32, N>::empty();
        #[unroll]
        for k in 0..lanes {
            let g = grads.extract(k as usize);
            h.insert(k as usize, select(values.extract(k as usize) > 0.0f32, g, slope * g));
        }
        sum += h;
        i += UNITS;
    }
    let mut tree = Shared::<[f32]>::new_slice(256usize);
    let sum = sum_in_tree(&mut tree, across(sum, lanes));
    let products = sum_in_tree(&mut tree, across(products, lanes));
    if UNIT_POS == 0 {
        let at = row as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize;
        sums[at] = sum;
        sums[plan.rows as usize * CUBE_COUNT_X as usize + at] = products;
    }
}

/// `dL/dx` from `means[0][row]` of `h` and `means[1][row]` of `h n`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn backward_kernel<N: Size>(
    y: &[Vector<f32, N>],
    grad: &[Vector<f32, N>],
    scaling: &[f32],
    means: &[f32],
    to_x: &mut [Vector<f32, N>],
    plan: Plan,
    slope: f32,
    inverse_slope: f32,
    #[comptime] lanes: u32,
) {
    let row = own_row();
    if row >= plan.rows {
        terminate!();
    }
    let start = row as usize * plan.len as usize;
    let scale = scaling[(plan.rows + row) as usize];
    let (mean_h, mean_hn) = (means[row as usize], means[(plan.rows + row) as usize]);
    let stop = min((CUBE_POS_X + 1) * plan.piece, plan.len);
    let mut i = CUBE_POS_X * plan.piece + UNIT_POS;
    while i < stop {
        let (values, grads) = (y[start + i as usize], grad[start + i as usize]);
        let mut result = Vector::<f32, N>::empty();
        #[unroll]
        for k in 0..lanes {
            let (v, g) = (values.extract(k as usize), grads.extract(k as usize));
            let above = v > 0.0f32;
            let n = select(above, v, inverse_slope * v);
            let h = select(above, g, slope * g);
            result.insert(k as usize, scale * (h - mean_h - n * mean_hn));
        }
        to_x[start + i as usize] = result;
        i += UNITS;
    }
}

/// The launch of kernels over a volume.
struct Grid {
    rows: usize,
    len: usize,
    piece: usize,
    pieces: usize,
    lanes: usize,
}

impl Grid {
    fn of(x: &CubeTensor) -> Self {
        let shape = x.meta.shape();
        let rows = shape[0] * shape[1];
        let voxels = shape.num_elements() / rows;
        let lanes = if voxels.is_multiple_of(4) { 4 } else { 1 };
        let len = voxels / lanes;
        let piece = len.div_ceil(MOST_PIECES).max(LEAST).next_multiple_of(UNITS as usize).min(len);
        assert!(
            voxels <= u32::MAX as usize,
            "instance_norm: {voxels} voxels a channel, more than 2^32 - 1"
        );
        Self { rows, len, piece, pieces: len.div_ceil(piece), lanes }
    }

    fn plan(&self) -> PlanLaunch {
        PlanLaunch::new(self.rows as u32, self.len as u32, self.piece as u32)
    }

    /// A cube a piece, or one a row.
    fn cubes(&self, a_row: usize) -> CubeCount {
        let [y, z] = cubes_in_lines(self.rows);
        launched([a_row as u32, y, z])
    }
}

/// Means and scales (or variances) of all rows, `[2, rows]`.
fn merged(x: &CubeTensor, grid: &Grid, epsilon: f64, second: Second) -> CubeTensor {
    let moments = empty(x, [2 * grid.rows * grid.pieces]);
    let pair = empty(x, [2, grid.rows]);
    let (client, dim, width) = (&x.client, CubeDim::new_1d(UNITS), address(&[x, &moments]));
    unsafe {
        moments_kernel::launch_unchecked(
            client,
            grid.cubes(grid.pieces),
            dim,
            width,
            grid.lanes,
            buffer(x),
            buffer(&moments),
            grid.plan(),
            grid.lanes as u32,
        );
        merge_kernel::launch_unchecked(
            client,
            grid.cubes(1),
            dim,
            width,
            buffer(&moments),
            buffer(&pair),
            grid.plan(),
            grid.pieces as u32,
            epsilon as f32,
            second,
        );
    }
    pair
}

fn applied(
    x: &CubeTensor,
    grid: &Grid,
    scaling: &CubeTensor,
    o: InstanceNormOptions,
) -> CubeTensor {
    let y = empty(x, x.meta.shape().clone());
    unsafe {
        apply_kernel::launch_unchecked(
            &x.client,
            grid.cubes(grid.pieces),
            CubeDim::new_1d(UNITS),
            address(&[x]),
            grid.lanes,
            buffer(x),
            buffer(scaling),
            buffer(&y),
            grid.plan(),
            o.slope as f32,
            grid.lanes as u32,
        );
    }
    y
}

fn forward(x: CubeTensor, o: InstanceNormOptions) -> (CubeTensor, CubeTensor) {
    let x = into_contiguous(x);
    let grid = Grid::of(&x);
    let scaling = merged(&x, &grid, o.epsilon, Second::Scale);
    (applied(&x, &grid, &scaling, o), scaling)
}

/// The sums of `h` and of `h n` of all rows, times `factor`, `[2 rows]`.
fn summed(
    [y, grad]: [&CubeTensor; 2],
    grid: &Grid,
    o: InstanceNormOptions,
    factor: f32,
) -> CubeTensor {
    let sums = empty(y, [2 * grid.rows * grid.pieces]);
    unsafe {
        products_kernel::launch_unchecked(
            &y.client,
            grid.cubes(grid.pieces),
            CubeDim::new_1d(UNITS),
            address(&[y, &sums]),
            grid.lanes,
            buffer(y),
            buffer(grad),
            buffer(&sums),
            grid.plan(),
            o.slope as f32,
            grid.lanes as u32,
        );
    }
    sum_rows(&sums, 2 * grid.rows, grid.pieces, factor)
}

fn finished(
    [y, grad]: [&CubeTensor; 2],
    grid: &Grid,
    [scaling, means]: [&CubeTensor; 2],
    o: InstanceNormOptions,
) -> CubeTensor {
    let to_x = empty(y, y.meta.shape().clone());
    unsafe {
        backward_kernel::launch_unchecked(
            &y.client,
            grid.cubes(grid.pieces),
            CubeDim::new_1d(UNITS),
            address(&[y]),
            grid.lanes,
            buffer(y),
            buffer(grad),
            buffer(scaling),
            buffer(means),
            buffer(&to_x),
            grid.plan(),
            o.slope as f32,
            (1.0 / o.slope) as f32,
            grid.lanes as u32,
        );
    }
    to_x
}

fn backward(
    y: CubeTensor,
    scaling: CubeTensor,
    grad: CubeTensor,
    o: InstanceNormOptions,
) -> CubeTensor {
    let (y, grad) = (into_contiguous(y), into_contiguous(grad));
    let grid = Grid::of(&y);
    let means = summed([&y, &grad], &grid, o, 1.0 / (grid.len * grid.lanes) as f32);
    finished([&y, &grad], &grid, [&scaling, &means], o)
}

/// A contiguous tensor seen in another shape.
fn shaped(x: CubeTensor, shape: [usize; 2]) -> CubeTensor {
    CubeTensor::new_contiguous(x.client, x.device, shape.into(), x.handle, x.dtype)
}

impl InstanceNormPartOps for CubeBackend {
    fn instance_moments_3d(x: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("instance_norm", &[&x]);
        let x = into_contiguous(x);
        let grid = Grid::of(&x);
        merged(&x, &grid, 0.0, Second::Variance)
    }

    fn instance_scaling_3d(
        moments: FloatTensor<Self>,
        shares: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        assert_f32("instance_norm", &[&moments, &shares]);
        let (moments, shares) = (into_contiguous(moments), into_contiguous(shares));
        let [parts, _, rows] = moments.meta.shape().dims();
        let scaling = empty(&moments, [2, rows]);
        let cubes = CubeCount::Static((rows as u32).div_ceil(UNITS), 1, 1);
        unsafe {
            scaling_kernel::launch_unchecked(
                &moments.client,
                cubes,
                CubeDim::new_1d(UNITS),
                address(&[&moments]),
                buffer(&moments),
                buffer(&shares),
                buffer(&scaling),
                rows as u32,
                parts as u32,
                epsilon as f32,
            );
        }
        scaling
    }

    fn instance_apply_3d(
        x: FloatTensor<Self>,
        scaling: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self> {
        assert_f32("instance_norm", &[&x, &scaling]);
        let x = into_contiguous(x);
        applied(&x, &Grid::of(&x), &into_contiguous(scaling), options)
    }

    fn instance_sums_3d(
        y: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self> {
        assert_f32("instance_norm", &[&y, &grad]);
        let (y, grad) = (into_contiguous(y), into_contiguous(grad));
        let grid = Grid::of(&y);
        shaped(summed([&y, &grad], &grid, options, 1.0), [2, grid.rows])
    }

    fn instance_finish_3d(
        y: FloatTensor<Self>,
        scaling: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        means: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self> {
        assert_f32("instance_norm", &[&y, &scaling, &grad, &means]);
        let [y, grad] = [y, grad].map(into_contiguous);
        let [scaling, means] = [scaling, means].map(into_contiguous);
        finished([&y, &grad], &Grid::of(&y), [&scaling, &means], options)
    }
}

impl InstanceNormOps for CubeBackend {
    fn instance_norm_3d(x: FloatTensor<Self>, options: InstanceNormOptions) -> FloatTensor<Self> {
        Self::instance_norm_3d_with_scaling(x, options).0
    }

    fn instance_norm_3d_with_scaling(
        x: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("instance_norm", &[&x]);
        forward(x, options)
    }

    fn instance_norm_3d_backward(
        y: FloatTensor<Self>,
        scaling: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self> {
        assert_f32("instance_norm", &[&y, &scaling, &grad]);
        backward(y, scaling, grad, options)
    }
}
