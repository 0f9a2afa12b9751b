//! What a stage says of itself, whatever its method.

use std::sync::Arc;

use crate::level_memory::{LINEAR_CPU_BYTES, LevelMemory, LevelProblem};
use crate::methods::deformable::FieldMethod;
use crate::methods::{
    Listed, ListedMut, Method, ModelSettings, OwnMethod, OwnModel, Stage, StageInputs,
    TransformModel,
};
use crate::places::Placement;
use crate::problem::Content;
use crate::settings::{LevelSettings, OptimizerSettings, Similarity};
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
        match self.listed() {
            Listed::Moments(_) => &[],
            Listed::Linear(_, settings, _) => &settings.levels,
            Listed::Fields(method) => method.descent().levels,
            Listed::Own(method) => method.levels(),
        }
    }

    /// The levels of a built-in stage, to be changed; none of moments, which have one of their own.
    pub fn levels_mut(&mut self) -> &mut [LevelSettings] {
        match self.listed_mut() {
            ListedMut::Linear(settings) => &mut settings.levels,
            ListedMut::Fields(method) => method.levels_mut(),
            ListedMut::Discrete(settings) => settings.level.as_mut_slice(),
            ListedMut::Other => &mut [],
        }
    }

    /// The same stage on other levels; unchanged where it has none of its own.
    pub fn with_levels(mut self, levels: Vec<LevelSettings>) -> Self {
        match self.listed_mut() {
            ListedMut::Linear(settings) => settings.levels = levels,
            ListedMut::Fields(method) => *method.levels_mut() = levels,
            ListedMut::Discrete(_) | ListedMut::Other => {}
        }
        self
    }

    /// The same stage with another optimiser; `None` where it has one of its own.
    pub fn with_optimizer(mut self, optimizer: OptimizerSettings) -> Option<Self> {
        let ListedMut::Fields(method) = self.listed_mut() else { return None };
        *method.optimizer_mut()? = optimizer;
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
        match self.listed() {
            Listed::Moments(_) | Listed::Own(_) => false,
            Listed::Linear(..) | Listed::Fields(_) => {
                self.similarity().is_some_and(|similarity| similarity.loss().compares_intensities())
            }
        }
    }

    /// How alike images are to it; `None` where it says nothing of that.
    pub(crate) fn similarity(&self) -> Option<&Similarity> {
        Some(match self.listed() {
            Listed::Moments(settings) => &settings.similarity,
            Listed::Linear(_, settings, _) => &settings.similarity,
            Listed::Fields(method) => method.descent().similarity,
            Listed::Own(method) => method.similarity(),
        })
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
        match self.listed() {
            Listed::Fields(method) => method.buffers().cpu_bytes,
            Listed::Own(method) if !method.is_linear() => method.host_bytes_per_voxel(),
            Listed::Moments(_) | Listed::Linear(..) | Listed::Own(_) => LINEAR_CPU_BYTES,
        }
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
    /// [`Error::TooLarge`](ffdp_image::Error::TooLarge) when a device cannot hold one shard at work, or that piece.
    pub fn takes(
        &self,
        placement: &Placement,
        grids: [&Geometry; 2],
        content: Content,
    ) -> Result<LevelMemory> {
        placement.takes(&self.problem(grids, content))
    }

    /// A level as a device's memory sees it.
    pub(crate) fn problem(&self, grids: [&Geometry; 2], content: Content) -> LevelProblem {
        match self.listed() {
            Listed::Fields(method) => LevelProblem::Fields(method.problem(grids, content)),
            Listed::Moments(_) | Listed::Linear(..) => LevelProblem::linear(grids, content),
            Listed::Own(method) => LevelProblem::Whole {
                sizes: grids.map(Geometry::dims),
                bytes: method.device_bytes(grids, content),
            },
        }
    }

    /// Its name, as a file has it.
    pub fn name(&self) -> &'static str {
        match self.listed() {
            Listed::Moments(_) => "moments",
            Listed::Linear(name, ..) => name,
            Listed::Fields(method) => method.name(),
            Listed::Own(method) => method.name(),
        }
    }

    /// Whether it moves the image as a whole.
    pub fn is_linear(&self) -> bool {
        match self.listed() {
            Listed::Moments(_) | Listed::Linear(..) => true,
            Listed::Fields(_) => false,
            Listed::Own(method) => method.is_linear(),
        }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        match self.listed() {
            Listed::Moments(settings) => settings.validate(),
            Listed::Linear(_, settings, _) => settings.validate(),
            Listed::Fields(method) => method.validate(),
            Listed::Own(method) => method.validate(),
        }
    }

    /// That of a stage which improves fields; `None` of others.
    pub(crate) fn fields(&self) -> Option<&dyn FieldMethod> {
        match self.listed() {
            Listed::Fields(method) => Some(method),
            Listed::Moments(_) | Listed::Linear(..) | Listed::Own(_) => None,
        }
    }

    /// Why it cannot do what it is given, in its own words; `None` if it can.
    pub(crate) fn refuses(&self, given: &StageInputs) -> Option<String> {
        match self.listed() {
            Listed::Own(method) => method.refuses(given),
            Listed::Fields(method) if given.at_rest && method.keeps_shards_on_devices() => {
                Some("all shards of a level stay on their devices".into())
            }
            Listed::Moments(_) | Listed::Linear(..) | Listed::Fields(_) => None,
        }
    }
}
