//! Optimisers: what a gradient becomes. All that the engine knows of one is here.

use serde::{Deserialize, Serialize};

use super::in_range;
use ffdp_burn::ops::{AdamOptions, MomentStorage, Optimizer};
use ffdp_image::error::Result;
use ffdp_optim::{Direction, Lbfgs, LineSearch, Space, Steepest, Steps};

/// How a gradient becomes a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerSettings {
    /// By its running moments: every voxel moves about as fast, whatever the size of its gradient.
    Adam(AdamSettings),
    /// Steepest descent: the largest gradient makes a full step in every iteration (ANTs). Regions of
    /// less contrast move less.
    Sgd,
    /// Gradients divided by the slope of the image (demons; Thirion 1998): for squared differences
    /// the step of Gauss and Newton with Levenberg's damping. Not for velocities.
    GaussNewton(GaussNewtonSettings),
    /// L-BFGS with a line search (Nocedal 1980): each iteration lowers the loss, and learns from the last ones how
    /// the slope changes. It searches fields `start + S w`. `S` smooths by a Gaussian of the standard deviation
    /// `sqrt((sigma_gradient^2 + sigma_warp^2) / 2)`. Nothing is smoothed or composed after a step.
    Lbfgs(LbfgsSettings),
}

/// Settings of [`OptimizerSettings::Adam`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamSettings {
    /// Gradients below this part of the root mean square of the whole field's make shorter steps,
    /// in proportion. Default 0.1. With 0 (FireANTs) noise in regions without contrast moves as fast
    /// as anatomy, and the result depends on the rounding of the last bit.
    pub gradient_floor: f64,
    /// How the moments of the gradient are stored between iterations. Default `full`; `bf16` halves
    /// them (24 bytes a voxel become 12) where the device has it, for volumes that would not fit.
    pub moments: MomentStorage,
}

/// Settings of [`OptimizerSettings::GaussNewton`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GaussNewtonSettings {
    /// Added to the squared slope, as a part of its mean over the image. Default 1: voxels with
    /// less slope than most move less than a full step.
    pub damping: f64,
}

/// Settings of [`OptimizerSettings::Lbfgs`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LbfgsSettings {
    /// Steps that are remembered, 24 bytes a voxel each. Default 5.
    pub history: usize,
}

impl Default for OptimizerSettings {
    fn default() -> Self {
        Self::Adam(AdamSettings::default())
    }
}

impl Default for AdamSettings {
    fn default() -> Self {
        Self { gradient_floor: 0.1, moments: MomentStorage::Full }
    }
}

impl AdamSettings {
    pub(crate) fn options(self) -> AdamOptions {
        let Self { gradient_floor, moments: storage } = self;
        AdamOptions { gradient_floor, storage, ..AdamOptions::default() }
    }
}

impl Default for GaussNewtonSettings {
    fn default() -> Self {
        Self { damping: 1.0 }
    }
}

impl Default for LbfgsSettings {
    fn default() -> Self {
        Self { history: 5 }
    }
}

impl OptimizerSettings {
    /// Each with its usual settings, and what people call it.
    pub(crate) const ALL: [(&str, Self); 4] = [
        ("Adam", Self::Adam(AdamSettings { gradient_floor: 0.1, moments: MomentStorage::Full })),
        ("SGD", Self::Sgd),
        ("Gauss-Newton", Self::GaussNewton(GaussNewtonSettings { damping: 1.0 })),
        ("L-BFGS", Self::Lbfgs(LbfgsSettings { history: 5 })),
    ];

    /// As the operation of whole iterations takes it; what else uses its gradients takes them as they are.
    pub(crate) fn first_order(self) -> Optimizer {
        match self {
            Self::Adam(adam) => Optimizer::Adam(adam.options()),
            Self::GaussNewton(settings) => Optimizer::GaussNewton { damping: settings.damping },
            Self::Sgd | Self::Lbfgs(_) => Optimizer::Sgd,
        }
    }

    /// How the moments of gradients are kept, where there are any.
    pub(crate) fn moments(self) -> Option<MomentStorage> {
        self.first_order().adam().map(|adam| adam.storage)
    }

    /// Whether it divides by the slope of the image at a voxel, which velocities and control points do not have.
    pub(crate) fn needs_slope(self) -> bool {
        self.first_order().slope_damping().is_some()
    }

    pub(super) fn validate(self) -> Result<()> {
        match self {
            Self::Adam(AdamSettings { gradient_floor, .. }) => {
                in_range("gradient_floor", gradient_floor, [0.0, 100.0], "0.1 is the usual one")
            }
            Self::Sgd => Ok(()),
            Self::GaussNewton(GaussNewtonSettings { damping }) => {
                in_range("damping", damping, [f64::MIN_POSITIVE, 1e6], "1 is the usual one")
            }
            Self::Lbfgs(LbfgsSettings { history }) => {
                in_range("history", history as f64, [1.0, 100.0], "5 to 10 are usual")
            }
        }
    }

    /// Steps of all parameters that are remembered, by one that searches along lines.
    pub(crate) fn kept_steps(self) -> Option<usize> {
        match self {
            Self::Lbfgs(LbfgsSettings { history }) => Some(history),
            Self::Adam(_) | Self::Sgd | Self::GaussNewton(_) => None,
        }
    }

    /// The lines that one searches along which has lines, with a first step of so many voxels.
    pub(crate) fn lines<P: Space + 'static>(self, first: f64) -> Option<Lines<P>> {
        match self {
            Self::Lbfgs(LbfgsSettings { history }) => Some(Lines {
                direction: Box::new(Lbfgs::new(history)),
                search: LineSearch::wolfe(),
                steps: Steps { first, longest: LONGEST * first, shortest: SHORTEST * first },
            }),
            Self::Adam(_) | Self::Sgd | Self::GaussNewton(_) => None,
        }
    }
}

/// How parameters are searched along lines, each of which lowers the loss.
pub(crate) struct Lines<P> {
    pub direction: Box<dyn Direction<P>>,
    pub search: LineSearch,
    /// Lengths in voxels.
    pub steps: Steps,
}

/// The longest step and the shortest that is tried, of the first: with the usual one a voxel, and a thousandth of it.
const LONGEST: f64 = 4.0;
const SHORTEST: f64 = 4e-3;
/// A step of steepest descent that is given up (Ikeda et al. 2014).
const STEEPEST_SHORTEST: f64 = 0.1;

impl<P: Space> Lines<P> {
    /// Steepest descent by steps of so many voxels or less.
    pub fn steepest(first: f64) -> Self {
        let steps = Steps { first, longest: first, shortest: STEEPEST_SHORTEST * first };
        Self { direction: Box::new(Steepest), search: LineSearch::armijo(), steps }
    }
}
