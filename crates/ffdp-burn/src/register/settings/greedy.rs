//! Settings of the greedy deformation.

use serde::{Deserialize, Serialize};

use super::{
    ConvergenceSettings, LevelSettings, LnccSettings, Similarity, default_levels, in_range,
    validate_levels,
};
use crate::error::Result;
use crate::ops::MomentStorage;

/// The compositive greedy method; see [`ops::greedy`](crate::ops::greedy()).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GreedySettings {
    /// The levels, coarse to fine. Default: shrink 4, 2, 1 with at most 200, 100, 50 iterations,
    /// the schedule with which FireANTs and the FFDP paper report their figures.
    pub levels: Vec<LevelSettings>,
    /// What is maximised. Default: LNCC, for images of one modality.
    pub similarity: Similarity,
    /// Longest step of an iteration, in voxels along the finest axis of the level. Default 0.25:
    /// FireANTs' 0.5, whose unit is half a voxel. On a pair of brains twice the step lost 0.004 of
    /// Dice and folded 0.13 % of the voxels; this step folded 0.0008 %.
    pub learning_rate_voxels: f64,
    /// Gradients below this part of the root mean square of the whole field's make shorter steps,
    /// in proportion. Default 0.1. With 0 (FireANTs) noise in regions without contrast moves as fast
    /// as anatomy, and the result depends on the rounding of the last bit.
    pub gradient_floor: f64,
    /// Standard deviation of the smoothing of each gradient, in voxels along the finest axis of
    /// the level (the same length in mm along the others). Default 1 (FireANTs): how fluid the
    /// motion is.
    pub sigma_gradient_voxels: f64,
    /// Standard deviation of the smoothing of the displacement after each step, as above. Default
    /// 0.5 (FireANTs): how elastic the motion is.
    pub sigma_warp_voxels: f64,
    /// When a level ends before its iterations are spent.
    pub convergence: ConvergenceSettings,
    /// How the moments of the gradient are stored between iterations. Default `full`; `bf16` halves
    /// them (24 bytes a voxel become 12) where the device has it, for volumes that would not fit.
    pub moments: MomentStorage,
}

impl Default for GreedySettings {
    fn default() -> Self {
        Self {
            levels: default_levels(),
            similarity: Similarity::Lncc(LnccSettings::default()),
            learning_rate_voxels: 0.25,
            gradient_floor: 0.1,
            sigma_gradient_voxels: 1.0,
            sigma_warp_voxels: 0.5,
            moments: MomentStorage::Full,
            convergence: ConvergenceSettings::default(),
        }
    }
}

/// Steps and smoothing beyond this are slips of the pen.
const LARGEST_STEP_VOXELS: f64 = 10.0;
const LARGEST_SIGMA_VOXELS: f64 = 20.0;

impl GreedySettings {
    pub(super) fn validate(&self) -> Result<()> {
        validate_levels(&self.levels)?;
        self.similarity.validate()?;
        in_range(
            "the learning rate (longest step, voxels)",
            self.learning_rate_voxels,
            [f64::MIN_POSITIVE, LARGEST_STEP_VOXELS],
            "0.25 is the usual one",
        )?;
        in_range("gradient_floor", self.gradient_floor, [0.0, 100.0], "0.1 is the usual one")?;
        let sigmas = [0.0, LARGEST_SIGMA_VOXELS];
        let gradient = "sigma_gradient_voxels";
        in_range(gradient, self.sigma_gradient_voxels, sigmas, "1 is the usual one, 0 is off")?;
        let warp = "sigma_warp_voxels";
        in_range(warp, self.sigma_warp_voxels, sigmas, "0.5 is the usual one, 0 is off")?;
        self.convergence.validate()
    }
}
