//! One level under way: fields that first-order iterations improve, or parameters of fields that are searched.

use std::f64::consts::FRAC_1_SQRT_2;
use std::sync::Arc;

use super::control::Control;
use super::deformation::{Deformation, Reached};
use super::method::{FieldMethod, smoothing, voxels};
use super::search::{LineSteps, Optimizer};
use super::splined;
use crate::fields::Fields;
use crate::level::Solver;
use crate::pair::{LevelPair, read};
use crate::parametric::Parametric;
use crate::settings::Lines;
use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Physical};
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
        return splined::begin(kind, pair, affine, fields, control);
    }
    let fields =
        fields.map_or_else(|| kind.zero_fields(&pair.zero_displacement()), |fields| fields.parts);
    let options = kind.options(grid, &pair.index_map(affine));
    let similarity = descent.similarity.loss();
    let Some(lines) = descent.optimizer.lines(descent.learning_rate_voxels) else {
        return Ok(Box::new(pair.deform(similarity, affine, fields, &options)?));
    };
    // A step is smoothed twice, as a gradient and as a displacement.
    let sigma = FRAC_1_SQRT_2 * descent.sigma_gradient_voxels.hypot(descent.sigma_field_voxels);
    let (smoothing, scale) = (smoothing(grid, sigma), voxels(grid, 1.0));
    let (mesh, holders) = (&pair.places.fixed.work, &pair.places.team.fixed);
    let model = SmoothSteps::new(fields, smoothing, scale, mesh, holders);
    let objective = pair.objective(similarity, affine, model, &options)?;
    Ok(Box::new(Searched::new(objective, lines, |_, _| Ok(None))))
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

/// Parameters of a model that are searched along lines.
pub(crate) struct Searched<M: FieldModel, E> {
    objective: ShardedObjective<M>,
    optimizer: LineSteps<M::Parameters>,
    /// What the first field of parameters is exactly, where that is known.
    exact: E,
}

impl<M: FieldModel, E> Searched<M, E>
where
    E: Fn(&M, &M::Parameters) -> Result<Option<Arc<dyn Parametric>>>,
{
    /// From rest on.
    pub fn new(objective: ShardedObjective<M>, lines: Lines<M::Parameters>, exact: E) -> Self {
        let optimizer = LineSteps::new(objective.model().rest(), lines);
        Self { objective, optimizer, exact }
    }
}

impl<M: FieldModel, E> Solver for Searched<M, E> {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        Optimizer::iterate(&mut self.optimizer, &mut self.objective, iterations)
    }
}

impl<M: FieldModel, E> Deformation for Searched<M, E>
where
    E: Fn(&M, &M::Parameters) -> Result<Option<Arc<dyn Parametric>>>,
{
    fn loss(&mut self) -> Result<f64> {
        Ok(read(self.objective.loss(self.optimizer.at())?)?[0])
    }

    fn into_fields(self: Box<Self>) -> Result<Reached> {
        let (at, model) = (self.optimizer.at(), self.objective.model());
        Ok((model.fields(at)?, (self.exact)(model, at)?))
    }
}
