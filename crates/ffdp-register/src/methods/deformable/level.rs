//! One level under way: fields that first-order iterations improve, or parameters of fields that are searched.

use std::f64::consts::FRAC_1_SQRT_2;

use super::control::Control;
use super::deformation::{Deformation, LONGEST, Reached, SHORTEST};
use super::method::{FieldMethod, smoothing, voxels};
use super::splined;
use crate::fields::Fields;
use crate::level::Solver;
use crate::pair::{LevelPair, read};
use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Physical};
use ffdp_optim::{Direction, Lbfgs, LineSearch, Minimizer, Steps};
use ffdp_parallel::deform::{FieldModel, ShardedDeform, ShardedObjective, SmoothSteps};

/// A level of `kind` from `fields` on, or from rest; of its control points, where it has any.
pub(super) fn begin(
    kind: &dyn FieldMethod,
    pair: &LevelPair,
    affine: &Affine<Physical, Physical>,
    fields: Option<Fields>,
    control: Option<&Control>,
) -> Result<Box<dyn Deformation>> {
    let (descent, grid) = (kind.descent(), &pair.grids[0]);
    if let Some(control) = control {
        return splined::begin(kind, (pair, affine), fields, control);
    }
    let fields =
        fields.map_or_else(|| kind.zero_fields(&pair.zero_displacement()), |fields| fields.parts);
    let options = kind.options(grid, &pair.index_map(affine));
    let similarity = descent.similarity.loss();
    let Some(history) = descent.optimizer.kept_steps() else {
        return Ok(Box::new(pair.deform(similarity, affine, fields, &options)?));
    };
    // A step is smoothed twice, as a gradient and as a displacement.
    let sigma = FRAC_1_SQRT_2 * descent.sigma_gradient_voxels.hypot(descent.sigma_field_voxels);
    let of_steps = (smoothing(grid, sigma), voxels(grid, 1.0));
    let (mesh, holders) = (&pair.places.fixed.work, &pair.places.team.fixed);
    let model = SmoothSteps::new(fields, of_steps, mesh, holders);
    let direction = Lbfgs::new(history);
    Ok(Box::new(Searched {
        search: Minimizer::new(model.rest(), direction, LineSearch::wolfe()),
        objective: pair.objective(similarity, affine, model, &options)?,
        steps: Steps {
            first: descent.learning_rate_voxels,
            longest: LONGEST * descent.learning_rate_voxels,
            shortest: SHORTEST * descent.learning_rate_voxels,
        },
    }))
}

impl Solver for ShardedDeform {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        read(ShardedDeform::iterate(self, iterations)?)
    }
}

impl Deformation for ShardedDeform {
    fn loss(&mut self) -> Result<f64> {
        Ok(read(ShardedDeform::loss(self)?)?[0])
    }

    fn into_fields(self: Box<Self>) -> Result<Reached> {
        Ok((ShardedDeform::into_fields(*self), None))
    }
}

/// Parameters of a model, and what searches them.
struct Searched<M: FieldModel, D> {
    objective: ShardedObjective<M>,
    search: Minimizer<M::Parameters, D>,
    steps: Steps,
}

impl<M: FieldModel, D: Direction<M::Parameters>> Solver for Searched<M, D> {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        self.search.iterate(&mut self.objective, &self.steps, iterations)
    }
}

impl<M: FieldModel, D: Direction<M::Parameters>> Deformation for Searched<M, D> {
    fn loss(&mut self) -> Result<f64> {
        Ok(read(self.objective.loss(self.search.at())?)?[0])
    }

    fn into_fields(self: Box<Self>) -> Result<Reached> {
        Ok((self.objective.model().fields(self.search.at())?, None))
    }
}
