//! The methods: each a folder or a file of its own, and a line in each part of the list below,
//! [`Stage`]. No other file knows how many there are.
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
pub(super) use own::find;
pub use own::{LevelImages, Method, MethodResult, OwnMethod, StageInputs, StageRun};
pub use svf::SvfSettings;
pub use syn::SynSettings;

pub use super::level::Solver;
pub use super::parametric::Parametric;

use serde::{Deserialize, Serialize};

use deformable::FieldMethod;
use linear::FindLinear;

use super::settings::{LinearSettings, MomentsSettings};

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

    /// The list of all methods.
    pub(crate) fn listed(&self) -> Listed<'_> {
        match self {
            Self::Moments(settings) => Listed::Moments(settings),
            Self::Rigid(settings) => Listed::Linear("rigid", settings, linear::RIGID),
            Self::Similarity(settings) => {
                Listed::Linear("similarity", settings, linear::SIMILARITY)
            }
            Self::Affine(settings) => Listed::Linear("affine", settings, linear::AFFINE),
            Self::Discrete(settings) => Listed::Own(settings),
            Self::Greedy(settings) => Listed::Fields(settings),
            Self::Syn(settings) => Listed::Fields(settings),
            Self::Svf(settings) => Listed::Fields(settings),
            Self::Ffd(settings) => Listed::Fields(settings),
            Self::Gnk(settings) => Listed::Fields(settings),
            Self::Model(model) => Listed::Fields(model),
            Self::Own(own) => Listed::Own(&*own.0),
        }
    }

    /// What of a method can be changed.
    pub(super) fn listed_mut(&mut self) -> ListedMut<'_> {
        match self {
            Self::Rigid(settings) | Self::Similarity(settings) | Self::Affine(settings) => {
                ListedMut::Linear(settings)
            }
            Self::Discrete(settings) => ListedMut::Discrete(settings),
            Self::Greedy(settings) => ListedMut::Fields(settings),
            Self::Syn(settings) => ListedMut::Fields(settings),
            Self::Svf(settings) => ListedMut::Fields(settings),
            Self::Ffd(settings) => ListedMut::Fields(settings),
            Self::Gnk(settings) => ListedMut::Fields(settings),
            Self::Model(model) => ListedMut::Fields(model),
            Self::Moments(_) | Self::Own(_) => ListedMut::Other,
        }
    }
}

/// A stage as the engine runs it.
pub(super) enum Listed<'a> {
    Moments(&'a MomentsSettings),
    Linear(&'static str, &'a LinearSettings, FindLinear),
    Fields(&'a dyn FieldMethod),
    Own(&'a dyn Method),
}

/// The same, to be changed.
pub(super) enum ListedMut<'a> {
    Linear(&'a mut LinearSettings),
    Fields(&'a mut dyn FieldMethod),
    Discrete(&'a mut DiscreteSettings),
    Other,
}
