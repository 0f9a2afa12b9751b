//! Settings of symmetric normalisation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::deformable::{Buffers, FieldMethod};
use crate::models::{Halves, Model};
use crate::settings::{
    ConvergenceSettings, Descent, LevelSettings, LnccSettings, OptimizerSettings, Regularization,
    Similarity, default_levels,
};
use ffdp_burn::ops::Update;

/// Symmetric normalisation (Avants et al. 2008): fixed and moving image are each deformed half of the
/// way, and the halves are put together; the inverse comes with the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SynSettings {
    /// The levels, coarse to fine. Default: as those of the greedy method.
    pub levels: Vec<LevelSettings>,
    /// What is maximised, half way between the images. Default: LNCC, for images of one modality.
    pub similarity: Similarity,
    /// Longest step of each half in an iteration, in voxels along the finest axis of the level.
    /// Default 0.125: together the halves go as far as a greedy step. With twice that, 0.03 % of a
    /// phantom's voxels folded.
    pub learning_rate_voxels: f64,
    /// How a gradient becomes a step. Default: Adam.
    pub optimizer: OptimizerSettings,
    /// Standard deviation of the smoothing of each gradient, in voxels along the finest axis of
    /// the level (the same length in mm along the others). Default 1.5.
    pub sigma_gradient_voxels: f64,
    /// Standard deviation of the smoothing of both halves after each step, as above. Default 0.5.
    pub sigma_warp_voxels: f64,
    /// Penalties for rough halves. Default: diffusion alone.
    pub regularization: Regularization,
    /// When a level ends before its iterations are spent.
    pub convergence: ConvergenceSettings,
}

impl Default for SynSettings {
    fn default() -> Self {
        Self {
            levels: default_levels(),
            similarity: Similarity::Lncc(LnccSettings::default()),
            learning_rate_voxels: 0.125,
            optimizer: OptimizerSettings::default(),
            sigma_gradient_voxels: 1.5,
            sigma_warp_voxels: 0.5,
            regularization: Regularization::default(),
            convergence: ConvergenceSettings::default(),
        }
    }
}

impl FieldMethod for SynSettings {
    fn descent(&self) -> Descent<'_> {
        Descent {
            learning_rate_voxels: self.learning_rate_voxels,
            optimizer: self.optimizer,
            update: Update::Compositive,
            sigma_gradient_voxels: self.sigma_gradient_voxels,
            sigma_field_voxels: self.sigma_warp_voxels,
            sigma_field_name: "sigma_warp_voxels",
            regularization: self.regularization,
            diffusion_per_gain: 6.0,
            ..Descent::quiet(&self.levels, &self.similarity, &self.convergence)
        }
    }

    fn settings_mut(&mut self) -> (&mut Vec<LevelSettings>, Option<&mut OptimizerSettings>) {
        (&mut self.levels, Some(&mut self.optimizer))
    }

    fn buffers(&self) -> Buffers {
        Buffers::searching(self, 97)
    }

    fn model(&self) -> Arc<dyn Model> {
        Arc::new(Halves)
    }
}
