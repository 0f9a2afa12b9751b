//! About the inverse of the Hessian, for the conjugate gradients of a step.
//!
//! ```text
//! InvA      s = (beta A)^-1 r
//! InvH0     (beta' A + q q^T) s = r            by conjugate gradients within (beta' A)^-1
//! 2LInvH0   the same on half the grid for the low modes, (beta' A)^-1 r for the others
//! ```
//! `q = sqrt(h) grad m(1)`, `h` the curvature of the dissimilarity: the Hessian of a velocity that does not move.
//! `beta' = max(beta, 5e-2)`. Source: Brunn et al. 2020, algorithm 1.

use std::cell::Cell;

use serde::{Deserialize, Serialize};

use super::flow::sum;
use ffdp_burn::ops::{Symbol, component_dot};
use ffdp_image::error::Result;
use ffdp_optim::pcg;
use ffdp_parallel::{Sharded, deform::FieldVector, periodic::PeriodicGrid};

/// Which inverse the conjugate gradients begin from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preconditioner {
    /// Inverse of the regularisation.
    #[default]
    #[serde(rename = "inv_a")]
    InvA,
    /// Inverse of the Hessian at a velocity of zero.
    #[serde(rename = "inv_h0")]
    InvH0,
    /// The same, on a grid of half the size.
    #[serde(rename = "2l_inv_h0")]
    TwoLevelInvH0,
}

/// `beta` above which the regularisation dominates: its inverse is then the better one, as it costs little.
const BETA_OF_H0: f64 = 0.5;

/// The least `beta` of the Hessian of a velocity that does not move.
const LEAST_BETA: f64 = 5e-2;

/// Iterations for a residual at most; most ask for ten or so.
const INNER_ITERATIONS: usize = 50;

/// How an inverse is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct InverseOptions {
    pub preconditioner: Preconditioner,
    /// Of the inner system, as a part of that of the outer one.
    pub tolerance: f64,
    pub beta: f64,
    pub beta_div: f64,
}

/// The inverse at a point.
pub(super) enum Inverse {
    Regularizer(Symbol),
    Still(Box<Still>),
}

/// That of a velocity which does not move.
pub(super) struct Still {
    /// Of the residuals.
    fine: PeriodicGrid,
    /// Where the system is solved: the same, or half of it.
    grid: PeriodicGrid,
    /// `q` of every channel.
    slopes: Vec<Sharded>,
    beta: f64,
    beta_div: f64,
    tolerance: f64,
    /// Iterations of inner systems so far.
    iterations: Cell<usize>,
}

impl Inverse {
    /// At a point where the moved image has these `slopes`, `q` of every channel.
    pub fn new(
        grid: &PeriodicGrid,
        options: &InverseOptions,
        slopes: impl FnOnce() -> Result<Vec<Sharded>>,
    ) -> Result<Self> {
        let &InverseOptions { preconditioner, tolerance, beta, beta_div } = options;
        if preconditioner == Preconditioner::InvA || beta > BETA_OF_H0 {
            return Ok(Self::Regularizer(Symbol::InverseRegularizer { beta, gamma: beta_div }));
        }
        let fine = grid.clone();
        let mut slopes = slopes()?;
        let mut solved_on = fine.clone();
        if preconditioner == Preconditioner::TwoLevelInvH0 {
            solved_on = fine.resized(fine.size().map(half))?;
            for slope in &mut slopes {
                *slope = fine.resize(slope, &solved_on)?;
            }
        }
        let beta = beta.max(LEAST_BETA);
        let (grid, iterations) = (solved_on, Cell::new(0));
        let still = Still { fine, grid, slopes, beta, beta_div, tolerance, iterations };
        Ok(Self::Still(Box::new(still)))
    }

    /// About `H^-1 r`, for a system that is solved to `forcing`.
    pub fn apply(&self, grid: &PeriodicGrid, r: &FieldVector, forcing: f64) -> Result<FieldVector> {
        let r = &r.fields[0];
        let s = match self {
            Self::Regularizer(symbol) => grid.spectral(r, *symbol)?,
            Self::Still(still) => still.apply(r, forcing)?,
        };
        Ok(vector(s, grid))
    }

    /// Iterations of inner systems since it was made.
    pub fn iterations(&self) -> usize {
        match self {
            Self::Regularizer(_) => 0,
            Self::Still(still) => still.iterations.get(),
        }
    }
}

impl Still {
    fn apply(&self, r: &Sharded, forcing: f64) -> Result<Sharded> {
        if self.grid.size() == self.fine.size() {
            return self.solve(r, forcing);
        }
        let coarse = self.solve(&self.fine.resize(r, &self.grid)?, forcing)?;
        // The low modes of what the inverse of the regulariser gives are those of the coarse grid.
        let smooth = self.fine.spectral(r, self.inverse())?;
        let low = self.fine.resize(&smooth, &self.grid)?;
        let more = sum(&[(1.0, &coarse), (-1.0, &low)]);
        let more = self.grid.resize(&more, &self.fine)?;
        Ok(sum(&[(1.0, &smooth), (1.0, &more)]))
    }

    fn inverse(&self) -> Symbol {
        Symbol::InverseRegularizer { beta: self.beta, gamma: self.beta_div }
    }

    fn solve(&self, r: &Sharded, forcing: f64) -> Result<Sharded> {
        let grid = &self.grid;
        let regularizer = Symbol::Regularizer { beta: self.beta, gamma: self.beta_div };
        let solution = pcg(
            &mut |x: &FieldVector| {
                let x = &x.fields[0];
                let outers: Vec<Sharded> =
                    self.slopes.iter().map(|slope| outer(slope, x)).collect();
                let stiff = grid.spectral(x, regularizer)?;
                let terms: Vec<_> =
                    std::iter::once(&stiff).chain(&outers).map(|term| (1.0, term)).collect();
                Ok(vector(sum(&terms), grid))
            },
            &mut |r| Ok(vector(grid.spectral(&r.fields[0], self.inverse())?, grid)),
            &vector(r.clone(), grid),
            self.tolerance * forcing,
            INNER_ITERATIONS,
        )?;
        self.iterations.set(self.iterations.get() + solution.residuals.len() - 1);
        let [s] = <[Sharded; 1]>::try_from(solution.at.fields).expect("one field is solved for");
        Ok(s)
    }
}

/// `q (q . x)`.
fn outer(q: &Sharded, x: &Sharded) -> Sharded {
    q.clone().zip_map(x, |q, x| {
        let along = component_dot(q.clone(), x);
        q * along
    })
}

/// A field as a vector.
pub(super) fn vector(field: Sharded, grid: &PeriodicGrid) -> FieldVector {
    FieldVector::new(vec![field], grid.holders().clone())
}

/// Half as many voxels, at least one.
fn half(n: usize) -> usize {
    n.div_ceil(2)
}
