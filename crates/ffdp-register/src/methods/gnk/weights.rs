//! The weight of the regularisation: from a large one, with which the problem is easy, to the one that is wanted, or to
//! the least that keeps the map within bounds.

use serde::{Deserialize, Serialize};

use super::problem::VelocityProblem;
use crate::report::NewtonStep;
use ffdp_image::error::{Error, Result};
use ffdp_optim::{GaussNewton, GaussNewtonOptions, Space};
use ffdp_parallel::deform::FieldVector;

/// What the determinant of the map's derivative must not leave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeterminantBounds {
    /// Default 0.25 (Mang et al. 2019): no volume shrinks to less than a quarter.
    pub least: f64,
    /// Default 4.
    pub most: f64,
}

impl Default for DeterminantBounds {
    fn default() -> Self {
        Self { least: 0.25, most: 4.0 }
    }
}

impl DeterminantBounds {
    pub(super) fn validate(&self) -> Result<()> {
        if 0.0 < self.least && self.least < 1.0 && 1.0 < self.most && self.most.is_finite() {
            return Ok(());
        }
        let what = "bounds of the determinant lie around 1, and above 0";
        Err(Error::invalid(what, self, "use, for example, 0.25 and 4"))
    }

    fn hold(&self, [low, high]: [f64; 2]) -> bool {
        self.least <= low && high <= self.most
    }
}

/// How `beta` comes to its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regularizing {
    /// Where it begins; the same as `beta` for nothing before it.
    pub first: f64,
    /// The one that is wanted.
    pub beta: f64,
    /// Bounds within which less is wanted.
    pub bounds: Option<DeterminantBounds>,
}

/// No weight that is searched is smaller: what it regularises is lost in f32.
const LEAST_BETA: f64 = 1e-6;
/// None is larger.
const MOST_BETA: f64 = 10.0;
/// Halvings of the decade in which bounds are reached: to a factor of `10^(1/8)`, 1.33.
const HALVINGS: usize = 3;

/// A search under way, over one `beta` after the other.
pub(super) struct WeightSearch {
    plan: Plan,
    newton: GaussNewton<FieldVector>,
    options: GaussNewtonOptions,
    /// The norm of the images' gradient at rest.
    reference: f64,
    ended: bool,
}

/// Which `beta` comes next.
struct Plan {
    regularizing: Regularizing,
    /// The one under way.
    at: f64,
    /// The least that kept the bounds so far, and what it led to.
    kept: Option<(f64, FieldVector)>,
    /// The largest that did not.
    broken: Option<f64>,
    halvings: usize,
}

/// What is done with the `beta` that has ended.
enum Next {
    /// From where it has come to.
    On(f64),
    /// From an earlier velocity.
    From(f64, FieldVector),
    /// No more: the velocity that was wanted is an earlier one, or that.
    End(Option<FieldVector>),
}

impl Plan {
    fn next(&mut self, within: bool, reached: &FieldVector) -> Next {
        let Regularizing { beta, bounds, .. } = self.regularizing;
        // Less than this above it is rounding.
        if self.at > beta * (1.0 + 1e-9) && self.broken.is_none() {
            if bounds.is_none() || within {
                return Next::On((self.at / 10.0).max(beta));
            }
        } else if bounds.is_none() {
            return Next::End(None);
        }
        if within {
            self.kept = Some((self.at, reached.clone()));
        } else {
            self.broken = Some(self.at);
        }
        match (&self.kept, self.broken) {
            (Some((kept, _)), None) if kept / 10.0 >= LEAST_BETA => Next::On(kept / 10.0),
            (Some(_), None) => Next::End(None),
            (None, Some(broken)) if 10.0 * broken <= MOST_BETA => Next::On(10.0 * broken),
            (None, _) => Next::End(None),
            (Some((_, velocity)), Some(_)) if self.halvings == HALVINGS => {
                Next::End(Some(velocity.clone()))
            }
            (Some((kept, velocity)), Some(broken)) => {
                self.halvings += 1;
                Next::From((kept * broken).sqrt(), velocity.clone())
            }
        }
    }
}

impl WeightSearch {
    /// From a velocity on, or from rest.
    ///
    /// # Errors
    /// Those of the problem.
    pub fn new(
        problem: &mut VelocityProblem,
        start: Option<FieldVector>,
        regularizing: Regularizing,
        options: GaussNewtonOptions,
    ) -> Result<Self> {
        problem.set_beta(regularizing.first, None)?;
        let mut newton = GaussNewton::new(problem.rest(), None, options);
        let gradient = &newton.here(problem)?.gradient;
        let reference = reference(problem, gradient)?;
        newton = match start {
            None => GaussNewton::new(problem.rest(), Some(reference), options)
                .knowing(newton.take_here()),
            Some(start) => GaussNewton::new(start, Some(reference), options),
        };
        let (at, kept, broken, halvings) = (regularizing.first, None, None, 0);
        let plan = Plan { regularizing, at, kept, broken, halvings };
        Ok(Self { plan, newton, options, reference, ended: false })
    }

    /// What it has found: where it is, or before it has ended the best that kept its bounds.
    pub fn at(&self) -> &FieldVector {
        match &self.plan.kept {
            Some((_, velocity)) if !self.ended => velocity,
            _ => self.newton.at(),
        }
    }

    /// The loss where it is, per value that counts.
    pub fn loss(&mut self, problem: &mut VelocityProblem) -> Result<f64> {
        let loss = self.newton.here(problem)?.loss;
        Ok(loss / problem.seen().expect("it was just seen").count)
    }

    /// One step; `None` where all is done.
    ///
    /// # Errors
    /// Those of the problem.
    pub fn step(&mut self, problem: &mut VelocityProblem) -> Result<Option<NewtonStep>> {
        while !self.ended {
            let inner = problem.inner_iterations();
            let Some(step) = self.newton.step(problem)? else {
                self.ended = !self.advance(problem)?;
                continue;
            };
            return Ok(Some(NewtonStep {
                beta: self.plan.at,
                loss: step.loss / problem.seen().expect("it was just seen").count,
                gradient: step.relative,
                residuals: step.residuals,
                inner_iterations: problem.inner_iterations() - inner,
                step: step.step,
            }));
        }
        Ok(None)
    }

    /// On to the next `beta`; false where there is none.
    fn advance(&mut self, problem: &mut VelocityProblem) -> Result<bool> {
        let within = match &self.plan.regularizing.bounds {
            None => true,
            Some(bounds) => {
                self.newton.here(problem)?;
                bounds.hold(problem.determinants()?)
            }
        };
        let begin = |at: FieldVector| GaussNewton::new(at, Some(self.reference), self.options);
        match self.plan.next(within, self.newton.at()) {
            Next::On(beta) => {
                let (at, here) = (self.newton.at().clone(), self.newton.take_here());
                let here = problem.set_beta(beta, here.map(|here| (&at, here)))?;
                (self.plan.at, self.newton) = (beta, begin(at).knowing(here));
                Ok(true)
            }
            Next::From(beta, velocity) => {
                problem.set_beta(beta, None)?;
                (self.plan.at, self.newton) = (beta, begin(velocity));
                Ok(true)
            }
            Next::End(velocity) => {
                if let Some(velocity) = velocity {
                    self.newton = begin(velocity);
                }
                Ok(false)
            }
        }
    }
}

/// Part of the whole gradient at rest below which that of the images is nothing.
const LEAST_OF_IMAGES: f64 = 1e-3;

/// What the norm of a gradient is measured by, from that at rest: the part of the images. That of landmarks, single
/// voxels that are pulled at, is many times as long, and would be small enough before the images are looked at.
fn reference(problem: &VelocityProblem, gradient: &FieldVector) -> Result<f64> {
    let images = problem.without_landmarks(gradient);
    let squares = FieldVector::dots(&[[&images, &images], [gradient, gradient]])?;
    Ok(squares[0].sqrt().max(LEAST_OF_IMAGES * squares[1].sqrt()))
}

/// The velocity that is best for a problem, from rest or from another on, and the steps that led there.
///
/// # Errors
/// Those of the problem.
pub fn minimize(
    problem: &mut VelocityProblem,
    start: Option<FieldVector>,
    regularizing: Regularizing,
    options: GaussNewtonOptions,
    steps: usize,
) -> Result<(FieldVector, Vec<NewtonStep>)> {
    let mut search = WeightSearch::new(problem, start, regularizing, options)?;
    let mut gone = Vec::new();
    while gone.len() < steps {
        let Some(step) = search.step(problem)? else { break };
        gone.push(step);
    }
    Ok((search.at().clone(), gone))
}
