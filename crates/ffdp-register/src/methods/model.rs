//! A transform model of one's own as a stage: parameters that stand for a displacement, written in Burn's operations.
//!
//! ```text
//! minimise over the parameters p    D(M o A o (id + u_p), F)          dD/dp = (du_p/dp)^T dD/du
//! ```
//! The engine gives images, similarities, masks, shards, levels and the search (L-BFGS); Burn's automatic
//! differentiation carries the gradient from the displacement to the parameters, shard by shard.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};

use super::deformable::{Buffers, Deformation, FieldMethod, LevelTask, Searched};
use crate::checkpoint::SavedField;
use crate::models::{Displaced, Model};
use crate::pair::read;
use crate::parametric::Parametric;
use crate::settings::{
    ConvergenceSettings, Descent, LbfgsSettings, LevelSettings, MiSettings, OptimizerSettings,
    Similarity, default_levels,
};
use ffdp_image::error::Result;
use ffdp_image::image::Geometry;
use ffdp_kit::TensorPlace;
use ffdp_parallel::deform::{Coefficients, DifferentiatedModel, FieldPlaces};

/// A displacement of few parameters that a program brings along, as a stage of a registration:
/// [`Stage::model`](crate::Stage::model). It works in whole images, in shards, slab by slab and by several processes.
pub trait TransformModel: Debug + Send + Sync + 'static {
    /// Its name, as reports have it.
    fn name(&self) -> &'static str;

    /// The parameters of no displacement, `[n, m]` row by row, for a fixed image on a grid. A unit of each should move
    /// points about a voxel: then no parameter is far ahead of the others.
    fn at_rest(&self, fixed: &Geometry) -> Vec<Vec<f32>>;

    /// The displacement on planes of a grid over the field of view of the fixed image, `[1, 3, n, H, W]`, components (x, y, z)
    /// in its voxels; computed from `parameters` by Burn's operations, on their device.
    fn displacement(
        &self,
        parameters: Tensor<2>,
        grid: &Geometry,
        planes: Range<usize>,
    ) -> Tensor<5>;
}

/// How the parameters of a [`TransformModel`] are searched.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSettings {
    /// The levels, coarse to fine. Default: as those of the greedy method.
    pub levels: Vec<LevelSettings>,
    /// What is maximised. Default: normalised mutual information, for images of any modality.
    pub similarity: Similarity,
    /// How far the first step of a level moves the point that moves most, in voxels along the finest axis of the level;
    /// the longest step is four times that long. Default 1.
    pub learning_rate_voxels: f64,
    /// When a level ends before its iterations are spent.
    pub convergence: ConvergenceSettings,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            levels: default_levels(),
            similarity: Similarity::Nmi(MiSettings::default()),
            learning_rate_voxels: 1.0,
            convergence: ConvergenceSettings::default(),
        }
    }
}

/// A model as a stage. Equal to one of the same settings and the same model alone.
#[derive(Clone, Debug)]
pub struct OwnModel {
    model: Arc<dyn TransformModel>,
    settings: ModelSettings,
}

impl OwnModel {
    pub(crate) fn new(model: impl TransformModel, settings: ModelSettings) -> Self {
        Self { model: Arc::new(model), settings }
    }

    pub(super) fn name(&self) -> &'static str {
        self.model.name()
    }
}

impl PartialEq for OwnModel {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.model, &other.model) && self.settings == other.settings
    }
}

impl FieldMethod for OwnModel {
    fn descent(&self) -> Descent<'_> {
        let ModelSettings { levels, similarity, learning_rate_voxels, convergence } =
            &self.settings;
        Descent {
            learning_rate_voxels: *learning_rate_voxels,
            optimizer: OptimizerSettings::Lbfgs(LbfgsSettings::default()),
            ..Descent::quiet(levels, similarity, convergence)
        }
    }

    fn settings_mut(&mut self) -> (&mut Vec<LevelSettings>, Option<&mut OptimizerSettings>) {
        (&mut self.settings.levels, None)
    }

    fn model(&self) -> Arc<dyn Model> {
        Arc::new(Displaced)
    }

    fn restore(&self, saved: &SavedField) -> Result<Arc<dyn Parametric>> {
        Ok(Arc::new(Found { model: self.model.clone(), parameters: saved.rows()? }))
    }

    fn buffers(&self) -> Buffers {
        // What a tape of some operations on three coordinates holds. Steps of parameters that are kept are few.
        Buffers::of_iterations(self, 300)
    }

    fn begin(&self, task: &LevelTask) -> Option<Result<Box<dyn Deformation>>> {
        Some(self.level(task))
    }
}

/// What turns parameters into a displacement on planes of a level.
type OnLevel = Box<dyn Fn(Tensor<2>, Range<usize>) -> Tensor<5>>;

impl OwnModel {
    /// A level, from the parameters that the one before has found, or on top of what another method has.
    fn level(&self, task: &LevelTask) -> Result<Box<dyn Deformation>> {
        let &LevelTask { pair, affine, ref fields, full, .. } = task;
        let grid = &pair.grids[0];
        let still = pair.zero_displacement();
        let places = FieldPlaces::of(&still, &pair.places.fixed.work, &pair.places.team.fixed);
        let exact = fields.as_ref().and_then(|fields| fields.exact.as_ref());
        let earlier = exact.and_then(|exact| exact.downcast::<Found>());
        let parameters = match earlier {
            Some(found) => found.parameters.clone(),
            None => self.model.at_rest(full),
        };
        let start = match earlier {
            Some(_) => None,
            None => fields.as_ref().map(|fields| fields.parts[0].clone()),
        };
        let (model, level) = (self.model.clone(), grid.clone());
        let field: OnLevel =
            Box::new(move |parameters, planes| model.displacement(parameters, &level, planes));
        let home = TensorPlace::new(places.home(), still.shards()[0].dtype());
        let begin = tensor_of(&parameters, &home);
        let model = DifferentiatedModel::new(places, start, begin, field);
        let options = (self as &dyn FieldMethod).options(grid, &pair.index_map(affine));
        let similarity = self.settings.similarity.loss();
        let objective = pair.objective(similarity, affine, model, &options)?;
        let lines = self.descent().optimizer.lines(self.settings.learning_rate_voxels);
        let (lines, model) = (lines.expect("L-BFGS has lines"), self.model.clone());
        Ok(Box::new(Searched::new(objective, lines, move |level, at| found(&model, level, at))))
    }
}

/// Rows of numbers on a device.
fn tensor_of(rows: &[Vec<f32>], place: &TensorPlace) -> Tensor<2> {
    let shape = [rows.len(), rows.first().map_or(0, Vec::len)];
    Tensor::from_data(TensorData::new(rows.concat(), shape), place)
}

/// The parameters that a level has found, if no other process has a part in them.
fn found(
    model: &Arc<dyn TransformModel>,
    level: &DifferentiatedModel<OnLevel>,
    at: &Coefficients,
) -> Result<Option<Arc<dyn Parametric>>> {
    if !level.is_alone() {
        return Ok(None);
    }
    let parameters = DifferentiatedModel::<OnLevel>::parameters(at);
    let [_, m] = parameters.dims();
    let values = read(parameters.flatten(0, 1))?;
    let rows = values.chunks(m).map(|row| row.iter().map(|v| *v as f32).collect());
    Ok(Some(Arc::new(Found { model: model.clone(), parameters: rows.collect() })))
}

/// Parameters that were found.
#[derive(Debug)]
struct Found {
    model: Arc<dyn TransformModel>,
    parameters: Vec<Vec<f32>>,
}

impl Parametric for Found {
    fn planes(
        &self,
        grid: &Geometry,
        planes: Range<usize>,
        like: &TensorPlace,
    ) -> Result<Tensor<5>> {
        Ok(self.model.displacement(tensor_of(&self.parameters, like), grid, planes))
    }

    fn saved(&self) -> Option<SavedField> {
        SavedField::of_rows(&self.parameters).ok()
    }
}
