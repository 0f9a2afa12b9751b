//! What a stage says of itself, whatever its method.

use std::sync::Arc;

use crate::context::{Estimate, Run, StageResult};
use crate::level_memory::{LevelMemory, LevelProblem};
use crate::methods::deformable::{FieldMethod, stays};
use crate::methods::{
    Method, ModelSettings, OwnMethod, OwnModel, Stage, StageInputs, StageMethod, TransformModel,
};
use crate::places::Placement;
use crate::problem::Content;
use crate::settings::{LevelSettings, OptimizerSettings};
use ffdp_burn::ops::MomentStorage;
use ffdp_image::error::Result;
use ffdp_image::image::Geometry;

impl Stage {
    /// A method of your own.
    pub fn own(method: impl Method + 'static) -> Self {
        Self::Own(OwnMethod(Arc::new(method)))
    }

    /// A transform model of your own, and how its parameters are searched.
    pub fn model(model: impl TransformModel, settings: ModelSettings) -> Self {
        Self::Model(OwnModel::new(model, settings))
    }

    /// Its levels, coarse to fine; none of moments, which have one of their own.
    pub fn levels(&self) -> &[LevelSettings] {
        self.method().levels()
    }

    /// The levels of a built-in stage, to be changed; none of moments, which have one of their own.
    pub fn levels_mut(&mut self) -> &mut [LevelSettings] {
        self.method_mut().levels_mut()
    }

    /// The same stage on other levels; unchanged where it has none of its own.
    pub fn with_levels(mut self, levels: Vec<LevelSettings>) -> Self {
        self.method_mut().set_levels(levels);
        self
    }

    /// The same stage with another optimiser; `None` where it has one of its own.
    pub fn with_optimizer(mut self, optimizer: OptimizerSettings) -> Option<Self> {
        *self.method_mut().optimizer_mut()? = optimizer;
        Some(self)
    }

    /// Makes all its levels coarser by a factor.
    pub fn coarsen(&mut self, factor: f64) {
        if let Self::Moments(moments) = self {
            moments.shrink *= factor;
        }
        self.levels_mut().iter_mut().for_each(|level| level.shrink *= factor);
    }

    /// Limits its work to so many iterations a level: what is computed is the same, what is found is not.
    pub fn shorten(&mut self, iterations: usize) {
        if let Self::Moments(moments) = self {
            moments.refinement = moments.refinement.min(1);
        }
        let levels = self.levels_mut().iter_mut();
        levels.for_each(|level| level.iterations = level.iterations.min(iterations));
    }

    /// Whether it compares intensities as they are, which two contrasts do not allow; of moments and methods of one's
    /// own that is not known.
    pub fn compares_intensities(&self) -> bool {
        self.method().compares_intensities()
    }

    /// Whether it may find a mirror image.
    pub fn may_mirror(&self) -> bool {
        matches!(self, Self::Moments(moments) if moments.reflections)
    }

    /// Whether it gives the inverse of what it has found.
    pub fn gives_inverse(&self) -> bool {
        self.fields().is_some_and(|method| method.model().gives_inverse())
    }

    /// How a stage that improves fields keeps the moments of their gradients; `None` where it has none.
    pub fn moments(&self) -> Option<MomentStorage> {
        self.fields()?.descent().optimizer.moments()
    }

    /// Bytes of host memory that a voxel of a level takes on the CPU, images apart.
    pub fn host_bytes_per_voxel(&self) -> u64 {
        self.method().host_bytes_per_voxel()
    }

    /// Bytes of a device that a level in one piece takes at its peak: the images on the grids of the level, fields with
    /// the optimiser's state, and what is at work.
    ///
    /// # Errors
    /// Where the level has no voxels.
    pub fn device_bytes(&self, grids: [&Geometry; 2], content: Content) -> Result<u64> {
        self.problem(grids, content).device_bytes(1, 1)
    }

    /// What a level takes where images are read slab by slab; `grids` are those of both images on the level, the rest as
    /// for [`Stage::device_bytes`]. A method that has its images in one piece has them so here, too.
    ///
    /// # Errors
    /// [`Error::TooLarge`](ffdp_image::Error::TooLarge) when a device cannot hold one shard at work, or that piece;
    /// [`Error::Invalid`](ffdp_image::Error::Invalid) when shards would rest in host memory of a method that keeps them on
    /// devices.
    pub fn takes(
        &self,
        placement: &Placement,
        grids: [&Geometry; 2],
        content: Content,
    ) -> Result<LevelMemory> {
        let problem = self.problem(grids, content);
        self.check_stays(placement, &problem, grids[0].size)?;
        placement.takes(&problem)
    }

    /// Demands that a method which keeps its shards on devices has room for them there.
    pub(crate) fn check_stays(
        &self,
        placement: &Placement,
        problem: &LevelProblem,
        size: [usize; 3],
    ) -> Result<()> {
        let stays_on_devices = self.fields().is_some_and(|by| by.keeps_shards_on_devices());
        if stays_on_devices && placement.is_too_small_for(problem)? {
            return Err(stays(self.name(), size));
        }
        Ok(())
    }

    /// A level as a device's memory sees it.
    pub(crate) fn problem(&self, grids: [&Geometry; 2], content: Content) -> LevelProblem {
        self.method().problem(grids, content)
    }

    /// Its name, as a file has it.
    pub fn name(&self) -> &'static str {
        self.listed().0
    }

    /// Whether it moves the image as a whole.
    pub fn is_linear(&self) -> bool {
        self.method().is_linear()
    }

    pub(crate) fn validate(&self) -> Result<()> {
        self.method().validate()
    }

    /// That of a stage which improves fields; `None` of others.
    pub(crate) fn fields(&self) -> Option<&dyn FieldMethod> {
        self.method().fields()
    }

    pub(crate) fn method(&self) -> &dyn StageMethod {
        self.listed().1
    }

    /// Finds the transform, from what was found before on.
    pub(crate) fn run(&self, run: &mut Run, found: Estimate) -> Result<StageResult> {
        let (name, method) = self.listed();
        method.run(name, run, found)
    }

    /// Why it cannot do what it is given, in its own words; `None` if it can.
    pub(crate) fn refuses(&self, given: &StageInputs) -> Option<String> {
        self.method().refuses(given)
    }
}
