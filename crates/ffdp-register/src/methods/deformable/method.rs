//! A method that improves fields: which, how they begin, and what they mean.

use std::fmt::Debug;
use std::sync::Arc;

use super::control::ControlSettings;
use super::deformation::Deformation;
use crate::checkpoint::SavedField;
use crate::context::{Estimate, Run, StageResult};
use crate::fields::Fields;
use crate::level_memory::LevelProblem;
use crate::methods::{StageInputs, StageMethod};
use crate::models::Model;
use crate::pair::LevelPair;
use crate::parametric::Parametric;
use crate::places::SHARED_VOXELS;
use crate::problem::Content;
use crate::pyramid::finest_spacing_mm;
use crate::settings::{Descent, LevelSettings, OptimizerSettings, Similarity};
use ffdp_burn::ops::{DeformOptions, GaussianOptions, Measure};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical, Voxel};
use ffdp_parallel::{
    Axis, Sharded,
    planner::{DeformProblem, FieldBuffers},
};

/// A method that improves one or several fields by the iterations of [`ops::deform`](ffdp_burn::ops::deform()).
pub(crate) trait FieldMethod: Debug + Send + Sync {
    /// What it shares with the others.
    fn descent(&self) -> Descent<'_>;

    /// Its levels and its optimiser, to be changed; no optimiser where it has one of its own.
    fn settings_mut(&mut self) -> (&mut Vec<LevelSettings>, Option<&mut OptimizerSettings>);

    /// What its fields stand for.
    fn model(&self) -> Arc<dyn Model>;

    /// What its levels find exactly, from [`Parametric::saved`]. By default there is nothing of this kind.
    fn restore(&self, saved: &SavedField) -> Result<Arc<dyn Parametric>> {
        let what = "a checkpoint must be that of the method that goes on from it";
        let given = format_args!("one of {:?} values", saved.geometry().size);
        Err(Error::invalid(what, given, "start the run anew"))
    }

    /// Its buffers for a voxel of a level, images apart.
    fn buffers(&self) -> Buffers;

    /// The control points that it searches; `None` of methods that improve a field voxel by voxel.
    fn control_points(&self) -> Option<ControlSettings> {
        None
    }

    /// Whether no shard of a level may rest in host memory. Not by default.
    fn keeps_shards_on_devices(&self) -> bool {
        false
    }

    /// Voxels of a level from which several devices share it.
    fn shared_voxels(&self) -> usize {
        SHARED_VOXELS
    }

    /// What improves its fields on a level, of a method that has an optimiser of its own; `None` of those that follow
    /// the gradient as their [`descent`](Self::descent) says.
    fn begin(&self, _task: &LevelTask) -> Option<Result<Box<dyn Deformation>>> {
        None
    }

    /// Demands that all settings have a meaning.
    fn validate(&self) -> Result<()> {
        self.descent().validate()
    }
}

impl<M: FieldMethod> StageMethod for M {
    fn levels(&self) -> &[LevelSettings] {
        self.descent().levels
    }

    fn levels_mut(&mut self) -> &mut [LevelSettings] {
        self.settings_mut().0
    }

    fn set_levels(&mut self, levels: Vec<LevelSettings>) {
        *self.settings_mut().0 = levels;
    }

    fn optimizer_mut(&mut self) -> Option<&mut OptimizerSettings> {
        self.settings_mut().1
    }

    fn similarity(&self) -> &Similarity {
        self.descent().similarity
    }

    fn validate(&self) -> Result<()> {
        FieldMethod::validate(self)
    }

    fn problem(&self, grids: [&Geometry; 2], content: Content) -> LevelProblem {
        (self as &dyn FieldMethod).level(grids, content)
    }

    fn host_bytes_per_voxel(&self) -> u64 {
        self.buffers().cpu_bytes
    }

    fn refuses(&self, given: &StageInputs) -> Option<String> {
        let refuses = given.at_rest && self.keeps_shards_on_devices();
        refuses.then(|| "all shards of a level stay on their devices".into())
    }

    fn fields(&self) -> Option<&dyn FieldMethod> {
        Some(self)
    }

    fn run(&self, name: &'static str, run: &mut Run, found: Estimate) -> Result<StageResult> {
        super::deform(run, name, self, found)
    }
}

/// What a method keeps for a voxel of a level, images apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// Bytes of host memory on the CPU; those of iterations as measured with LNCC.
    pub cpu_bytes: u64,
    /// On a device.
    pub fields: FieldBuffers,
}

impl Buffers {
    /// Of iterations that follow the gradient, with the bytes that they take on the CPU.
    pub fn of_iterations(method: &dyn FieldMethod, cpu_bytes: u64) -> Self {
        let optimizer = method.descent().optimizer.first_order();
        Self { cpu_bytes, fields: FieldBuffers::of_iterations(method.model().shows(), optimizer) }
    }

    /// The same with the steps of fields that an optimiser which searches keeps.
    pub fn searching(method: &dyn FieldMethod, cpu_bytes: u64) -> Self {
        let Self { fields, .. } = Self::of_iterations(method, cpu_bytes);
        let Some(steps) = method.descent().optimizer.kept_steps() else {
            return Self { cpu_bytes, fields };
        };
        let fields = fields.searching(steps);
        Self { cpu_bytes: cpu_bytes + fields.fields * fields.state_bytes, fields }
    }
}

/// A level, for what improves its fields.
pub(crate) struct LevelTask<'a> {
    pub pair: &'a LevelPair,
    /// What was found before the stage, RAS mm.
    pub affine: &'a Affine<Physical, Physical>,
    /// Where it begins; `None` at rest.
    pub fields: Option<Fields>,
    /// The grid of the fixed image itself.
    pub full: &'a Geometry,
    /// The index of the level.
    pub index: usize,
    /// The number of levels.
    pub levels: usize,
}

impl dyn FieldMethod + '_ {
    /// Fields of one level.
    pub fn count(&self) -> usize {
        self.model().count()
    }

    /// The fields at rest, where `like` is.
    pub fn zero_fields(&self, like: &Sharded) -> Vec<Sharded> {
        vec![like.clone(); self.count()]
    }

    /// What the iterations do on the grid of a level, from whose voxels `map` leads to those of the moving image.
    pub fn options(&self, fixed: &Geometry, map: &Affine<Voxel, Voxel>) -> DeformOptions {
        let descent = self.descent();
        let mut regularization = descent.regularization;
        if self.control_points().is_some() {
            // That of the control points takes its place.
            regularization.bending = 0.0;
        }
        let finest = finest_spacing_mm(fixed);
        let voxels = |length: f64| voxels(fixed, length);
        let smoothing = |sigma| smoothing(fixed, sigma);
        DeformOptions {
            method: self.model().shows(),
            // The similarity takes its place.
            measure: descent.similarity.loss().measure().unwrap_or(Measure::SquaredDifference),
            displacement_scale: map.linear(),
            step_voxels: voxels(descent.learning_rate_voxels),
            smooth_gradient: smoothing(descent.sigma_gradient_voxels),
            smooth_field: smoothing(descent.sigma_field_voxels),
            optimizer: descent.optimizer.first_order(),
            update: descent.update,
            penalties: regularization.penalties(finest, descent.usual_diffusion()),
        }
    }

    /// A level as places see it.
    pub fn level(&self, grids: [&Geometry; 2], content: Content) -> LevelProblem {
        let (problem, shared_voxels) = (self.problem(grids, content), self.shared_voxels());
        LevelProblem::Fields { problem, shared_voxels }
    }

    /// A level as the planner of memory sees it.
    pub fn problem(
        &self,
        [fixed, moving]: [&Geometry; 2],
        Content { channels, masked, .. }: Content,
    ) -> DeformProblem {
        let options = self.options(fixed, &Affine::identity());
        let reach_voxels = self.descent().similarity.loss().reach_voxels();
        let sizes = [fixed.dims(), moving.dims()];
        let buffers = self.buffers().fields;
        let problem = DeformProblem::new(sizes, Axis::Z, reach_voxels, &options);
        DeformProblem { channels, masked, buffers, ..problem }
    }
}

/// Voxels along (x, y, z) in a length of voxels along the finest axis: one length in mm is fewer voxels along an axis
/// with larger voxels.
pub(super) fn voxels(grid: &Geometry, length: f64) -> [f64; 3] {
    let finest = finest_spacing_mm(grid);
    grid.spacing_mm.map(|spacing| length * finest / spacing)
}

/// By a Gaussian, in voxels along the finest axis.
pub(crate) fn smoothing(grid: &Geometry, sigma: f64) -> GaussianOptions {
    GaussianOptions { sigma_voxels: voxels(grid, sigma), ..GaussianOptions::isotropic(0.0) }
}
