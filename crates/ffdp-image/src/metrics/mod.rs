//! Quality of a registration: what is printed, compared and believed. Plain CPU code on slices.
//!
//! Fields are `[3, D, H, W]`, components (x, y, z), in voxels of the grid; `size` is (x, y, z)
//! everywhere. Label metrics follow the Learn2Reg definitions; [`learn2reg()`] follows its evaluation
//! to the letter. What a large result is measured by takes runs of planes ([`SimilarityMeasures`],
//! [`JacobianReport::of_runs`], [`Motion`], [`OverlapCounts`]). Golden values come from independent implementations: `scripts/golden/metrics.py`.
//! Read [`dice`](dice()) and [`jacobian`](jacobian()) first.

mod coverage;
mod dice;
mod distance_transform;
mod inverse_consistency;
mod jacobian;
mod label_warp;
mod learn2reg;
mod motion;
mod overlap;
mod percentile;
mod similarity;
mod surface;
#[cfg(test)]
mod tests;
mod tre;
mod warp;

pub use coverage::Coverage;
pub use dice::{DiceScores, LabelDice, OverlapCounts, dice, dice_of};
pub use distance_transform::distance_transform;
pub use inverse_consistency::{InverseConsistency, inverse_consistency};
pub use jacobian::{
    Difference, FieldPlanes, JacobianDistribution, JacobianReport, Regularity, determinant_of,
    jacobian, jacobian_determinants, regularity,
};
pub use label_warp::warp_labels;
pub use learn2reg::{Learn2RegCase, Learn2RegLabel, Learn2RegReport, VoxelLandmarks, learn2reg};
pub use motion::{Lengths, Motion};
pub use overlap::{BeforeAfter, LabelOverlap, Overlap, Surfaces};
pub use similarity::{
    Compared, Information, PairPlanes, SSIM_WINDOW, SimilarityMeasures, foreground, information,
    local_ncc, mean_squared_error, ncc, psnr, ssim,
};
pub use surface::{DistanceUnit, LabelSurface, surface_distances, surface_mean};
pub use tre::{ErrorStatistics, TargetRegistrationError, tre, tre_of_mapped};
pub use warp::Warp;
