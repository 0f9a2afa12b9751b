//! The label sums on the GPU: a table of whole numbers a cube, in shared memory.
//!
//! A unit walks up a column of voxels. As long as it sees one label all around it adds in registers;
//! only at the borders of labels, and when the label changes, it adds to the shared table. So the
//! units of a warp, which mostly see the same label, do not queue for one entry.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::settings::Dim3;
use cubecl::prelude::*;

use super::{Denominator, LabelDiceOps, LabelTable};
use crate::ops::grid_sample::cube::{Sample, Tap, Voxel, inside, len, offset, tap, voxel_of_unit};
use crate::ops::grid_sample::{Interpolation, Padding};
use crate::ops::launch::{
    CUBE, Extent, UNITS, address, assert_f32, buffer, cubes, empty, extent, sum_rows,
};

const TILE: Dim3 = Dim3::new_2d(32, 8);

/// Voxels that a unit walks up.
const COLUMN: u32 = 32;

/// One, in fixed point: 32 x 256 memberships of up to one add up to 2^31 in a cube.
const ONE: f32 = 262_144.0;

/// What is fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    labels: u32,
    denominator: Denominator,
}

/// The extents of fixed (and displacement) and of moving.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Sizes {
    output: Extent,
    input: Extent,
}

/// The column of a label in the table of sums, or the number of labels where it does not count.
/// `ids` holds the ascending ids, then their columns.
#[cube]
fn column_of(ids: &[i32], label: i32, #[comptime] labels: u32) -> u32 {
    let mut low = 0u32;
    let mut high = labels.runtime();
    while low < high {
        let middle = (low + high) / 2;
        if ids[middle as usize] < label {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let mut column = labels.runtime();
    if low < labels && ids[low as usize] == label {
        column = u32::cast_from(ids[(labels + low) as usize]);
    }
    column
}

#[cube]
fn fixed_point(value: f32) -> u32 {
    u32::cast_from(value * ONE + 0.5)
}

/// Where a voxel samples the moving labels.
#[cube]
fn sample(displacement: &[f32], at: &Voxel, sizes: &Sizes) -> Sample {
    let len = len(&sizes.output);
    let voxel = at.n as usize * 3 * len + offset(at, &sizes.output);
    let x = f32::cast_from(at.x) + displacement[voxel];
    let y = f32::cast_from(at.y) + displacement[voxel + len];
    let z = f32::cast_from(at.z) + displacement[voxel + 2 * len];
    Sample {
        x: tap(x, sizes.input.w, Interpolation::Linear, Padding::Zeros),
        y: tap(y, sizes.input.h, Interpolation::Linear, Padding::Zeros),
        z: tap(z, sizes.input.d, Interpolation::Linear, Padding::Zeros),
    }
}

/// One voxel of a tap.
#[derive(CubeType, Clone, Copy)]
struct Side {
    index: u32,
    weight: f32,
    slope: f32,
}

#[cube]
fn side(tap: &Tap, #[comptime] low: bool) -> Side {
    if low {
        Side { index: tap.low, weight: tap.weight_low, slope: tap.slope_low }
    } else {
        Side { index: tap.high, weight: tap.weight_high, slope: tap.slope_high }
    }
}

/// Reads the labels and weights of the eight corners; returns how many differ from the first.
#[cube]
fn read_corners(
    moving: &[i32],
    base: usize,
    size: &Extent,
    at: &Sample,
    labels: &mut Array<i32>,
    weights: &mut Array<f32>,
) -> u32 {
    let mut differing = 0u32;
    #[unroll]
    for corner in 0..8u32 {
        let x = side(&at.x, comptime!(corner & 1 == 0));
        let y = side(&at.y, comptime!(corner & 2 == 0));
        let z = side(&at.z, comptime!(corner & 4 == 0));
        let row = (z.index as usize * size.h as usize + y.index as usize) * size.w as usize;
        let label = moving[base + row + x.index as usize];
        labels[corner as usize] = label;
        weights[corner as usize] = x.weight * y.weight * z.weight;
        differing += select(label != labels[0], 1u32, 0u32);
    }
    differing
}

/// The membership of the label of a corner, and how many earlier corners have the label too.
#[cube]
fn membership(labels: &Array<i32>, weights: &Array<f32>, #[comptime] corner: u32) -> (f32, u32) {
    let label = labels[corner as usize];
    let mut a = 0.0f32;
    let mut earlier = 0u32;
    #[unroll]
    for other in 0..8u32 {
        let same = labels[other as usize] == label;
        a += select(same, weights[other as usize], 0.0f32);
        if comptime!(other < corner) {
            earlier += select(same, 1u32, 0u32);
        }
    }
    (a, earlier)
}

/// What a membership adds to `A`.
#[cube]
fn size_of(a: f32, #[comptime] denominator: Denominator) -> f32 {
    if comptime!(denominator == Denominator::Squared) { a * a } else { a }
}

/// `partials[n, (I, A, B), k, cube]`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn sums_kernel(
    displacement: &[f32],
    moving: &[i32],
    fixed: &[i32],
    ids: &[i32],
    partials: &mut [f32],
    sizes: Sizes,
    #[comptime] plan: Plan,
) {
    let count = comptime!(plan.labels);
    let table = Shared::<[Atomic<u32>]>::new_slice(comptime!(3 * count as usize));
    let mut entry = UNIT_POS;
    while entry < 3 * count {
        table[entry as usize].store(0u32);
        entry += UNITS;
    }
    sync_cube();

    let slabs = sizes.output.d.div_ceil(COLUMN);
    let n = CUBE_POS_Z / slabs;
    let slab = CUBE_POS_Z % slabs;
    let stop = min((slab + 1) * COLUMN, sizes.output.d);
    let moving_base = n as usize * len(&sizes.input);
    let fixed_base = n as usize * len(&sizes.output);
    // The labels seen last, their columns, and what was added since.
    let mut fixed_label = 0i32;
    let mut fixed_column = column_of(ids, 0i32, count);
    let mut moving_label = 0i32;
    let mut moving_column = fixed_column;
    let mut both = 0u32;
    let mut moved = 0u32;
    let mut still = 0u32;
    let mut labels = Array::<i32>::new(8usize);
    let mut weights = Array::<f32>::new(8usize);
    let mut z = slab * COLUMN;
    while z < stop {
        let at = Voxel { n, x: ABSOLUTE_POS_X, y: ABSOLUTE_POS_Y, z };
        if inside(&at, &sizes.output) {
            let here = fixed[fixed_base + offset(&at, &sizes.output)];
            if here != fixed_label {
                if fixed_column < count {
                    table[(2 * count + fixed_column) as usize].fetch_add(still);
                }
                still = 0u32;
                fixed_label = here;
                fixed_column = column_of(ids, here, count);
            }
            still += 1;
            let taken = sample(displacement, &at, &sizes);
            let differing =
                read_corners(moving, moving_base, &sizes.input, &taken, &mut labels, &mut weights);
            if differing == 0 {
                let label = labels[0];
                if label != moving_label {
                    if moving_column < count {
                        table[moving_column as usize].fetch_add(both);
                        table[(count + moving_column) as usize].fetch_add(moved);
                    }
                    both = 0u32;
                    moved = 0u32;
                    moving_label = label;
                    moving_column = column_of(ids, label, count);
                }
                let (a, _earlier) = membership(&labels, &weights, 0u32);
                moved += fixed_point(size_of(a, plan.denominator));
                both += select(label == here, fixed_point(a), 0u32);
            } else {
                #[unroll]
                for corner in 0..8u32 {
                    let (a, earlier) = membership(&labels, &weights, corner);
                    let label = labels[corner as usize];
                    if earlier == 0 {
                        let column = column_of(ids, label, count);
                        if column < count {
                            table[(count + column) as usize]
                                .fetch_add(fixed_point(size_of(a, plan.denominator)));
                            if label == here {
                                table[column as usize].fetch_add(fixed_point(a));
                            }
                        }
                    }
                }
            }
        }
        z += 1;
    }
    if moving_column < count {
        table[moving_column as usize].fetch_add(both);
        table[(count + moving_column) as usize].fetch_add(moved);
    }
    if fixed_column < count {
        table[(2 * count + fixed_column) as usize].fetch_add(still);
    }
    sync_cube();

    let cubes = (CUBE_COUNT_X * CUBE_COUNT_Y * slabs) as usize;
    let cube = (slab * CUBE_COUNT_Y + CUBE_POS_Y) * CUBE_COUNT_X + CUBE_POS_X;
    let mut entry = UNIT_POS;
    while entry < 3 * count {
        let sum = f32::cast_from(table[entry as usize].load());
        // Voxels of fixed labels are counted, memberships are in fixed point.
        let one = select(entry < 2 * count, ONE, 1.0f32);
        let row = (n * 3 * count + entry) as usize;
        partials[row * cubes + cube as usize] = sum / one;
        entry += UNITS;
    }
}

/// `dL/du`: each voxel owns its gradient, so no atomics.
#[cube(launch_unchecked, address_type = "dynamic")]
fn gradient_kernel(
    displacement: &[f32],
    moving: &[i32],
    fixed: &[i32],
    ids: &[i32],
    grad: &[f32],
    output: &mut [f32],
    sizes: Sizes,
    #[comptime] plan: Plan,
) {
    let at = voxel_of_unit(&sizes.output);
    if !inside(&at, &sizes.output) {
        terminate!();
    }
    let count = comptime!(plan.labels);
    let first = (at.n * 3 * count) as usize;
    let output_len = len(&sizes.output);
    let voxel = offset(&at, &sizes.output);
    let taken = sample(displacement, &at, &sizes);
    let mut labels = Array::<i32>::new(8usize);
    let mut weights = Array::<f32>::new(8usize);
    let differing = read_corners(
        moving,
        at.n as usize * len(&sizes.input),
        &sizes.input,
        &taken,
        &mut labels,
        &mut weights,
    );
    let mut gx = 0.0f32;
    let mut gy = 0.0f32;
    let mut gz = 0.0f32;
    // The slopes of one label all around cancel, except where corners lie outside.
    if differing > 0 || !all_inside(&taken) {
        let here = fixed[at.n as usize * output_len + voxel];
        #[unroll]
        for corner in 0..8u32 {
            let label = labels[corner as usize];
            let column = column_of(ids, label, count);
            if column < count {
                let (a, _earlier) = membership(&labels, &weights, corner);
                let mut slope = 1.0f32;
                if comptime!(plan.denominator == Denominator::Squared) {
                    slope = 2.0 * a;
                }
                let mut g = slope * grad[first + (count + column) as usize];
                if label == here {
                    g += grad[first + column as usize];
                }
                let x = side(&taken.x, comptime!(corner & 1 == 0));
                let y = side(&taken.y, comptime!(corner & 2 == 0));
                let z = side(&taken.z, comptime!(corner & 4 == 0));
                gx += g * (x.slope * y.weight * z.weight);
                gy += g * (x.weight * y.slope * z.weight);
                gz += g * (x.weight * y.weight * z.slope);
            }
        }
    }
    let start = at.n as usize * 3 * output_len + voxel;
    output[start] = gx;
    output[start + output_len] = gy;
    output[start + 2 * output_len] = gz;
}

/// Whether all eight corners lie inside: their slopes are whole.
#[cube]
fn all_inside(at: &Sample) -> bool {
    let x = at.x.slope_high - at.x.slope_low;
    let y = at.y.slope_high - at.y.slope_low;
    let z = at.z.slope_high - at.z.slope_low;
    x + y + z == 6.0
}

/// A call, with its operands made contiguous and the ids on the device.
struct Call {
    displacement: CubeTensor,
    moving: CubeTensor,
    fixed: CubeTensor,
    ids: CubeTensor,
    table: LabelTable,
}

impl Call {
    fn new(
        displacement: CubeTensor,
        moving: CubeTensor,
        fixed: CubeTensor,
        table: LabelTable,
    ) -> Self {
        assert_f32("label_dice", &[&displacement]);
        let [displacement, moving, fixed] = [displacement, moving, fixed].map(into_contiguous);
        let ids = table.columns.iter().map(|(id, _)| *id);
        let columns = table.columns.iter().map(|(_, column)| *column as i32);
        let values: Vec<i32> = ids.chain(columns).collect();
        let (client, device) = (displacement.client.clone(), displacement.device.clone());
        let handle = client.create_from_slice(i32::as_bytes(&values));
        let shape = [values.len()].into();
        let ids = CubeTensor::new_contiguous(client, device, shape, handle, moving.dtype);
        Self { displacement, moving, fixed, ids, table }
    }

    fn batch(&self) -> usize {
        self.displacement.meta.shape()[0]
    }

    fn size(&self) -> [usize; 3] {
        size(&self.displacement)
    }

    fn sizes(&self) -> SizesLaunch {
        SizesLaunch::new(extent(self.size()), extent(size(&self.moving)))
    }

    fn plan(&self) -> Plan {
        Plan { labels: self.table.len() as u32, denominator: self.table.denominator }
    }

    fn forward(self) -> CubeTensor {
        let (batch, [d, h, w]) = (self.batch(), self.size());
        let (x, y) = (w.div_ceil(TILE.x as usize), h.div_ceil(TILE.y as usize));
        let z = d.div_ceil(COLUMN as usize);
        assert!(
            x <= 65535 && y <= 65535 && batch * z <= 65535,
            "label_dice: {batch} volumes of {d}x{h}x{w} voxels need more than 65535 cubes along an \
             axis; split the batch"
        );
        let rows = batch * 3 * self.table.len();
        let partials = empty(&self.displacement, [rows * x * y * z]);
        unsafe {
            sums_kernel::launch_unchecked(
                &partials.client,
                CubeCount::Static(x as u32, y as u32, (batch * z) as u32),
                TILE.into(),
                address(&[&self.displacement, &self.moving, &partials]),
                buffer(&self.displacement),
                buffer(&self.moving),
                buffer(&self.fixed),
                buffer(&self.ids),
                buffer(&partials),
                self.sizes(),
                self.plan(),
            );
        }
        let CubeTensor { client, device, handle, dtype, .. } =
            sum_rows(&partials, rows, x * y * z, 1.0);
        let shape = self.table.sums_shape(self.displacement.meta.shape());
        CubeTensor::new_contiguous(client, device, shape, handle, dtype)
    }

    fn backward(self, grad: CubeTensor) -> CubeTensor {
        assert_f32("label_dice", &[&grad]);
        let grad = into_contiguous(grad);
        let output = empty(&self.displacement, self.displacement.meta.shape().clone());
        unsafe {
            gradient_kernel::launch_unchecked(
                &output.client,
                cubes("label_dice", self.batch(), self.size()),
                CUBE.into(),
                address(&[&self.displacement, &self.moving]),
                buffer(&self.displacement),
                buffer(&self.moving),
                buffer(&self.fixed),
                buffer(&self.ids),
                buffer(&grad),
                buffer(&output),
                self.sizes(),
                self.plan(),
            );
        }
        output
    }
}

fn size(tensor: &CubeTensor) -> [usize; 3] {
    let shape = tensor.meta.shape();
    [shape[2], shape[3], shape[4]]
}

impl LabelDiceOps for CubeBackend {
    fn label_sums_3d(
        displacement: FloatTensor<Self>,
        moving: IntTensor<Self>,
        fixed: IntTensor<Self>,
        table: LabelTable,
    ) -> FloatTensor<Self> {
        Call::new(displacement, moving, fixed, table).forward()
    }

    fn label_sums_3d_backward(
        displacement: FloatTensor<Self>,
        moving: IntTensor<Self>,
        fixed: IntTensor<Self>,
        grad: FloatTensor<Self>,
        table: LabelTable,
    ) -> FloatTensor<Self> {
        Call::new(displacement, moving, fixed, table).backward(grad)
    }
}
