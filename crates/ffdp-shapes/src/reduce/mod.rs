//! Reductions of a [`Formula`] over the columns, the matrix of all pairs never stored.
//!
//! ```text
//! sum            G_i = sum_j F(x_i, y_j, p)
//! log-sum-exp    L_i = log sum_j exp F(x_i, y_j, p)
//! nearest        the K columns of the smallest (largest) F(x_i, y_j, p)
//! ```
//! Sums and log-sum-exp are on Burn's tape; their backward passes are reductions of [`Formula::gradient`]. Burn
//! differentiates once: for higher derivatives reduce the gradient's formula yourself, which is on the tape again.
//! Sums are blocked: a partial sum of some hundred terms, then a compensated total.

use std::sync::Arc;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::{Int, Shape, Tensor};

use crate::formula::program::Program;
use crate::formula::{Formula, Role, Variable};
use crate::ranges::Ranges;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Tensors that an operation takes: variables of a formula, at most.
pub const SLOTS: usize = 8;

/// What is done with the values of a formula over the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// The logarithm of the sum of their exponentials.
    LogSumExp,
    /// The places of the `count` smallest.
    Nearest {
        /// How many.
        count: usize,
    },
}

/// A reduction that is about to be done.
#[derive(Clone, Debug)]
pub struct Task {
    pub(crate) formula: Formula,
    pub(crate) reduction: Reduction,
    pub(crate) program: Arc<Program>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) ranges: Option<Arc<Ranges>>,
}

impl Task {
    pub(crate) fn new(
        formula: Formula,
        reduction: Reduction,
        [rows, columns]: [usize; 2],
        ranges: Option<Arc<Ranges>>,
    ) -> Self {
        let program = match reduction {
            Reduction::Sum => formula.sum_program(),
            Reduction::LogSumExp => formula.powers_program(),
            Reduction::Nearest { .. } => formula.values_program(),
        };
        Self { formula, reduction, program, rows, columns, ranges }
    }

    /// Of the result.
    fn shape(&self) -> Shape {
        Shape::from([self.rows, self.width()])
    }

    /// Columns of the result.
    pub(crate) fn width(&self) -> usize {
        match self.reduction {
            Reduction::Sum => self.formula.dim(),
            Reduction::LogSumExp => 1,
            Reduction::Nearest { count } => count,
        }
    }
}

/// Backend operations of reductions. A formula of fewer variables ignores the last tensors.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait ReduceOps: Backend {
    /// A sum or log-sum-exp; variables `[N, d]`, `[M, d]`, `[1, d]`; result `[N, width]`.
    #[fusion(dtype = a, shape = { let _ = (a, b, c, d, e, f, g, h); task.shape() })]
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
    ) -> FloatTensor<Self>;

    /// The nearest columns, as `i32` `[N, count]`; -1 where a row meets fewer.
    #[fusion(dtype = { let _ = a; burn::tensor::DType::I32 }, shape = { let _ = (a, b, c, d, e, f, g, h); task.shape() })]
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
    ) -> IntTensor<Self>;
}

impl Formula {
    /// `sum_j F`. Differentiable in all tensors (first order; see [`Formula::gradient`] for more).
    ///
    /// # Shapes
    /// A tensor a variable: rows `[N, d]`, columns `[M, d]`, parameters `[1, d]`; result `[N, F]`.
    ///
    /// # Panics
    /// If the tensors do not fit the variables, or the formula has more than [`SLOTS`].
    pub fn sum(&self, tensors: &[Tensor<2>]) -> Tensor<2> {
        self.reduce(tensors, Reduction::Sum, None)
    }

    /// [`Formula::sum`] over the pairs of clusters that `ranges` keep.
    ///
    /// # Panics
    /// Like [`Formula::sum`], and if the ranges are of another size.
    pub fn sum_in_ranges(&self, tensors: &[Tensor<2>], ranges: &Arc<Ranges>) -> Tensor<2> {
        self.reduce(tensors, Reduction::Sum, Some(ranges.clone()))
    }

    /// `log sum_j exp F` of a formula of one component, without overflow. Differentiable like [`Formula::sum`].
    ///
    /// # Shapes
    /// As there; result `[N, 1]`.
    ///
    /// # Panics
    /// Like [`Formula::sum`], and if the formula has several components.
    pub fn log_sum_exp(&self, tensors: &[Tensor<2>]) -> Tensor<2> {
        self.reduce(tensors, Reduction::LogSumExp, None)
    }

    /// [`Formula::log_sum_exp`] over the pairs of clusters that `ranges` keep; minus infinity for a row that meets no
    /// column.
    ///
    /// # Panics
    /// Like [`Formula::log_sum_exp`], and if the ranges are of another size.
    pub fn log_sum_exp_in_ranges(&self, tensors: &[Tensor<2>], ranges: &Arc<Ranges>) -> Tensor<2> {
        self.reduce(tensors, Reduction::LogSumExp, Some(ranges.clone()))
    }

    /// The `count` columns of the smallest values, the smallest first; the first of equal ones.
    ///
    /// # Shapes
    /// Tensors as in [`Formula::sum`]; result `[N, count]`.
    ///
    /// # Panics
    /// Like [`Formula::sum`], if the formula has several components, or there are fewer columns than `count`.
    pub fn nearest(&self, count: usize, tensors: &[Tensor<2>]) -> Tensor<2, Int> {
        let task = self.task(tensors, Reduction::Nearest { count }, None);
        let fits = count > 0 && count <= task.columns;
        assert!(fits, "nearest: {count} of {} columns", task.columns);
        let [a, b, c, d, e, f, g, h] = padded(tensors).map(Tensor::into_dispatch);
        let places = <Dispatch as ReduceOps>::reduce_nearest(a, b, c, d, e, f, g, h, task);
        Tensor::from_dispatch(places)
    }

    /// The smallest value of every row, and its column. The value is differentiable in all tensors (first order).
    ///
    /// # Shapes
    /// As in [`Formula::nearest`]; results `[N, 1]`.
    ///
    /// # Panics
    /// As there.
    pub fn min(&self, tensors: &[Tensor<2>]) -> (Tensor<2>, Tensor<2, Int>) {
        let places = self.nearest(1, tensors);
        let column: Tensor<1, Int> = places.clone().reshape([-1]);
        let of_row = |(tensor, variable): (&Tensor<2>, &Variable)| match variable.role {
            Role::Column => tensor.clone().select(0, column.clone()),
            _ => tensor.clone(),
        };
        let pairs: Vec<Tensor<2>> = tensors.iter().zip(self.variables()).map(of_row).collect();
        (self.of_pairs().sum(&pairs), places)
    }

    /// The largest value of every row, and its column; see [`Formula::min`].
    ///
    /// # Panics
    /// As there.
    pub fn max(&self, tensors: &[Tensor<2>]) -> (Tensor<2>, Tensor<2, Int>) {
        let (value, places) = self.and_then(|_, f| -f).min(tensors);
        (-value, places)
    }

    /// `sum_j exp(F) v_j / sum_j exp(F)`, without overflow: the mean of `values`, weighted by a softmax. Differentiable
    /// in all tensors (first order).
    ///
    /// # Shapes
    /// As in [`Formula::log_sum_exp`]; values `[M, E]`; result `[N, E]`.
    ///
    /// # Panics
    /// As there.
    pub fn softmax_mean(&self, tensors: &[Tensor<2>], values: Tensor<2>) -> Tensor<2> {
        let dim = values.dims()[1];
        let weighted = self.relative().and_then(|v, weight| weight.at(0) * v.columns(dim));
        let logs = self.log_sum_exp(tensors);
        weighted.sum(&[tensors, &[logs, values]].concat())
    }

    fn reduce(
        &self,
        tensors: &[Tensor<2>],
        reduction: Reduction,
        ranges: Option<Arc<Ranges>>,
    ) -> Tensor<2> {
        let task = self.task(tensors, reduction, ranges);
        let [a, b, c, d, e, f, g, h] = padded(tensors).map(Tensor::into_dispatch);
        Tensor::from_dispatch(<Dispatch as ReduceOps>::reduce(a, b, c, d, e, f, g, h, task))
    }

    /// Checks the tensors against the variables.
    fn task(
        &self,
        tensors: &[Tensor<2>],
        reduction: Reduction,
        ranges: Option<Arc<Ranges>>,
    ) -> Task {
        let (count, given) = (self.variables().len(), tensors.len());
        assert!(count == given, "formula: {given} tensors for {count} variables");
        assert!(count <= SLOTS, "formula: {count} variables, at most {SLOTS} are supported");
        let single = self.dim() == 1 || reduction == Reduction::Sum;
        assert!(single, "{reduction:?} reduces one number, the formula has {}", self.dim());
        let [rows, columns] = [Role::Row, Role::Column].map(|role| self.count(role, tensors));
        for (slot, (variable, tensor)) in self.variables().iter().zip(tensors).enumerate() {
            let expected = match variable.role {
                Role::Row => [rows, variable.dim],
                Role::Column => [columns, variable.dim],
                Role::Parameter => [1, variable.dim],
            };
            let dims = tensor.dims();
            assert!(dims == expected, "formula: variable {slot} is {expected:?}, got {dims:?}");
        }
        if let Some(size) = ranges.as_ref().map(|ranges| ranges.size()) {
            assert!(
                size == [rows, columns],
                "ranges of {size:?} for {rows} rows, {columns} columns"
            );
        }
        Task::new(self.clone(), reduction, [rows, columns], ranges)
    }

    /// Rows or columns of the tensors; 1 where no variable has any.
    fn count(&self, role: Role, tensors: &[Tensor<2>]) -> usize {
        let slot = self.variables().iter().position(|variable| variable.role == role);
        slot.map_or(1, |slot| tensors[slot].dims()[0])
    }
}

/// As many tensors as the operations take.
fn padded(tensors: &[Tensor<2>]) -> [Tensor<2>; SLOTS] {
    // Off the tape: a gradient for what fills up is never asked for.
    std::array::from_fn(|slot| match tensors.get(slot) {
        Some(tensor) => tensor.clone(),
        None => tensors[0].clone().detach().set_require_grad(false),
    })
}
