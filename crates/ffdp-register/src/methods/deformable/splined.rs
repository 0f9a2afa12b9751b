//! A level of control points under way: whatever moves them, and the spline that they are in the end.

use std::sync::Arc;

use super::control::Control;
use super::deformation::{Deformation, Reached};
use super::method::FieldMethod;
use super::search::{LineSteps, Optimizer};
use crate::fields::Fields;
use crate::level::Solver;
use crate::pair::{LevelPair, read};
use crate::parametric::Parametric;
use crate::settings::Lines;
use ffdp_burn::ops::{AdamOptions, Moments, adam};
use ffdp_burn::transform::BsplineTransform;
use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Geometry, Physical};
use ffdp_kit::TensorPlace;
use ffdp_optim::{Objective as _, Point, Space as _};
use ffdp_parallel::deform::{
    Coefficients, ControlPoints, FieldModel, ShardedObjective, SplineModel,
};

/// A level of control points, from the spline that `fields` are, or on top of what they are.
pub(super) fn begin(
    kind: &dyn FieldMethod,
    pair: &LevelPair,
    affine: &Affine<Physical, Physical>,
    fields: Option<Fields>,
    control: &Control,
) -> Result<Box<dyn Deformation>> {
    let (descent, level) = (kind.descent(), &pair.grids[0]);
    let (mesh, holders) = (&pair.places.fixed.work, &pair.places.team.fixed);
    let still = pair.zero_displacement();
    let like = &TensorPlace::new(mesh.device(0), still.shards()[0].dtype());
    let exact = fields.as_ref().and_then(|fields| fields.exact.as_ref());
    let spline = exact.and_then(|exact| exact.downcast::<BsplineTransform>());
    let same = spline.map(|spline| control.same_field(spline, level, like)).transpose()?.flatten();
    let ended = spline.filter(|spline| same.is_some() && control.has(spline)).cloned();
    let (coefficients, start) = match (same, fields) {
        (Some(coefficients), _) => (coefficients, None),
        (None, fields) => {
            (control.zero_coefficients(like), fields.map(|mut fields| fields.parts.remove(0)))
        }
    };
    let points = ControlPoints {
        coefficients,
        grid: control.grid,
        voxel_mm: level.spacing_mm,
        penalties: control.penalties,
    };
    let model =
        SplineModel::new(&still, start, points, mesh, holders).by_differences(control.differences);
    let options = kind.options(level, &pair.index_map(affine));
    let rest = model.rest();
    let objective = pair.objective(descent.similarity.loss(), affine, model, &options)?;
    let first = descent.learning_rate_voxels;
    let lines = descent.optimizer.lines(first);
    let adam = descent.optimizer.first_order().adam();
    let flat = control.gradient_tolerance;
    let optimizer: Box<dyn Optimizer<SplineModel>> = match (lines, adam) {
        (Some(lines), _) => Box::new(LineSteps::new(rest.clone(), lines).until(flat)),
        (None, Some(options)) => {
            let (at, moments) = (rest.clone(), Moments::default());
            Box::new(Adam { at, moments, options, step: first, flat, settled: false })
        }
        // The gradient itself, which is all that there is without the slopes of voxels.
        (None, None) => Box::new(LineSteps::new(rest.clone(), Lines::steepest(first)).until(flat)),
    };
    // Nothing was found beyond what a run was ended with, until there is an iteration.
    let reached = ended.map(|spline| (rest, spline));
    Ok(Box::new(Splined { objective, optimizer, place: (level.clone(), control.clone()), reached }))
}

type Objective = ShardedObjective<SplineModel>;

/// Steps by the running moments of the gradient, as a field of voxels makes them: no coefficient moves farther than
/// `step` voxels.
struct Adam {
    at: Coefficients,
    moments: Moments,
    options: AdamOptions,
    step: f64,
    /// The norm of a gradient that ends the search, and whether one has.
    flat: f64,
    settled: bool,
}

impl Optimizer<SplineModel> for Adam {
    fn at(&self) -> &Coefficients {
        &self.at
    }

    fn iterate(&mut self, objective: &mut Objective, count: usize) -> Result<Vec<f64>> {
        let mut losses = Vec::with_capacity(count);
        while losses.len() < count && !self.settled {
            let Point { loss, gradient } = objective.evaluate(&self.at)?;
            losses.push(loss);
            if self.flat > 0.0 {
                let squared = Coefficients::dots(&[[&gradient, &gradient]])?[0];
                self.settled = squared.sqrt() <= self.flat;
            }
            if self.settled {
                break;
            }
            let step = adam(gradient.0, &mut self.moments, &self.options);
            let length = step.longest.clamp_min(1.0).reshape([1; 5]);
            let moved = step.direction * length.recip().mul_scalar(self.step);
            self.at = Coefficients(self.at.0.clone() - moved);
        }
        Ok(losses)
    }
}

/// Control points that are searched, with their level.
struct Splined {
    objective: Objective,
    optimizer: Box<dyn Optimizer<SplineModel>>,
    place: (Geometry, Control),
    /// What was reached as a transform, and the parameters that are read from it: what goes on from a file is what goes
    /// on from here, to the bit.
    reached: Option<(Coefficients, BsplineTransform)>,
}

impl Splined {
    /// The parameters that were reached, and the transform that they are.
    fn reached(&mut self) -> Result<(Coefficients, Option<BsplineTransform>)> {
        let (model, at) = (self.objective.model(), self.optimizer.at());
        if !model.is_alone() {
            return Ok((at.clone(), None));
        }
        if self.reached.is_none() {
            let (level, control) = &self.place;
            let (coefficients, _) = model.coefficients(at);
            let like = TensorPlace::of(&coefficients);
            let spline = control.transform(coefficients, level)?;
            let same = control.same_field(&spline, level, &like)?;
            let same = same.expect("it has these control points");
            self.reached = Some((model.parameters(same), spline));
        }
        let (at, spline) = self.reached.clone().expect("just made");
        Ok((at, Some(spline)))
    }
}

impl Solver for Splined {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        self.reached = None;
        self.optimizer.iterate(&mut self.objective, iterations)
    }
}

impl Deformation for Splined {
    fn loss(&mut self) -> Result<f64> {
        let (at, _) = self.reached()?;
        Ok(read(self.objective.loss(&at)?)?[0])
    }

    fn into_fields(mut self: Box<Self>) -> Result<Reached> {
        let (at, spline) = self.reached()?;
        let exact = spline.map(|spline| Arc::new(spline) as Arc<dyn Parametric>);
        Ok((self.objective.model().fields(&at)?, exact))
    }
}
