//! What moves the parameters of a model downhill.

use ffdp_image::error::Result;
use ffdp_optim::{Direction, Lbfgs, LineSearch, Minimizer, Space, Steepest, Steps};
use ffdp_parallel::deform::{FieldModel, ShardedObjective};

/// What moves the parameters of a model.
pub(super) trait Optimizer<M: FieldModel> {
    /// Where they are.
    fn at(&self) -> &M::Parameters;

    /// Some steps, or fewer where nothing is gained: the loss before each.
    fn iterate(&mut self, objective: &mut ShardedObjective<M>, count: usize) -> Result<Vec<f64>>;
}

/// Steps along lines, each of which lowers the loss.
pub(super) struct LineSteps<P, D> {
    search: Minimizer<P, D>,
    steps: Steps,
}

/// The longest step and the shortest that is tried, of the first: with the usual one a voxel, and a thousandth of it.
const LONGEST: f64 = 4.0;
const SHORTEST: f64 = 4e-3;
/// A step of steepest descent that is given up (Ikeda et al. 2014).
const STEEPEST_SHORTEST: f64 = 0.1;

impl<P: Space> LineSteps<P, Lbfgs<P>> {
    /// L-BFGS, which remembers `history` steps, with a first step of so many voxels.
    pub fn lbfgs(at: P, history: usize, first: f64) -> Self {
        let search = Minimizer::new(at, Lbfgs::new(history), LineSearch::wolfe());
        Self {
            search,
            steps: Steps { first, longest: LONGEST * first, shortest: SHORTEST * first },
        }
    }
}

impl<P: Space> LineSteps<P, Steepest> {
    /// Steepest descent by steps of so many voxels or less.
    pub fn steepest(at: P, first: f64) -> Self {
        let search = Minimizer::new(at, Steepest, LineSearch::armijo());
        Self { search, steps: Steps { first, longest: first, shortest: STEEPEST_SHORTEST * first } }
    }
}

impl<P: Space, D: Direction<P>> LineSteps<P, D> {
    /// The same, that end where the gradient is so short (see [`Minimizer::until`]).
    pub fn until(self, gradient_norm: f64) -> Self {
        Self { search: self.search.until(gradient_norm), ..self }
    }

    /// Where they have led.
    pub fn at(&self) -> &P {
        self.search.at()
    }
}

impl<M: FieldModel, D: Direction<M::Parameters>> Optimizer<M> for LineSteps<M::Parameters, D> {
    fn at(&self) -> &M::Parameters {
        self.search.at()
    }

    fn iterate(&mut self, objective: &mut ShardedObjective<M>, count: usize) -> Result<Vec<f64>> {
        self.search.iterate(objective, &self.steps, count)
    }
}
