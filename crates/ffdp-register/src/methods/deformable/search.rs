//! What moves the parameters of a model downhill.

use crate::settings::Lines;
use ffdp_image::error::Result;
use ffdp_optim::{Direction, Minimizer, Space, Steps};
use ffdp_parallel::deform::{FieldModel, ShardedObjective};

/// What moves the parameters of a model.
pub(super) trait Optimizer<M: FieldModel> {
    /// Where they are.
    fn at(&self) -> &M::Parameters;

    /// Some steps, or fewer where nothing is gained: the loss before each.
    fn iterate(&mut self, objective: &mut ShardedObjective<M>, count: usize) -> Result<Vec<f64>>;
}

/// Steps along lines, each of which lowers the loss.
pub(super) struct LineSteps<P> {
    search: Minimizer<P, Box<dyn Direction<P>>>,
    steps: Steps,
}

impl<P: Space> LineSteps<P> {
    /// From a point on.
    pub fn new(at: P, lines: Lines<P>) -> Self {
        let Lines { direction, search, steps } = lines;
        Self { search: Minimizer::new(at, direction, search), steps }
    }

    /// The same, that end where the gradient is so short (see [`Minimizer::until`]).
    pub fn until(self, gradient_norm: f64) -> Self {
        Self { search: self.search.until(gradient_norm), ..self }
    }

    /// Where they have led.
    pub fn at(&self) -> &P {
        self.search.at()
    }
}

impl<M: FieldModel> Optimizer<M> for LineSteps<M::Parameters> {
    fn at(&self) -> &M::Parameters {
        self.search.at()
    }

    fn iterate(&mut self, objective: &mut ShardedObjective<M>, count: usize) -> Result<Vec<f64>> {
        self.search.iterate(objective, &self.steps, count)
    }
}
