//! The loss of a joint table on the GPU: one cube reads the table a few times, from the cache.
//!
//! All sums are taken in a fixed order: the result is reproducible bit by bit.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Information, InformationOps, TINY};
use ffdp_kit::launch::{UNITS, assert_f32, buffer, empty, sum_in_tree};

/// What is fixed when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    bins: u32,
    measure: Information,
}

impl Plan {
    fn cells(&self) -> u32 {
        self.bins * self.bins
    }
}

/// The votes in each row and in each column, and room for a sum.
#[derive(CubeType)]
struct Sums {
    rows: Shared<[f32]>,
    columns: Shared<[f32]>,
    tree: Shared<[f32]>,
}

/// Statistics of a table: all its votes, and entropies in nats.
#[derive(CubeType, Clone, Copy)]
struct Measured {
    /// One over all votes; 0 for an empty table.
    unit: f32,
    mutual: f32,
    joint: f32,
}

#[cube]
fn sums(#[comptime] plan: Plan) -> Sums {
    Sums {
        rows: Shared::<[f32]>::new_slice(comptime!(plan.bins as usize)),
        columns: Shared::<[f32]>::new_slice(comptime!(plan.bins as usize)),
        tree: Shared::<[f32]>::new_slice(256usize),
    }
}

/// `log(q + tiny)`.
#[cube]
fn log(q: f32) -> f32 {
    (q + comptime!(TINY as f32)).ln()
}

/// `-dH/dq`.
#[cube]
fn slope(q: f32) -> f32 {
    log(q) + q / (q + comptime!(TINY as f32))
}

/// Fills the marginals of the table at `base`, and measures it; every unit gets the answer.
#[cube]
fn measure(votes: &[f32], base: usize, sums: &mut Sums, #[comptime] plan: Plan) -> Measured {
    let (bins, cells) = comptime!((plan.bins, plan.cells()));
    sync_cube();
    let mut line = UNIT_POS;
    while line < bins {
        let mut row = 0.0f32;
        let mut column = 0.0f32;
        for k in 0..bins {
            row += votes[base + (line * bins + k) as usize];
            column += votes[base + (k * bins + line) as usize];
        }
        sums.rows[line as usize] = row;
        sums.columns[line as usize] = column;
        line += UNITS;
    }
    sync_cube();
    let mut part = 0.0f32;
    let mut line = UNIT_POS;
    while line < bins {
        part += sums.rows[line as usize];
        line += UNITS;
    }
    let total = sum_in_tree(&mut sums.tree, part);
    let unit = select(total > 0.0f32, 1.0f32 / total, 0.0f32);
    let mut apart = 0.0f32;
    let mut line = UNIT_POS;
    while line < bins {
        let row = sums.rows[line as usize] * unit;
        let column = sums.columns[line as usize] * unit;
        apart -= row * log(row) + column * log(column);
        line += UNITS;
    }
    let mut joint = 0.0f32;
    let mut cell = UNIT_POS;
    while cell < cells {
        let p = votes[base + cell as usize] * unit;
        joint -= p * log(p);
        cell += UNITS;
    }
    let apart = sum_in_tree(&mut sums.tree, apart);
    let joint = sum_in_tree(&mut sums.tree, joint);
    Measured { unit, mutual: apart - joint, joint }
}

/// `output[0]`: the loss, averaged over the batch.
#[cube(launch_unchecked)]
fn loss_kernel(votes: &[f32], output: &mut [f32], batch: u32, #[comptime] plan: Plan) {
    let mut sums = sums(plan);
    let mut score = 0.0f32;
    for n in 0..batch {
        let measured = measure(votes, (n * comptime!(plan.cells())) as usize, &mut sums, plan);
        if comptime!(plan.measure == Information::Mutual) {
            score += measured.mutual;
        } else {
            score += max(measured.mutual, 0.0f32) / max(measured.joint, comptime!(TINY as f32));
        }
    }
    if UNIT_POS == 0 {
        let mean = score / f32::cast_from(batch);
        if comptime!(plan.measure == Information::Mutual) {
            output[0] = -mean;
        } else {
            output[0] = 1.0f32 - mean;
        }
    }
}

/// `dloss/dp` of a cell with `p`, without the mean over the table.
#[cube]
fn steep(p: f32, cell: u32, measured: &Measured, sums: &Sums, #[comptime] plan: Plan) -> f32 {
    let row = sums.rows[(cell / plan.bins) as usize] * measured.unit;
    let column = sums.columns[(cell % plan.bins) as usize] * measured.unit;
    let joint = slope(p);
    let mut steep = slope(row) + slope(column) - joint;
    if comptime!(plan.measure == Information::Normalized) {
        // d(-I / H) = -dI / H + I dH / H^2
        steep = (steep - measured.mutual / measured.joint * joint) / measured.joint;
    }
    steep
}

/// `dloss/dh` of one table, `CUBE_POS_X` of `batch`.
#[cube(launch_unchecked)]
fn gradient_kernel(
    votes: &[f32],
    grad: &[f32],
    output: &mut [f32],
    batch: u32,
    #[comptime] plan: Plan,
) {
    let cells = comptime!(plan.cells());
    let base = (CUBE_POS_X * cells) as usize;
    let mut sums = sums(plan);
    let measured = measure(votes, base, &mut sums, plan);
    let mut scale = grad[0] * measured.unit / f32::cast_from(batch);
    if comptime!(plan.measure == Information::Normalized) {
        scale = select(measured.joint < comptime!(TINY as f32), 0.0f32, scale);
    }
    let mut mean = 0.0f32;
    let mut cell = UNIT_POS;
    while cell < cells {
        let p = votes[base + cell as usize] * measured.unit;
        if p > 0.0f32 {
            mean += p * steep(p, cell, &measured, &sums, plan);
        }
        cell += UNITS;
    }
    let mean = sum_in_tree(&mut sums.tree, mean);
    let mut cell = UNIT_POS;
    while cell < cells {
        let p = votes[base + cell as usize] * measured.unit;
        let steep = steep(p, cell, &measured, &sums, plan);
        output[base + cell as usize] = select(scale == 0.0f32, 0.0f32, scale * (steep - mean));
        cell += UNITS;
    }
}

fn plan(votes: &CubeTensor, measure: Information) -> (u32, Plan) {
    let shape = votes.meta.shape();
    (shape[0] as u32, Plan { bins: shape[1] as u32, measure })
}

impl InformationOps for CubeBackend {
    fn information_loss(votes: FloatTensor<Self>, measure: Information) -> FloatTensor<Self> {
        assert_f32("information_loss", &[&votes]);
        let votes = into_contiguous(votes);
        let output = empty(&votes, [1]);
        let (batch, plan) = plan(&votes, measure);
        unsafe {
            loss_kernel::launch_unchecked(
                &votes.client,
                CubeCount::Static(1, 1, 1),
                CubeDim::new_1d(UNITS),
                buffer(&votes),
                buffer(&output),
                batch,
                plan,
            );
        }
        output
    }

    fn information_loss_backward(
        votes: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        measure: Information,
    ) -> FloatTensor<Self> {
        assert_f32("information_loss", &[&votes, &grad]);
        let (votes, grad) = (into_contiguous(votes), into_contiguous(grad));
        let shape = votes.meta.shape().clone();
        let output = empty(&votes, [shape.num_elements()]);
        let (batch, plan) = plan(&votes, measure);
        unsafe {
            gradient_kernel::launch_unchecked(
                &votes.client,
                CubeCount::Static(batch, 1, 1),
                CubeDim::new_1d(UNITS),
                buffer(&votes),
                buffer(&grad),
                buffer(&output),
                batch,
                plan,
            );
        }
        let CubeTensor { client, device, handle, dtype, .. } = output;
        CubeTensor::new_contiguous(client, device, shape, handle, dtype)
    }
}
