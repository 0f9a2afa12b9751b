//! Gauss and Newton's method without matrices: each step solves a linear system by [`pcg`](crate::pcg()), no more
//! exactly than the gradient deserves, and goes along it as far as a line search says.
//!
//! ```text
//! H d = -g   until |H d + g| <= eps |g|,   eps = min(sqrt(|g| / |g_0|), eps_most)
//! x += a d   Armijo's a;                   done when |g| <= tolerance |g_0|
//! ```
//! `H` about the Hessian, positive semidefinite · `g_0` the gradient that others are measured by. Sources: Nocedal and
//! Wright, algorithm 7.1; Eisenstat and Walker, Choosing the forcing terms in an inexact Newton method, 1996.

use crate::objective::{Objective, Point};
use crate::pcg::pcg;
use crate::search::LineSearch;
use crate::space::Space;

/// An objective that knows how its gradient changes.
pub trait Curved<V: Space>: Objective<V, Error = V::Error> {
    /// `H x` at the point that was evaluated last.
    ///
    /// # Errors
    /// Where it cannot be computed.
    fn hessian(&self, x: &V) -> Result<V, V::Error>;

    /// About `H^-1 r` at the point that was evaluated last; linear in `r`, positive definite. `tolerance` is that of the
    /// system which is solved, for a preconditioner that iterates itself.
    ///
    /// # Errors
    /// Where it cannot be computed.
    fn precondition(&self, r: &V, tolerance: f64) -> Result<V, V::Error>;

    /// Called before the systems of a point are solved: for what their preconditioner needs.
    ///
    /// # Errors
    /// Where it cannot be computed.
    fn prepare(&mut self) -> Result<(), V::Error> {
        Ok(())
    }
}

/// When a search ends, and how exactly its systems are solved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussNewtonOptions {
    /// Ends where the gradient is so small a part of the first.
    pub tolerance: f64,
    /// `eps_most`.
    pub forcing: f64,
    /// Iterations of a system at most.
    pub krylov: usize,
    /// Of the line.
    pub search: LineSearch,
    /// The shortest part of a step that is tried.
    pub shortest: f64,
}

impl Default for GaussNewtonOptions {
    /// Those of Brunn et al. 2021: 5e-2, 0.5, 50, Armijo's condition.
    fn default() -> Self {
        Self {
            tolerance: 5e-2,
            forcing: 0.5,
            krylov: 50,
            search: LineSearch::armijo(),
            shortest: 1e-3,
        }
    }
}

/// One step, for who watches.
#[derive(Clone, Debug, PartialEq)]
pub struct GaussNewtonStep {
    /// The loss before it.
    pub loss: f64,
    /// The norm of the gradient before it.
    pub gradient: f64,
    /// The same as a part of the first.
    pub relative: f64,
    /// `eps`.
    pub forcing: f64,
    /// `|H d + g| / |g|` before each iteration of the system, and after the last: one more than there were.
    pub residuals: Vec<f64>,
    /// `a`; `None` where no step lowered the loss.
    pub step: Option<f64>,
}

impl GaussNewtonStep {
    /// Iterations of its system.
    pub fn krylov(&self) -> usize {
        self.residuals.len() - 1
    }
}

/// A search, from point to point.
#[derive(Clone, Debug)]
pub struct GaussNewton<V> {
    at: V,
    /// At `at`; `None` before it was asked for.
    here: Option<Point<V>>,
    /// `|g_0|`; that where it begins unless it was given.
    reference: Option<f64>,
    options: GaussNewtonOptions,
    settled: bool,
}

impl<V: Space> GaussNewton<V> {
    /// A search from a point on. Gradients are measured by `reference`, or by the first one.
    pub fn new(at: V, reference: Option<f64>, options: GaussNewtonOptions) -> Self {
        Self { at, here: None, reference, options, settled: false }
    }

    /// The same, where the loss and its gradient are known already: they were evaluated last.
    pub fn knowing(mut self, here: Option<Point<V>>) -> Self {
        self.here = here;
        self
    }

    /// The loss and its gradient where it is, if they were evaluated last.
    pub fn take_here(&mut self) -> Option<Point<V>> {
        self.here.take()
    }

    /// Where it is.
    pub fn at(&self) -> &V {
        &self.at
    }

    /// `|g_0|`, once there was a gradient.
    pub fn reference(&self) -> Option<f64> {
        self.reference
    }

    /// The loss and its gradient where it is.
    ///
    /// # Errors
    /// Those of the objective.
    pub fn here(&mut self, problem: &mut dyn Curved<V>) -> Result<&Point<V>, V::Error> {
        if self.here.is_none() {
            self.here = Some(problem.evaluate(&self.at)?);
        }
        Ok(self.here.as_ref().expect("just found"))
    }

    /// One step, and how it went; `None` where the gradient is small enough, or no step lowered the loss before.
    ///
    /// # Errors
    /// Those of the problem.
    pub fn step(
        &mut self,
        problem: &mut dyn Curved<V>,
    ) -> Result<Option<GaussNewtonStep>, V::Error> {
        if self.settled {
            return Ok(None);
        }
        self.here(problem)?;
        let here = self.here.take().expect("just found");
        let gradient = V::dots(&[[&here.gradient, &here.gradient]])?[0].sqrt();
        let reference = *self.reference.get_or_insert(gradient);
        let relative = if reference > 0.0 { gradient / reference } else { 0.0 };
        let options = self.options;
        if relative <= options.tolerance || gradient == 0.0 || !here.loss.is_finite() {
            (self.settled, self.here) = (true, Some(here));
            return Ok(None);
        }
        let forcing = relative.sqrt().min(options.forcing);
        problem.prepare()?;
        let system = &*problem;
        let solution = pcg(
            &mut |x| system.hessian(x),
            &mut |r| system.precondition(r, forcing),
            &here.gradient.scaled(-1.0),
            forcing,
            options.krylov,
        )?;
        let (direction, residuals) = (solution.at, solution.residuals);
        let slope = V::dots(&[[&here.gradient, &direction]])?[0];
        let line = |factor: f64| V::combine(&[(1.0, &self.at), (factor, &direction)]);
        let wants_slope = options.search.curvature.is_some();
        let mut evaluate = |factor: f64| match wants_slope {
            true => problem.evaluate_along(&line(factor), &direction),
            false => Ok((problem.evaluate(&line(factor))?, f64::NAN)),
        };
        let found = options.search.along(&here, slope, options.shortest, &mut evaluate)?;
        let loss = here.loss;
        let step = match found {
            Some((factor, there)) => {
                (self.at, self.here) = (line(factor), Some(there));
                Some(factor)
            }
            // What was evaluated last lies elsewhere.
            None => {
                self.settled = true;
                None
            }
        };
        Ok(Some(GaussNewtonStep { loss, gradient, relative, forcing, residuals, step }))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Half the squares of `r_i = a_i (x_i - 1) + b x_i x_(i+1)`.
    struct Residuals {
        at: Vec<f64>,
        evaluations: usize,
        prepared: usize,
    }

    const COUPLING: f64 = 0.3;

    impl Residuals {
        fn scale(i: usize) -> f64 {
            1.0 + i as f64
        }

        fn residual(x: &[f64]) -> Vec<f64> {
            let next = |i: usize| x[(i + 1) % x.len()];
            let of = |i: usize| Self::scale(i) * (x[i] - 1.0) + COUPLING * x[i] * next(i);
            (0..x.len()).map(of).collect()
        }

        /// `J d` and `J^T r` at `x`.
        fn forward(x: &[f64], d: &[f64]) -> Vec<f64> {
            let n = x.len();
            let of = |i: usize| {
                let j = (i + 1) % n;
                (Self::scale(i) + COUPLING * x[j]) * d[i] + COUPLING * x[i] * d[j]
            };
            (0..n).map(of).collect()
        }

        fn backward(x: &[f64], r: &[f64]) -> Vec<f64> {
            let n = x.len();
            let mut g = vec![0.0; n];
            for i in 0..n {
                let j = (i + 1) % n;
                g[i] += (Self::scale(i) + COUPLING * x[j]) * r[i];
                g[j] += COUPLING * x[i] * r[i];
            }
            g
        }
    }

    impl Objective<Vec<f64>> for Residuals {
        type Error = Infallible;

        fn evaluate(&mut self, at: &Vec<f64>) -> Result<Point<Vec<f64>>, Infallible> {
            self.evaluations += 1;
            self.at = at.clone();
            let r = Self::residual(at);
            let loss = 0.5 * r.iter().map(|r| r * r).sum::<f64>();
            Ok(Point { loss, gradient: Self::backward(at, &r) })
        }

        fn failed(&self, reason: Infallible) -> Infallible {
            reason
        }
    }

    impl Curved<Vec<f64>> for Residuals {
        fn hessian(&self, x: &Vec<f64>) -> Result<Vec<f64>, Infallible> {
            Ok(Self::backward(&self.at, &Self::forward(&self.at, x)))
        }

        fn precondition(&self, r: &Vec<f64>, _: f64) -> Result<Vec<f64>, Infallible> {
            let over = |(i, r): (usize, &f64)| r / Self::scale(i).powi(2);
            Ok(r.iter().enumerate().map(over).collect())
        }

        fn prepare(&mut self) -> Result<(), Infallible> {
            self.prepared += 1;
            Ok(())
        }
    }

    fn search(options: GaussNewtonOptions) -> (Vec<GaussNewtonStep>, Vec<f64>, Residuals) {
        let mut problem = Residuals { at: Vec::new(), evaluations: 0, prepared: 0 };
        let mut search = GaussNewton::new(vec![3.0; 12], None, options);
        let mut steps = Vec::new();
        while let Some(step) = search.step(&mut problem).unwrap() {
            steps.push(step);
        }
        (steps, search.at().clone(), problem)
    }

    #[test]
    fn few_steps_end_where_the_residuals_do() {
        let exact = GaussNewtonOptions { tolerance: 1e-10, ..Default::default() };
        let (steps, at, problem) = search(exact);
        let left = Residuals::residual(&at).iter().fold(0.0f64, |most, r| most.max(r.abs()));
        assert!(left < 1e-8 && steps.len() < 15, "{left} {steps:?}");
        assert!(steps.windows(2).all(|pair| pair[1].loss < pair[0].loss), "{steps:?}");
        // A point is evaluated once: what the line search has seen is what the next step begins with. A step that is
        // shortened was tried at its full length.
        let shortened = steps.iter().filter(|step| step.step != Some(1.0)).count();
        let evaluations = steps.len() + 1 + shortened;
        assert_eq!((problem.evaluations, problem.prepared), (evaluations, steps.len()));
    }

    #[test]
    fn systems_are_solved_as_exactly_as_the_gradient_deserves() {
        let (steps, ..) = search(GaussNewtonOptions { tolerance: 1e-6, ..Default::default() });
        for step in &steps {
            assert!((step.forcing - step.relative.sqrt().min(0.5)).abs() < 1e-15, "{step:?}");
            let (last, before) = step.residuals.split_last().expect("that before is there");
            assert!(*last <= step.forcing, "{step:?}");
            assert!(before.iter().all(|left| *left > step.forcing), "{step:?}");
        }
    }

    #[test]
    fn a_given_reference_ends_a_search_that_begins_near_its_end() {
        let (_, at, mut problem) = search(GaussNewtonOptions::default());
        let mut again = GaussNewton::new(at, Some(1e6), GaussNewtonOptions::default());
        assert!(again.step(&mut problem).unwrap().is_none());
        assert_eq!(again.reference(), Some(1e6));
    }
}
