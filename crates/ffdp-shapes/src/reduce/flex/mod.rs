//! Reductions on the CPU: rows in parallel, columns in blocks that stay in the cache, every step of the formula for a
//! whole block. Rows and columns are prepared, and results ended, in f64.

mod block;
mod vector;

use std::ops::Range;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::Bytes;
use ffdp_kit::real::{by_dtype, elements, readable, tensor};
use rayon::prelude::*;

use self::block::{BLOCK, Block, Lane};
use super::{ReduceOps, Reduction, SLOTS, Task};
use crate::formula::program::{Operand, Stage};
use crate::formula::{Op, Role};

/// Rows that share a pass over the columns.
const ROWS: usize = 32;

/// The values that a stage hands on, for one row or column; `index` says which.
fn run_stage<T: Lane>(
    stage: &Stage,
    inputs: &[&[T]],
    dims: &[(Role, usize)],
    index: usize,
    known: &[&[f64]; 2],
) -> Vec<f64> {
    let mut own: Vec<f64> = Vec::with_capacity(stage.steps.len());
    let value = |operand: Operand, own: &[f64]| match operand {
        Operand::Constant(bits) => f64::from_bits(bits),
        Operand::Own(k) => own[k],
        Operand::Row(k) => known[0][k],
        Operand::Sum(k) => known[1][k],
        Operand::Column(_) => unreachable!("no stage but that of pairs knows columns"),
    };
    for step in &stage.steps {
        let result = match *step {
            Op::Load { slot, component } => {
                let (role, dim) = dims[slot];
                let index = if role == Role::Parameter { 0 } else { index };
                inputs[slot][index * dim + component].wide()
            }
            step => step.map(|operand| value(operand, &own)).value(),
        };
        own.push(result);
    }
    stage.results.iter().map(|operand| value(*operand, &own)).collect()
}

/// What the columns hand on, value by value: `[k][column]`; a block may read on behind the last.
fn columns_of<T: Lane>(task: &Task, inputs: &[&[T]], dims: &[(Role, usize)]) -> Vec<Vec<T>> {
    let stage = &task.program.column;
    let mut values = vec![vec![T::default(); task.columns + BLOCK]; stage.results.len()];
    for column in 0..task.columns {
        let handed = run_stage(stage, inputs, dims, column, &[&[], &[]]);
        for (values, value) in values.iter_mut().zip(handed) {
            values[column] = T::of(value);
        }
    }
    values
}

/// Rows of one cluster, and the columns that they meet.
type Work = (Range<usize>, Vec<Range<usize>>);

/// The work, in the order of the rows.
fn work(task: &Task) -> Vec<Work> {
    let clusters: Vec<Work> = match &task.ranges {
        Some(ranges) => ranges.clusters().collect(),
        None => vec![(0..task.rows, std::iter::once(0..task.columns).collect())],
    };
    let chunks = |(rows, columns): Work| {
        let starts = rows.clone().step_by(ROWS);
        starts.map(move |start| (start..rows.end.min(start + ROWS), columns.clone()))
    };
    clusters.into_iter().flat_map(chunks).collect()
}

/// The slices of columns that fit into a block, in order.
fn blocks(columns: &[Range<usize>]) -> impl Iterator<Item = Range<usize>> + '_ {
    columns.iter().flat_map(|range| {
        let starts = range.clone().step_by(BLOCK);
        starts.map(|start| start..range.end.min(start + BLOCK))
    })
}

/// A state for every row that the blocks of columns are folded into.
trait Fold<T: Lane>: Send + Sized {
    fn start(task: &Task) -> Self;
    /// Takes the values of a row for a block of columns.
    fn add(&mut self, block: &Block<T>, columns: &Range<usize>);
}

/// The folded columns of every row.
fn folded<T: Lane, F: Fold<T>, R: Send>(
    task: &Task,
    inputs: &[FlexTensor; SLOTS],
    end: impl Fn(&[f64], F) -> Vec<R> + Sync,
) -> Vec<R> {
    let inputs = inputs.each_ref().map(elements::<T>);
    let dims: Vec<(Role, usize)> =
        task.formula.variables().iter().map(|v| (v.role, v.dim)).collect();
    let tile = columns_of(task, &inputs, &dims);
    let parts = work(task).into_par_iter().map(|(rows, columns)| {
        let sums = task.reduction == Reduction::Sum;
        let mut block = Block::new(&task.program, sums);
        let handed = |row| run_stage(&task.program.row, &inputs, &dims, row, &[&[], &[]]);
        let mut states: Vec<(Vec<f64>, F)> =
            rows.map(|row| (handed(row), F::start(task))).collect();
        for columns in blocks(&columns) {
            for (row, state) in &mut states {
                block.run(row, &tile, &columns, sums);
                state.add(&block, &columns);
            }
        }
        states.into_iter().flat_map(|(row, state)| end(&row, state)).collect::<Vec<R>>()
    });
    parts.flatten_iter().collect()
}

/// Sums of the pair stage's results.
struct Sums(Vec<f64>);

impl<T: Lane> Fold<T> for Sums {
    fn start(task: &Task) -> Self {
        Self(vec![0.0; task.program.pair.results.len()])
    }

    fn add(&mut self, block: &Block<T>, _: &Range<usize>) {
        block.add_sums(&mut self.0);
    }
}

/// The largest value so far, and the sum of powers of two relative to it.
struct Exponentials {
    largest: f64,
    sum: f64,
}

impl<T: Lane> Fold<T> for Exponentials {
    fn start(_: &Task) -> Self {
        Self { largest: f64::NEG_INFINITY, sum: 0.0 }
    }

    fn add(&mut self, block: &Block<T>, _: &Range<usize>) {
        let largest = block.largest().max(self.largest);
        // Of values that are all minus infinity, the sum stays 0.
        if largest == f64::NEG_INFINITY {
            return;
        }
        self.sum = self.sum * (self.largest - largest).exp2() + block.sum_of_powers(largest);
        self.largest = largest;
    }
}

/// The smallest values so far and their columns, the smallest first.
struct Smallest {
    count: usize,
    found: Vec<(f64, usize)>,
}

impl<T: Lane> Fold<T> for Smallest {
    fn start(task: &Task) -> Self {
        Self { count: task.width(), found: Vec::with_capacity(task.width() + 1) }
    }

    fn add(&mut self, block: &Block<T>, columns: &Range<usize>) {
        for (value, column) in block.values(columns.len()).iter().zip(columns.clone()) {
            let value = value.wide();
            let full = self.found.len() == self.count;
            if full && self.found[self.count - 1].0 <= value {
                continue;
            }
            let place = self.found.partition_point(|(known, _)| *known <= value);
            self.found.insert(place, (value, column));
            self.found.truncate(self.count);
        }
    }
}

fn reduced<T: Lane>(task: &Task, inputs: &[FlexTensor; SLOTS]) -> FlexTensor {
    let result: Vec<T> = match task.reduction {
        Reduction::Sum => folded::<T, Sums, T>(task, inputs, |row, Sums(sums)| {
            let ended = run_stage::<T>(&task.program.end, &[], &[], 0, &[row, &sums]);
            ended.into_iter().map(T::of).collect()
        }),
        Reduction::LogSumExp => folded::<T, Exponentials, T>(task, inputs, |_, e| {
            vec![T::of((e.largest + e.sum.log2()) * std::f64::consts::LN_2)]
        }),
        Reduction::Nearest { .. } => unreachable!("places are no numbers"),
    };
    tensor(result, task.shape())
}

fn nearest<T: Lane>(task: &Task, inputs: &[FlexTensor; SLOTS]) -> FlexTensor {
    let places = folded::<T, Smallest, i32>(task, inputs, |_, smallest| {
        let mut places: Vec<i32> =
            smallest.found.iter().map(|(_, column)| *column as i32).collect();
        places.resize(smallest.count, -1);
        places
    });
    let layout = burn::backend::flex::Layout::contiguous(task.shape());
    FlexTensor::new(Bytes::from_elems(places), layout, burn::tensor::DType::I32)
}

impl ReduceOps for Flex {
    fn reduce(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
        e: FloatTensor<Self>,
        f: FloatTensor<Self>,
        g: FloatTensor<Self>,
        h: FloatTensor<Self>,
        task: Task,
    ) -> FloatTensor<Self> {
        let inputs = [a, b, c, d, e, f, g, h].map(readable);
        by_dtype!("kernel product", inputs[0].dtype(), reduced(&task, &inputs))
    }

    fn reduce_nearest(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
        e: FloatTensor<Self>,
        f: FloatTensor<Self>,
        g: FloatTensor<Self>,
        h: FloatTensor<Self>,
        task: Task,
    ) -> IntTensor<Self> {
        let inputs = [a, b, c, d, e, f, g, h].map(readable);
        by_dtype!("nearest", inputs[0].dtype(), nearest(&task, &inputs))
    }
}
