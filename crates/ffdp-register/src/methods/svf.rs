//! Settings of stationary velocities.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::deformable::{Buffers, FieldMethod};
use crate::models::{Model, Velocity};
use crate::settings::{
    ConvergenceSettings, Descent, LevelSettings, LnccSettings, OptimizerSettings, Regularization,
    Similarity, default_levels,
};
use ffdp_burn::ops::{Accumulation, Update};
use ffdp_image::error::{Error, Result};

/// A stationary velocity field (Arsigny et al. 2006; DARTEL, Ashburner 2007): the map is the flow along
/// it for unit time, its inverse the flow back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SvfSettings {
    /// The levels, coarse to fine. Default: as those of the greedy method.
    pub levels: Vec<LevelSettings>,
    /// What is maximised. Default: LNCC, for images of one modality.
    pub similarity: Similarity,
    /// Longest step of an iteration, in voxels along the finest axis of the level and per unit of
    /// time. Default 0.25.
    pub learning_rate_voxels: f64,
    /// How a gradient becomes a step. Default: Adam. Gauss and Newton's needs a displacement.
    pub optimizer: OptimizerSettings,
    /// Standard deviation of the smoothing of each gradient, in voxels along the finest axis of
    /// the level (the same length in mm along the others). Default 1.75: how fluid the motion is.
    pub sigma_gradient_voxels: f64,
    /// Standard deviation of the smoothing of the velocity after each step, as above. Default 0.5:
    /// diffusion of the velocity.
    pub sigma_velocity_voxels: f64,
    /// Squarings of the exponential, 1 to 12: the first part of the flow is the velocity over two to
    /// their power. Default 6; a velocity of 20 voxels then begins with a third of a voxel.
    pub squarings: usize,
    /// Penalties for a rough velocity. Default: diffusion alone.
    pub regularization: Regularization,
    /// When a level ends before its iterations are spent.
    pub convergence: ConvergenceSettings,
    /// Whether the same input gives the same bits on a GPU too. Default false: there the gradient is
    /// scattered back through each squaring, and the last bits depend on the order of additions.
    /// Costs 24 bytes a voxel and some time. The CPU, and the other methods everywhere, always do.
    pub deterministic: bool,
}

impl Default for SvfSettings {
    fn default() -> Self {
        Self {
            levels: default_levels(),
            similarity: Similarity::Lncc(LnccSettings::default()),
            learning_rate_voxels: 0.25,
            optimizer: OptimizerSettings::default(),
            sigma_gradient_voxels: 1.75,
            sigma_velocity_voxels: 0.5,
            squarings: 6,
            regularization: Regularization::default(),
            convergence: ConvergenceSettings::default(),
            deterministic: false,
        }
    }
}

impl FieldMethod for SvfSettings {
    fn descent(&self) -> Descent<'_> {
        Descent {
            learning_rate_voxels: self.learning_rate_voxels,
            optimizer: self.optimizer,
            // The velocity of a composition of flows is, to first order, their sum.
            update: Update::Additive,
            sigma_gradient_voxels: self.sigma_gradient_voxels,
            sigma_field_voxels: self.sigma_velocity_voxels,
            sigma_field_name: "sigma_velocity_voxels",
            regularization: self.regularization,
            diffusion_per_gain: 1.2,
            ..Descent::quiet(&self.levels, &self.similarity, &self.convergence)
        }
    }

    fn validate(&self) -> Result<()> {
        self.descent().validate()?;
        if !(1..=12).contains(&self.squarings) {
            let what = "the squarings of a velocity's exponential must lie in 1..12";
            return Err(Error::invalid(what, self.squarings, "6 is the usual number"));
        }
        if self.optimizer.needs_slope() {
            let what = "velocities have no step of Gauss and Newton";
            return Err(Error::invalid(what, self.optimizer, "use adam or sgd, or greedy or syn"));
        }
        Ok(())
    }

    fn settings_mut(&mut self) -> (&mut Vec<LevelSettings>, Option<&mut OptimizerSettings>) {
        (&mut self.levels, Some(&mut self.optimizer))
    }

    fn buffers(&self) -> Buffers {
        Buffers::searching(self, 130)
    }

    /// Squarings are more to share: an iteration on 256x256x512 voxels takes two H200 11.2 ms, and one 16.0
    /// (`benchmarks/iterations-on-two-gpus-h200.json`).
    fn shared_voxels(&self) -> usize {
        32 << 20
    }

    fn model(&self) -> Arc<dyn Model> {
        let accumulation = match self.deterministic {
            true => Accumulation::Reproducible,
            false => Accumulation::Fast,
        };
        Arc::new(Velocity { squarings: self.squarings, accumulation })
    }
}
