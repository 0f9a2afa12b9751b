//! What the settings of all deformable methods share.

use serde::{Deserialize, Serialize};

use super::{
    ConvergenceSettings, LevelSettings, OptimizerSettings, Similarity, in_range, validate_levels,
};
use ffdp_burn::ops::{Penalties, Update};
use ffdp_image::error::Result;

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
