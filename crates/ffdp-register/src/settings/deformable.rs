//! What the settings of all deformable methods share.

use serde::{Deserialize, Serialize};

use super::{ConvergenceSettings, LevelSettings, Similarity, in_range, validate_levels};
use ffdp_burn::ops::{AdamOptions, MomentStorage, Optimizer, Penalties, Update};
use ffdp_image::error::Result;

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

/// Penalties: terms that are added to the loss for rough fields, each with its weight. The losses of a level and its convergence include them. The loss of a registration before
/// and after excludes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Regularization {
    /// Weight of the mean squared first differences; see [`diffusion`](ffdp_burn::ops::diffusion()). Default: that of the
    /// method, in proportion to what the similarity usually gains: with LNCC 0.2 of `greedy`, 3 of `syn` and 0.6 of `svf`;
    /// 0 of others. On 15 pairs of brains with 138 structures these weights raised the mean Dice of `greedy` by 0.002; they
    /// cost `syn` and `svf` 0.002, and left a quarter and a tenth of their folds (benchmarks/brains-defaults.json).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diffusion: Option<f64>,
    /// Weight of the mean squared second derivatives (1/mm^2), mm^2: the same stiffness on every level and at
    /// every resolution; see [`bending_energy`](ffdp_burn::ops::bending_energy()).
    pub bending: f64,
    /// Weight of the mean length of the first differences; see
    /// [`total_variation`](ffdp_burn::ops::total_variation()).
    pub total_variation: f64,
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

    fn validate(self) -> Result<()> {
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

    /// Steps that are remembered, by one that searches.
    pub(crate) fn kept_steps(self) -> Option<usize> {
        match self {
            Self::Lbfgs(LbfgsSettings { history }) => Some(history),
            Self::Adam(_) | Self::Sgd | Self::GaussNewton(_) => None,
        }
    }
}

impl Regularization {
    /// As the operation takes it on a level of this spacing. First differences, voxels of displacement a voxel,
    /// are the derivatives; second ones are those of 1/mm times the spacing.
    pub(crate) fn penalties(self, spacing_mm: f64, usual_diffusion: f64) -> Penalties {
        let Self { diffusion, bending, total_variation } = self;
        let diffusion = diffusion.unwrap_or(usual_diffusion);
        Penalties { diffusion, bending: bending / spacing_mm.powi(2), total_variation }
    }
}

/// The settings of a deformable stage, whatever its method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descent<'a> {
    pub levels: &'a [LevelSettings],
    pub similarity: &'a Similarity,
    pub learning_rate_voxels: f64,
    pub optimizer: OptimizerSettings,
    pub update: Update,
    pub sigma_gradient_voxels: f64,
    /// Of the displacement or velocity.
    pub sigma_field_voxels: f64,
    /// What the settings call the last.
    pub sigma_field_name: &'static str,
    pub regularization: Regularization,
    /// The weight of the diffusion where none is set, as a part of what the similarity gains.
    pub diffusion_per_gain: f64,
    pub convergence: &'a ConvergenceSettings,
}

/// Steps, smoothing and weights beyond this are taken for typing errors.
const LARGEST_STEP_VOXELS: f64 = 10.0;
const LARGEST_SIGMA_VOXELS: f64 = 20.0;
const LARGEST_WEIGHT: f64 = 1e6;

impl<'a> Descent<'a> {
    /// Of fields that nothing smooths and no weight keeps smooth, whatever makes the steps.
    pub fn quiet(
        levels: &'a [LevelSettings],
        similarity: &'a Similarity,
        convergence: &'a ConvergenceSettings,
    ) -> Self {
        Self {
            levels,
            similarity,
            learning_rate_voxels: 1.0,
            optimizer: OptimizerSettings::Sgd,
            update: Update::Additive,
            sigma_gradient_voxels: 0.0,
            sigma_field_voxels: 0.0,
            sigma_field_name: "none",
            regularization: Regularization::default(),
            diffusion_per_gain: 0.0,
            convergence,
        }
    }

    /// The weight of the diffusion where none is set.
    pub fn usual_diffusion(&self) -> f64 {
        match self.diffusion_per_gain {
            0.0 => 0.0,
            part => part * self.similarity.loss().usual_gain(),
        }
    }

    pub fn validate(&self) -> Result<()> {
        validate_levels(self.levels)?;
        self.similarity.validate()?;
        in_range(
            "the learning rate (longest step, voxels)",
            self.learning_rate_voxels,
            [f64::MIN_POSITIVE, LARGEST_STEP_VOXELS],
            "0.25 is the usual one",
        )?;
        self.optimizer.validate()?;
        let sigmas = [0.0, LARGEST_SIGMA_VOXELS];
        let gradient = "sigma_gradient_voxels";
        in_range(gradient, self.sigma_gradient_voxels, sigmas, "1 is the usual one, 0 is off")?;
        let field = self.sigma_field_name;
        in_range(field, self.sigma_field_voxels, sigmas, "0.5 is a usual one, 0 is off")?;
        let Regularization { diffusion, bending, total_variation } = self.regularization;
        for (name, weight) in [
            ("the weight of the diffusion", diffusion.unwrap_or(0.0)),
            ("the weight of the bending energy", bending),
            ("the weight of the total variation", total_variation),
        ] {
            in_range(name, weight, [0.0, LARGEST_WEIGHT], "0 is off, try 0.01 to 1")?;
        }
        self.convergence.validate()
    }
}
