//! A stage of a registration: one method with its settings, and the list of all methods.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::ops::{Method as DeformMethod, MomentStorage};
use crate::register::methods::deformable::FieldMethod;
use crate::register::methods::{
    Given, GreedySettings, Listed, Method, OwnMethod, SvfSettings, SynSettings, linear,
};
use crate::register::settings::{
    LevelSettings, LinearSettings, MomentsSettings, OptimizerSettings,
};

/// One kind of transform, and how it is found. In a file, the entry `transform` names the kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "transform", rename_all = "lowercase")]
pub enum Stage {
    /// A first placement by centres and principal axes; images need not overlap before it.
    Moments(MomentsSettings),
    /// Turns and shifts.
    Rigid(LinearSettings),
    /// Turns, shifts, stretches and shears.
    Affine(LinearSettings),
    /// A displacement field by the compositive greedy method.
    Greedy(GreedySettings),
    /// Two halves that meet in the middle: symmetric normalisation.
    Syn(SynSettings),
    /// The flow along a stationary velocity.
    Svf(SvfSettings),
    /// A method that a program brings along. A file cannot name it.
    #[serde(skip)]
    Own(OwnMethod),
}

impl Stage {
    /// A method of your own.
    pub fn own(method: impl Method + 'static) -> Self {
        Self::Own(OwnMethod(Arc::new(method)))
    }

    /// All built-in methods with their default settings, in the order in which they follow each other, and what each does.
    pub fn built_in() -> Vec<(Self, &'static str)> {
        vec![
            (Self::Moments(MomentsSettings::default()), "Placed by centres and principal axes"),
            (Self::Rigid(LinearSettings::default()), "Turned and moved"),
            (Self::Affine(LinearSettings::default()), "Turned, moved, scaled and sheared"),
            (Self::Greedy(GreedySettings::default()), "Deformed, one small step after the other"),
            (
                Self::Syn(SynSettings::default()),
                "Deformed from both sides to the middle, with the inverse",
            ),
            (
                Self::Svf(SvfSettings::default()),
                "Deformed along a stationary velocity, with the inverse",
            ),
        ]
    }

    /// The list of all methods.
    pub(in crate::register) fn listed(&self) -> Listed<'_> {
        match self {
            Self::Moments(settings) => Listed::Moments(settings),
            Self::Rigid(settings) => Listed::Linear("rigid", settings, linear::rigid),
            Self::Affine(settings) => Listed::Linear("affine", settings, linear::affine),
            Self::Greedy(settings) => Listed::Fields(settings),
            Self::Syn(settings) => Listed::Fields(settings),
            Self::Svf(settings) => Listed::Fields(settings),
            Self::Own(own) => Listed::Own(&*own.0),
        }
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
        self.own_levels().map_or(&mut [], |levels| levels)
    }

    /// The same stage on other levels; unchanged where it has none of its own.
    pub fn with_levels(mut self, levels: Vec<LevelSettings>) -> Self {
        if let Some(own) = self.own_levels() {
            *own = levels;
        }
        self
    }

    fn own_levels(&mut self) -> Option<&mut Vec<LevelSettings>> {
        match self {
            Self::Rigid(settings) | Self::Affine(settings) => Some(&mut settings.levels),
            Self::Greedy(settings) => Some(&mut settings.levels),
            Self::Syn(settings) => Some(&mut settings.levels),
            Self::Svf(settings) => Some(&mut settings.levels),
            Self::Moments(_) | Self::Own(_) => None,
        }
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

    /// Whether it gives the inverse of what it has found.
    pub fn gives_inverse(&self) -> bool {
        self.fields().is_some_and(|method| method.method() != DeformMethod::Greedy)
    }

    /// How a stage that improves fields keeps the moments of their gradients; `None` where it has none.
    pub fn moments(&self) -> Option<MomentStorage> {
        match self.fields()?.descent().optimizer {
            OptimizerSettings::Adam(adam) => Some(adam.moments),
            OptimizerSettings::Sgd | OptimizerSettings::GaussNewton(_) => None,
        }
    }

    /// Bytes of host memory that a voxel of a level takes on the CPU, images apart.
    pub fn host_bytes_per_voxel(&self) -> u64 {
        /// Two images, the moved one and its gradient.
        const LINEAR: u64 = 32;
        /// Of a method that nobody has measured, the field with its moments, gradient and step.
        const OWN: u64 = 57;
        match self.listed() {
            Listed::Moments(_) | Listed::Linear(..) => LINEAR,
            Listed::Fields(method) => method.host_bytes_per_voxel(),
            Listed::Own(method) => {
                if method.is_linear() {
                    LINEAR
                } else {
                    OWN
                }
            }
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

    pub(in crate::register) fn validate(&self) -> Result<()> {
        match self.listed() {
            Listed::Moments(settings) => settings.validate(),
            Listed::Linear(_, settings, _) => settings.validate(),
            Listed::Fields(method) => method.validate(),
            Listed::Own(method) => method.validate(),
        }
    }

    /// That of a stage which improves fields; `None` of others.
    pub(in crate::register) fn fields(&self) -> Option<&dyn FieldMethod> {
        match self.listed() {
            Listed::Fields(method) => Some(method),
            Listed::Moments(_) | Listed::Linear(..) | Listed::Own(_) => None,
        }
    }

    /// Why it cannot do what it is given, in its own words; `None` if it can.
    pub(in crate::register) fn refuses(&self, given: &Given) -> Option<String> {
        match self.listed() {
            Listed::Own(method) => method.refuses(given),
            Listed::Moments(_) | Listed::Linear(..) | Listed::Fields(_) => None,
        }
    }
}
