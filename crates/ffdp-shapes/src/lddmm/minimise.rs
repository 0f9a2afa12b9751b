//! The search that matching, regression and atlas share: L-BFGS on a tensor of momenta.

use std::ops::ControlFlow;

use burn::tensor::Tensor;
use ffdp_image::{Error, Result};
use ffdp_optim::{Lbfgs, LineSearch, Minimizer, Objective, Point, Steps};

use super::coordinates::Coordinates;
use super::hamiltonian::Hamiltonian;
use crate::tensors::{TensorVector, number};

/// What an iteration came to.
#[derive(Clone, Debug)]
pub struct Iteration {
    /// Its number, from 1.
    pub number: usize,
    /// The cost.
    pub cost: f64,
    /// What is searched, as it is now: enough to continue.
    pub momenta: Tensor<2>,
}

/// Sees every iteration, and may end the search.
pub type Observer<'a> = &'a mut dyn FnMut(&Iteration) -> ControlFlow<()>;

/// Steps that L-BFGS remembers.
const HISTORY: usize = 10;

/// The search ends when so many iterations have gained too little together.
const PATIENCE: usize = 10;

/// A cost of momenta `[R, 3]`; `q` `[N, 3]` are the points of the first of `R / N` blocks, by whose velocities steps
/// are measured.
pub(super) struct MomentaSearch<'a> {
    pub cost: &'a dyn Fn(Tensor<2>) -> Tensor<1>,
    pub hamiltonian: &'a Hamiltonian,
    pub q: Tensor<2>,
    pub width_mm: f64,
    pub iterations: usize,
    pub tolerance: f64,
}

/// The cost of coordinates of momenta; of momenta themselves where there are none.
struct Searched<'a> {
    search: &'a MomentaSearch<'a>,
    coordinates: Option<Coordinates>,
}

impl Searched<'_> {
    fn momenta(&self, at: &TensorVector) -> Result<Tensor<2>> {
        match &self.coordinates {
            Some(coordinates) => coordinates.momenta(at.0.clone()),
            None => Ok(at.0.clone()),
        }
    }
}

impl Objective<TensorVector> for Searched<'_> {
    type Error = Error;

    fn failed(&self, reason: Error) -> Error {
        reason
    }

    fn evaluate(&mut self, at: &TensorVector) -> Result<Point<TensorVector>> {
        let p = self.momenta(at)?.autodiff().require_grad();
        let cost = (self.search.cost)(p.clone());
        let loss = number(cost.clone().inner())?;
        let gradients = cost.backward();
        let gradient = p.grad(&gradients).ok_or_else(|| {
            Error::device("searching momenta", "the cost does not depend on them")
        })?;
        // Beyond all bounds the cost is no number: the line search must come back.
        let loss = if loss.is_finite() { loss } else { f64::INFINITY };
        let gradient = match &self.coordinates {
            Some(coordinates) => coordinates.gradient(gradient)?,
            None => gradient,
        };
        Ok(Point { loss, gradient: TensorVector(gradient) })
    }

    /// How far the fastest point moves, in mm.
    fn length(&mut self, step: &TensorVector) -> Result<f64> {
        let MomentaSearch { q, hamiltonian, .. } = self.search;
        let mut longest = 0.0_f64;
        for p in self.momenta(step)?.split(q.dims()[0], 0) {
            let v = hamiltonian.field(q, &p).at(q.clone());
            longest = longest.max(number(v.square().sum_dim(1).max().sqrt())?);
        }
        Ok(longest)
    }
}

impl MomentaSearch<'_> {
    /// The best momenta, and the cost before every iteration and at the end.
    pub fn run(&self, start: Tensor<2>, observe: Observer) -> Result<(Tensor<2>, Vec<f64>)> {
        let coordinates = Coordinates::new(self.hamiltonian, &self.q)?;
        let start = match &coordinates {
            Some(coordinates) => coordinates.of(start)?,
            None => start,
        };
        let mut objective = Searched { search: self, coordinates };
        let steps = Steps {
            first: 0.1 * self.width_mm,
            longest: self.width_mm,
            shortest: 1e-6 * self.width_mm,
        };
        let search = LineSearch::wolfe();
        let mut minimizer = Minimizer::new(TensorVector(start), Lbfgs::new(HISTORY), search);
        let mut costs = vec![minimizer.here(&mut objective)?.loss];
        for number in 1..=self.iterations {
            if !minimizer.step(&mut objective, &steps)? {
                break;
            }
            let cost = minimizer.here(&mut objective)?.loss;
            costs.push(cost);
            let momenta = objective.momenta(minimizer.at())?;
            if observe(&Iteration { number, cost, momenta }).is_break() {
                break;
            }
            let before = costs.len().checked_sub(PATIENCE + 1).map(|i| costs[i]);
            if before.is_some_and(|before| before - cost <= self.tolerance * before.abs()) {
                break;
            }
        }
        Ok((objective.momenta(minimizer.at())?, costs))
    }
}
