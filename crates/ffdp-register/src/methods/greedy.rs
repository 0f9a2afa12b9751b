//! Settings of the greedy deformation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::deformable::{Buffers, FieldMethod};
use crate::models::{Displaced, Model};
use crate::settings::{
    ConvergenceSettings, Descent, LevelSettings, LnccSettings, OptimizerSettings, Regularization,
    Similarity, default_levels,
};
use ffdp_burn::ops::Update;

/// The greedy method: one displacement follows its gradient; see [`ops::deform`](ffdp_burn::ops::deform()).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GreedySettings {
    /// The levels, coarse to fine. Default: shrink 4, 2, 1 with at most 200, 100, 50 iterations,
    /// the schedule with which FireANTs and the FFDP paper report their figures.
    pub levels: Vec<LevelSettings>,
    /// What is maximised. Default: LNCC, for images of one modality.
    pub similarity: Similarity,
    /// Longest step of an iteration, in voxels along the finest axis of the level. Default 0.25:
    /// it equals FireANTs' 0.5, whose unit is half a voxel. On a pair of brains twice the step lost 0.004 of
    /// Dice and folded 0.13 % of the voxels; this step folded 0.0008 %.
    pub learning_rate_voxels: f64,
    /// How a gradient becomes a step. Default: Adam.
    pub optimizer: OptimizerSettings,
    /// Whether steps are added to the displacement instead of composed with it. Default false:
    /// composed steps keep the map invertible.
    pub freeform: bool,
    /// Standard deviation of the smoothing of each gradient, in voxels along the finest axis of
    /// the level (the same length in mm along the others): how fluid the motion is. Default 1.5: with the
    /// diffusion below the mean Dice of 15 pairs of brains was 0.657, with 1 (FireANTs) and no diffusion 0.652.
    pub sigma_gradient_voxels: f64,
    /// Standard deviation of the smoothing of the displacement after each step, as above. Default
    /// 0.5 (FireANTs): how elastic the motion is.
    pub sigma_warp_voxels: f64,
    /// Penalties for a rough displacement. Default: diffusion alone.
    pub regularization: Regularization,
    /// When a level ends before its iterations are spent.
    pub convergence: ConvergenceSettings,
}

impl Default for GreedySettings {
    fn default() -> Self {
        Self {
            levels: default_levels(),
            similarity: Similarity::Lncc(LnccSettings::default()),
            learning_rate_voxels: 0.25,
            optimizer: OptimizerSettings::default(),
            freeform: false,
            sigma_gradient_voxels: 1.5,
            sigma_warp_voxels: 0.5,
            regularization: Regularization::default(),
            convergence: ConvergenceSettings::default(),
        }
    }
}

impl FieldMethod for GreedySettings {
    fn descent(&self) -> Descent<'_> {
        Descent {
            learning_rate_voxels: self.learning_rate_voxels,
            optimizer: self.optimizer,
            update: if self.freeform { Update::Additive } else { Update::Compositive },
            sigma_gradient_voxels: self.sigma_gradient_voxels,
            sigma_field_voxels: self.sigma_warp_voxels,
            sigma_field_name: "sigma_warp_voxels",
            regularization: self.regularization,
            diffusion_per_gain: 0.4,
            ..Descent::quiet(&self.levels, &self.similarity, &self.convergence)
        }
    }

    fn settings_mut(&mut self) -> (&mut Vec<LevelSettings>, Option<&mut OptimizerSettings>) {
        (&mut self.levels, Some(&mut self.optimizer))
    }

    fn buffers(&self) -> Buffers {
        Buffers::searching(self, 50)
    }

    fn model(&self) -> Arc<dyn Model> {
        Arc::new(Displaced)
    }
}
