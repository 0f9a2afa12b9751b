//! One level under way: fields that first-order iterations improve, or parameters of fields that are searched.

use std::f64::consts::FRAC_1_SQRT_2;

use super::control::Control;
use super::deformation::Deformation;
use super::method::{FieldMethod, smoothing, voxels};
use crate::fields::Fields;
use crate::level::Solver;
use crate::pair::{LevelPair, read};
use crate::settings::{LbfgsSettings, OptimizerSettings};
use ffdp_burn::error::Result;
use ffdp_burn::image::{Affine, Geometry, Physical};
use ffdp_burn::transform::BsplineTransform;
use ffdp_optim::{Direction, Lbfgs, Minimizer, Search, Steepest, Steps};
use ffdp_parallel::{
    ControlPoints, FieldModel, Sharded, ShardedDeform, ShardedObjective, SmoothSteps, SplineModel,
};

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
        return splines(kind, (pair, affine), fields, control);
    }
    let fields = fields.map_or_else(|| kind.still(&pair.still()), |fields| fields.parts);
    let options = kind.options(grid, &pair.index_map(affine));
    let similarity = descent.similarity.loss();
    let OptimizerSettings::Lbfgs(settings) = descent.optimizer else {
        return Ok(Box::new(pair.deform(similarity, affine, fields, &options)?));
    };
    // A step is smoothed twice, as a gradient and as a displacement.
    let sigma = FRAC_1_SQRT_2 * descent.sigma_gradient_voxels.hypot(descent.sigma_field_voxels);
    let of_steps = (smoothing(grid, sigma), voxels(grid, 1.0));
    let (mesh, holders) = (&pair.places.work, &pair.places.team.fixed);
    let model = SmoothSteps::new(fields, of_steps, mesh, holders);
    let direction = Lbfgs::new(settings.history);
    Ok(Box::new(Searched {
        search: Minimizer::new(model.rest(), direction, Search::wolfe()),
        objective: pair.objective(similarity, affine, model, &options)?,
        steps: Steps {
            first: descent.learning_rate_voxels,
            longest: LONGEST * descent.learning_rate_voxels,
            shortest: SHORTEST * descent.learning_rate_voxels,
        },
    }))
}

/// A level of control points, from the spline that `fields` are or beside what they are.
fn splines(
    kind: &dyn FieldMethod,
    (pair, affine): (&LevelPair, &Affine<Physical, Physical>),
    fields: Option<Fields>,
    control: &Control,
) -> Result<Box<dyn Deformation>> {
    let (descent, level) = (kind.descent(), &pair.grids[0]);
    let (mesh, holders) = (&pair.places.work, &pair.places.team.fixed);
    let still = pair.still();
    let like = (mesh.device(0), still.shards()[0].dtype());
    let spline = fields.as_ref().and_then(|fields| fields.spline.as_ref());
    let same = spline.map(|spline| control.same_field(spline, level, like)).transpose()?.flatten();
    let ended = spline.filter(|spline| same.is_some() && control.has(spline)).cloned();
    let (coefficients, start) = match (same, fields) {
        (Some(coefficients), _) => (coefficients, None),
        (None, fields) => (control.still(like), fields.map(|mut fields| fields.parts.remove(0))),
    };
    let model = SplineModel::new(
        (&still, start),
        (coefficients, control.grid),
        (level.spacing_mm, control.penalties),
        mesh,
        holders,
    );
    let options = kind.options(level, &pair.index_map(affine));
    let rest = model.rest();
    let objective = pair.objective(descent.similarity.loss(), affine, model, &options)?;
    let first = descent.learning_rate_voxels;
    let place = (level.clone(), control.clone());
    // Nothing was found beyond what a run was ended with, until there is an iteration.
    let reached = ended.map(|spline| (rest.clone(), spline));
    Ok(match descent.optimizer {
        OptimizerSettings::Lbfgs(LbfgsSettings { history }) => {
            let search = Minimizer::new(rest, Lbfgs::new(history), Search::wolfe());
            let steps = Steps { first, longest: LONGEST * first, shortest: SHORTEST * first };
            Box::new(Splined { searched: Searched { objective, search, steps }, place, reached })
        }
        _ => {
            let search = Minimizer::new(rest, Steepest, Search::armijo());
            let steps = Steps { first, longest: first, shortest: STEEPEST_SHORTEST * first };
            Box::new(Splined { searched: Searched { objective, search, steps }, place, reached })
        }
    })
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

    fn into_fields(self: Box<Self>) -> Result<(Vec<Sharded>, Option<BsplineTransform>)> {
        Ok((self.into_state().fields, None))
    }
}

/// Of the first step, the longest and the shortest that are tried: with the usual one a voxel, and a
/// thousandth of it.
const LONGEST: f64 = 4.0;
const SHORTEST: f64 = 4e-3;
/// A step of steepest descent that is given up (Ikeda et al. 2014).
const STEEPEST_SHORTEST: f64 = 0.1;

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

    fn into_fields(self: Box<Self>) -> Result<(Vec<Sharded>, Option<BsplineTransform>)> {
        Ok((self.objective.model().fields(self.search.at())?, None))
    }
}

/// Control points that are searched, with their level.
struct Splined<D> {
    searched: Searched<SplineModel, D>,
    place: (Geometry, Control),
    /// What was reached as a transform, and the parameters that are read from it: what goes on from a file is what goes
    /// on from here, to the bit.
    reached: Option<(ControlPoints, BsplineTransform)>,
}

impl<D: Direction<ControlPoints>> Splined<D> {
    /// The parameters that were reached, and the transform that they are.
    fn reached(&mut self) -> Result<(ControlPoints, Option<BsplineTransform>)> {
        let (model, at) = (self.searched.objective.model(), self.searched.search.at());
        if !model.is_alone() {
            return Ok((at.clone(), None));
        }
        if self.reached.is_none() {
            let (level, control) = &self.place;
            let (coefficients, _) = model.coefficients(at);
            let like = (coefficients.device(), coefficients.dtype());
            let spline = control.transform(coefficients, level)?;
            let same = control.same_field(&spline, level, (&like.0, like.1))?;
            let same = same.expect("it has these control points");
            self.reached = Some((model.parameters(same), spline));
        }
        let (at, spline) = self.reached.clone().expect("just made");
        Ok((at, Some(spline)))
    }
}

impl<D: Direction<ControlPoints>> Solver for Splined<D> {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        self.reached = None;
        self.searched.iterate(iterations)
    }
}

impl<D: Direction<ControlPoints>> Deformation for Splined<D> {
    fn loss(&mut self) -> Result<f64> {
        let (at, _) = self.reached()?;
        Ok(read(self.searched.objective.loss(&at)?)?[0])
    }

    fn into_fields(mut self: Box<Self>) -> Result<(Vec<Sharded>, Option<BsplineTransform>)> {
        let (at, spline) = self.reached()?;
        Ok((self.searched.objective.model().fields(&at)?, spline))
    }
}
