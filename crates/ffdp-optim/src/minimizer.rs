//! Steps downhill, whatever proposes their direction.

use std::marker::PhantomData;

use crate::objective::{Objective, Point};
use crate::search::LineSearch;
use crate::space::Space;

/// What proposes directions: an estimate of the inverse `H` of the Hessian, or a solver.
pub trait Direction<V: Space> {
    /// `-H g` and its slope `-g^T H g`; `None` before anything is known of `H`.
    ///
    /// # Errors
    /// Where inner products cannot be read.
    fn propose(&mut self, gradient: &V) -> Result<Option<Proposal<V>>, V::Error>;

    /// A step that was taken, and what it changed of the gradient.
    ///
    /// # Errors
    /// Where inner products cannot be read.
    fn learn(&mut self, step: &V, change: &V) -> Result<(), V::Error>;

    /// Forgets what it has learnt; false if there was nothing.
    fn forget(&mut self) -> bool;
}

impl<V: Space, D: Direction<V> + ?Sized> Direction<V> for Box<D> {
    fn propose(&mut self, gradient: &V) -> Result<Option<Proposal<V>>, V::Error> {
        (**self).propose(gradient)
    }

    fn learn(&mut self, step: &V, change: &V) -> Result<(), V::Error> {
        (**self).learn(step, change)
    }

    fn forget(&mut self) -> bool {
        (**self).forget()
    }
}

/// Where to go.
#[derive(Clone, Debug)]
pub struct Proposal<V> {
    /// The direction.
    pub direction: V,
    /// The slope of the loss along it.
    pub slope: f64,
}

/// Lengths of steps, in the unit of [`Objective::length`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    /// Of the first step, straight downhill: nothing is known yet of how the slope changes.
    pub first: f64,
    /// No step is longer: it would leave the valley that it starts in.
    pub longest: f64,
    /// Shorter ones are not tried.
    pub shortest: f64,
}

/// A search, from point to point.
#[derive(Clone, Debug)]
pub struct Minimizer<V, D> {
    at: V,
    /// At `at`; `None` before it was asked for.
    here: Option<Point<V>>,
    direction: D,
    search: LineSearch,
    /// The norm of a gradient that ends the search.
    flat: f64,
    /// No step gains anything any more.
    settled: bool,
    space: PhantomData<V>,
}

impl<V: Space, D: Direction<V>> Minimizer<V, D> {
    /// A search from a point on. A `direction` that has learnt elsewhere goes on with that.
    pub fn new(at: V, direction: D, search: LineSearch) -> Self {
        Self { at, here: None, direction, search, flat: 0.0, settled: false, space: PhantomData }
    }

    /// Ends where Euclid's norm of the gradient is no larger than this. Without it, or with 0, the search ends where no
    /// step gains anything.
    pub fn until(self, gradient_norm: f64) -> Self {
        Self { flat: gradient_norm, ..self }
    }

    /// Where it is.
    pub fn at(&self) -> &V {
        &self.at
    }

    /// Where it has come to, and what was learnt on the way.
    pub fn into_parts(self) -> (V, D) {
        (self.at, self.direction)
    }

    /// The loss and its gradient where it is.
    ///
    /// # Errors
    /// Those of the objective.
    pub fn here<E>(&mut self, objective: &mut dyn Objective<V, Error = E>) -> Result<&Point<V>, E> {
        if self.here.is_none() {
            self.here = Some(objective.evaluate(&self.at)?);
        }
        Ok(self.here.as_ref().expect("just found"))
    }

    /// One step downhill; false where there is none.
    ///
    /// # Errors
    /// Those of the objective.
    pub fn step<E>(
        &mut self,
        objective: &mut dyn Objective<V, Error = E>,
        steps: &Steps,
    ) -> Result<bool, E> {
        self.here(objective)?;
        self.settled = self.settled || self.is_flat(objective)?;
        if self.settled {
            return Ok(false);
        }
        let here = self.here.take().expect("just found");
        let found = self.leave(&here, objective, steps);
        if self.here.is_none() {
            self.here = Some(here);
        }
        let moved = found?;
        self.settled = !moved;
        Ok(moved)
    }

    /// Whether the gradient where it is ends the search.
    fn is_flat<E>(&self, objective: &dyn Objective<V, Error = E>) -> Result<bool, E> {
        let Some(here) = self.here.as_ref().filter(|_| self.flat > 0.0) else { return Ok(false) };
        let squared = V::dots(&[[&here.gradient, &here.gradient]]);
        Ok(squared.map_err(|e| objective.failed(e))?[0].sqrt() <= self.flat)
    }

    /// So many steps, or fewer where no further one gains anything: the loss before each, and where it has ended. None
    /// after that.
    ///
    /// # Errors
    /// Those of the objective.
    pub fn iterate<E>(
        &mut self,
        objective: &mut dyn Objective<V, Error = E>,
        steps: &Steps,
        count: usize,
    ) -> Result<Vec<f64>, E> {
        let mut losses = Vec::with_capacity(count);
        while losses.len() < count && !self.settled {
            losses.push(self.here(objective)?.loss);
            self.step(objective, steps)?;
        }
        Ok(losses)
    }

    fn leave<E>(
        &mut self,
        here: &Point<V>,
        objective: &mut dyn Objective<V, Error = E>,
        steps: &Steps,
    ) -> Result<bool, E> {
        if !here.loss.is_finite() {
            return Ok(false);
        }
        loop {
            let Some((Proposal { direction, slope }, length)) =
                self.proposal(here, objective, steps)?
            else {
                return Ok(false);
            };
            let shortest = steps.shortest / length;
            let line = |factor: f64| V::combine(&[(1.0, &self.at), (factor, &direction)]);
            let wants_slope = self.search.curvature.is_some();
            let mut evaluate = |factor: f64| match wants_slope {
                true => objective.evaluate_along(&line(factor), &direction),
                false => Ok((objective.evaluate(&line(factor))?, f64::NAN)),
            };
            let found = self.search.along(here, slope, shortest, &mut evaluate)?;
            if let Some((factor, there)) = found {
                let step = direction.scaled(factor);
                let change = V::combine(&[(1.0, &there.gradient), (-1.0, &here.gradient)]);
                self.direction.learn(&step, &change).map_err(|e| objective.failed(e))?;
                self.at = V::combine(&[(1.0, &self.at), (1.0, &step)]);
                self.here = Some(there);
                return Ok(true);
            }
            // The valley may have changed its shape: once more without what is known of it.
            if !self.direction.forget() {
                return Ok(false);
            }
        }
    }

    /// Where to go, no longer than allowed, and how long that is; `None` where the loss is flat.
    fn proposal<E>(
        &mut self,
        here: &Point<V>,
        objective: &mut dyn Objective<V, Error = E>,
        steps: &Steps,
    ) -> Result<Option<(Proposal<V>, f64)>, E> {
        let proposed = self.direction.propose(&here.gradient).map_err(|e| objective.failed(e))?;
        let is_first = proposed.is_none();
        let Proposal { direction, slope } = match proposed {
            Some(proposal) => proposal,
            None => {
                let squared = V::dots(&[[&here.gradient, &here.gradient]]);
                let slope = -squared.map_err(|e| objective.failed(e))?[0];
                Proposal { direction: here.gradient.scaled(-1.0), slope }
            }
        };
        let length = objective.length(&direction)?;
        if length == 0.0 {
            return Ok(None);
        }
        let factor =
            if is_first { steps.first / length } else { (steps.longest / length).min(1.0) };
        let direction = if factor == 1.0 { direction } else { direction.scaled(factor) };
        Ok(Some((Proposal { direction, slope: factor * slope }, factor * length)))
    }
}
