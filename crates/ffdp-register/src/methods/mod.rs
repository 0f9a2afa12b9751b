//! The methods: each a folder or a file of its own, and a line in each part of the list below,
//! [`Stage`]. No other file knows how many there are; what the engine asks of any is a `StageMethod`.
//!
//! A method that moves the image as a whole lies in `linear/`; one that improves fields voxel by voxel says which
//! (`FieldMethod`) and has everything else from `deformable/`. A program that uses this crate brings along a
//! displacement of few parameters as a [`TransformModel`]. Any other method is a [`Method`]: it has the images of its
//! levels from a [`StageRun`], iterates as it likes and says what it has found.

mod baseline;
pub(super) mod deformable;
mod discrete;
mod ffd;
pub mod gnk;
mod greedy;
pub(super) mod linear;
mod model;
mod own;
mod svf;
mod syn;

pub use baseline::BaselineGreedy;
pub use discrete::{DiscreteRound, DiscreteSettings};
pub use ffd::{FfdSettings, SplineGradient};
pub use gnk::GnkSettings;
pub use greedy::GreedySettings;
pub use model::{ModelSettings, OwnModel, TransformModel};
pub use own::{LevelImages, Method, MethodResult, OwnMethod, StageInputs, StageRun};
pub use svf::SvfSettings;
pub use syn::SynSettings;

pub use super::level::Solver;
pub use super::parametric::Parametric;

use serde::{Deserialize, Serialize};

use deformable::FieldMethod;

use super::context::{Estimate, Run, StageResult};
use super::level_memory::{LINEAR_CPU_BYTES, LevelProblem};
use super::problem::Content;
use super::settings::{
    LevelSettings, LinearSettings, MomentsSettings, Next, OptimizerSettings, Similarity,
};
use ffdp_image::error::Result;
use ffdp_image::image::Geometry;

/// One kind of transform, and how it is found. In a file, the entry `transform` names the kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "transform", rename_all = "lowercase")]
pub enum Stage {
    /// A first placement by centres and principal axes; images need not overlap before it.
    Moments(MomentsSettings),
    /// Turns and shifts.
    Rigid(LinearSettings),
    /// Turns, shifts and one scale for all directions.
    Similarity(LinearSettings),
    /// Turns, shifts, stretches and shears.
    Affine(LinearSettings),
    /// A coarse displacement by discrete search, from which others go on.
    Discrete(DiscreteSettings),
    /// A displacement field by the compositive greedy method.
    Greedy(GreedySettings),
    /// Two halves that meet in the middle: symmetric normalisation.
    Syn(SynSettings),
    /// The flow along a stationary velocity.
    Svf(SvfSettings),
    /// Cubic B-splines on a grid of control points: free-form deformation.
    Ffd(FfdSettings),
    /// The flow along a stationary velocity, by Gauss-Newton-Krylov steps.
    Gnk(GnkSettings),
    /// A transform model that a program brings along. A file cannot name it.
    #[serde(skip)]
    Model(OwnModel),
    /// A method that a program brings along. A file cannot name it.
    #[serde(skip)]
    Own(OwnMethod),
}

impl Stage {
    /// All built-in methods with their default settings, in the order in which they follow each other, and what each does.
    pub fn built_in() -> Vec<(Self, &'static str)> {
        vec![
            (Self::Moments(MomentsSettings::default()), "Placed by centres and principal axes"),
            (Self::Rigid(LinearSettings::default()), "Turned and moved"),
            (
                Self::Similarity(LinearSettings::default()),
                "Turned, moved and scaled alike in all directions",
            ),
            (Self::Affine(LinearSettings::default()), "Turned, moved, scaled and sheared"),
            (
                Self::Discrete(DiscreteSettings::default()),
                "Deformed coarsely by a discrete search of large displacements",
            ),
            (Self::Greedy(GreedySettings::default()), "Deformed, one small step after the other"),
            (
                Self::Syn(SynSettings::default()),
                "Deformed from both sides to the middle, with the inverse",
            ),
            (
                Self::Svf(SvfSettings::default()),
                "Deformed along a stationary velocity, with the inverse",
            ),
            (
                Self::Ffd(FfdSettings::default()),
                "Deformed by B-splines on a grid of control points",
            ),
            (
                Self::Gnk(GnkSettings::default()),
                "Deformed along a stationary velocity by Gauss-Newton-Krylov steps, with the inverse",
            ),
        ]
    }

    /// The list of all methods: their names, as files have them, and what runs them.
    pub(crate) fn listed(&self) -> (&'static str, &dyn StageMethod) {
        match self {
            Self::Moments(settings) => ("moments", settings),
            Self::Rigid(settings) => (linear::RIGID, settings),
            Self::Similarity(settings) => (linear::SIMILARITY, settings),
            Self::Affine(settings) => (linear::AFFINE, settings),
            Self::Discrete(settings) => ("discrete", settings),
            Self::Greedy(settings) => ("greedy", settings),
            Self::Syn(settings) => ("syn", settings),
            Self::Svf(settings) => ("svf", settings),
            Self::Ffd(settings) => ("ffd", settings),
            Self::Gnk(settings) => ("gnk", settings),
            Self::Model(model) => (model.name(), model),
            Self::Own(own) => (own.0.name(), own),
        }
    }

    /// The same, to be changed.
    pub(crate) fn method_mut(&mut self) -> &mut dyn StageMethod {
        match self {
            Self::Moments(settings) => settings,
            Self::Rigid(settings) | Self::Similarity(settings) | Self::Affine(settings) => settings,
            Self::Discrete(settings) => settings,
            Self::Greedy(settings) => settings,
            Self::Syn(settings) => settings,
            Self::Svf(settings) => settings,
            Self::Ffd(settings) => settings,
            Self::Gnk(settings) => settings,
            Self::Model(model) => model,
            Self::Own(own) => own,
        }
    }
}

/// A stage as the engine runs it, whatever its kind.
pub(crate) trait StageMethod {
    /// Its levels, coarse to fine; none of a method that has one of its own.
    fn levels(&self) -> &[LevelSettings];

    /// The same, to be changed. None by default.
    fn levels_mut(&mut self) -> &mut [LevelSettings] {
        &mut []
    }

    /// Puts others in their place; by default nothing changes.
    fn set_levels(&mut self, _levels: Vec<LevelSettings>) {}

    /// Finds those that are left to the images, whose longest axis has so many of the finest voxels; by default there
    /// are none.
    fn for_images(&mut self, _longest_voxels: f64, _next: Next) {}

    /// Its optimiser, to be changed; `None` where it has one of its own, as by default.
    fn optimizer_mut(&mut self) -> Option<&mut OptimizerSettings> {
        None
    }

    /// How alike images are to it.
    fn similarity(&self) -> &Similarity;

    /// Whether it compares intensities as they are; as its similarity does, by default.
    fn compares_intensities(&self) -> bool {
        self.similarity().loss().compares_intensities()
    }

    /// Whether it moves the image as a whole. No by default.
    fn is_linear(&self) -> bool {
        false
    }

    /// Demands that all settings have a meaning.
    fn validate(&self) -> Result<()>;

    /// A level as a device's memory sees it; by default images that are compared under an affine map.
    fn problem(&self, grids: [&Geometry; 2], content: Content) -> LevelProblem {
        LevelProblem::linear(grids, content)
    }

    /// Bytes of host memory that a voxel of a level takes on the CPU, images apart; by default those of a linear stage.
    fn host_bytes_per_voxel(&self) -> u64 {
        LINEAR_CPU_BYTES
    }

    /// Why it cannot work with what it is given; `None` if it can, as by default.
    fn refuses(&self, _given: &StageInputs) -> Option<String> {
        None
    }

    /// Itself, if it improves fields. No by default.
    fn fields(&self) -> Option<&dyn FieldMethod> {
        None
    }

    /// Finds the transform, from what was found before on; `name` is that of the stage.
    fn run(&self, name: &'static str, run: &mut Run, found: Estimate) -> Result<StageResult>;
}
