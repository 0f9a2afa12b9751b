//! The chain rule of reductions: reductions of the formula's gradients.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::Slice;
use ffdp_kit::vjp::{Vjp, record};

use super::{ReduceOps, Reduction, SLOTS, Task};
use crate::formula::{Formula, Role};

#[derive(Clone, Copy, Debug)]
struct ReduceVjp;

/// What the backward pass needs: the inputs, the result of a log-sum-exp, and what was done.
#[derive(Clone, Debug)]
struct Saved<F> {
    inputs: [F; SLOTS],
    output: Option<F>,
    task: Task,
}

impl<B: ReduceOps> Vjp<B, SLOTS> for ReduceVjp {
    type Saved = Saved<FloatTensor<B>>;

    fn backward(
        Saved { inputs, output, task }: Self::Saved,
        grad: FloatTensor<B>,
        needs: [bool; SLOTS],
    ) -> [Option<FloatTensor<B>>; SLOTS] {
        let count = task.formula.variables().len();
        let mut tensors = inputs[..count].to_vec();
        // d/dt log sum exp F = sum exp(F - L) dF/dt.
        let formula = match output {
            None => task.formula.clone(),
            Some(output) => {
                tensors.push(output);
                task.formula.relative().clone()
            }
        };
        tensors.push(grad);
        let mut gradients: [Option<FloatTensor<B>>; SLOTS] = [const { None }; SLOTS];
        for role in [Role::Row, Role::Column, Role::Parameter] {
            let of_role = |slot: &usize| formula.variables()[*slot].role == role;
            let slots: Vec<usize> =
                (0..count).filter(|slot| needs[*slot]).filter(of_role).collect();
            if slots.is_empty() {
                continue;
            }
            let mut start = 0;
            let joined = gradient::<B>(&formula, &slots, &tensors, &task);
            for slot in slots {
                let end = start + formula.variables()[slot].dim;
                let part = [Slice::from(..), Slice::from(start..end)];
                gradients[slot] = Some(B::float_slice(joined.clone(), &part));
                start = end;
            }
        }
        gradients
    }
}

/// The gradients to variables of one role, joined.
fn gradient<B: ReduceOps>(
    formula: &Formula,
    slots: &[usize],
    tensors: &[FloatTensor<B>],
    task: &Task,
) -> FloatTensor<B> {
    let derivative = formula.gradient(slots);
    let role = formula.variables()[slots[0]].role;
    let size = [task.rows, task.columns];
    let sum = |formula, size, ranges, tensors: &[FloatTensor<B>]| {
        let task = Task::new(formula, Reduction::Sum, size, ranges);
        run::<B>(tensors, task)
    };
    match role {
        Role::Row => sum(derivative, size, task.ranges.clone(), tensors),
        Role::Column => {
            let ranges = task.ranges.as_ref().map(|ranges| ranges.transposed().into());
            sum(derivative, [size[1], size[0]], ranges, tensors)
        }
        Role::Parameter => {
            let dim = derivative.dim();
            let shares = sum(derivative, size, task.ranges.clone(), tensors);
            sum(Formula::new(|v| v.columns(dim)), [1, task.rows], None, &[shares])
        }
    }
}

/// A reduction of as many tensors as there are.
///
/// # Panics
/// If there are more than [`SLOTS`].
fn run<B: ReduceOps>(tensors: &[FloatTensor<B>], task: Task) -> FloatTensor<B> {
    let count = tensors.len();
    assert!(count <= SLOTS, "formula: its gradient has {count} variables, at most {SLOTS} fit");
    let at = |slot: usize| tensors.get(slot).unwrap_or(&tensors[0]).clone();
    B::reduce(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), task)
}

impl<B: ReduceOps, C: CheckpointStrategy> ReduceOps for Autodiff<B, C> {
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
        record::<B, C, _, SLOTS>(ReduceVjp, [a, b, c, d, e, f, g, h], |inputs, _| {
            let output = run::<B>(&inputs, task.clone());
            let kept = (task.reduction == Reduction::LogSumExp).then(|| output.clone());
            (output, Saved { inputs, output: kept, task })
        })
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
        let [a, b, c, d, e, f, g, h] = [a, b, c, d, e, f, g, h].map(|t| t.into_primitive());
        B::reduce_nearest(a, b, c, d, e, f, g, h, task)
    }
}
