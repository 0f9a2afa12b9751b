//! The numbers that methods share, with their units and the origin of their defaults. What a registration does as a
//! whole is `../schedule/`.

mod deformable;
mod label_term;
mod linear;
mod optimizer;

pub(super) use deformable::Descent;
pub use deformable::Regularization;
pub use ffdp_burn::losses::similarities::{
    LnccSettings, MiSettings, MindSettings, NgfSettings, OwnSimilarity, Similarity,
};
pub use label_term::LabelTerm;
pub(super) use linear::{FOREGROUND, Next};
pub use linear::{
    LinearSettings, MomentsCentre, MomentsOrder, MomentsSettings, OrientationSettings,
};
pub(super) use optimizer::Lines;
pub use optimizer::{AdamSettings, GaussNewtonSettings, LbfgsSettings, OptimizerSettings};

use serde::{Deserialize, Serialize};

use ffdp_image::error::{Error, Result};

/// One level of the pyramid.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelSettings {
    /// Voxel size of the level as a multiple of the finest spacing of the fixed image, at least 1.
    pub shrink: f64,
    /// Iterations at most.
    pub iterations: usize,
}

/// When a level has converged: the slope of a line through the last losses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConvergenceSettings {
    /// Number of losses the line is fitted through, at least 2. Default 10 (ANTs).
    pub window: usize,
    /// The level ends when the loss falls by less than this part of itself per iteration. Default
    /// 1e-6 (ANTs); 0 or less: only when the loss rises, or never.
    pub tolerance: f64,
}

impl Default for ConvergenceSettings {
    fn default() -> Self {
        Self { window: 10, tolerance: 1e-6 }
    }
}

/// Shrink factors beyond this are typing errors.
const LARGEST_SHRINK: f64 = 64.0;

impl ConvergenceSettings {
    fn validate(&self) -> Result<()> {
        if self.window >= 2 && self.tolerance.is_finite() {
            return Ok(());
        }
        Err(Error::invalid(
            "convergence needs a window of at least 2 losses and a finite tolerance",
            self,
            "use, for example, 10 and 1e-6",
        ))
    }
}

/// Shrink 4, 2, 1 with at most 200, 100, 50 iterations.
pub(super) fn default_levels() -> Vec<LevelSettings> {
    let level = |(shrink, iterations)| LevelSettings { shrink, iterations };
    [(4.0, 200), (2.0, 100), (1.0, 50)].map(level).to_vec()
}

/// That levels exist, go from coarse to fine, and do something.
fn validate_levels(levels: &[LevelSettings]) -> Result<()> {
    if levels.is_empty() {
        let what = "a registration needs at least one level";
        return Err(Error::invalid(what, levels, "use, for example, shrink 4, 2, 1"));
    }
    let shrinks: Vec<f64> = levels.iter().map(|level| level.shrink).collect();
    validate_shrink(&shrinks)?;
    if !shrinks.is_sorted_by(|coarse, fine| coarse >= fine) {
        let what = "shrink factors must go from coarse to fine";
        return Err(Error::invalid(what, shrinks, "use, for example, 4, 2, 1"));
    }
    if levels.iter().all(|level| level.iterations == 0) {
        let what = "at least one level needs iterations";
        return Err(Error::invalid(what, levels, "use, for example, 200, 100, 50"));
    }
    Ok(())
}

/// That a level is neither enlarged nor shrunk to nothing.
pub(super) fn validate_shrink(shrinks: &[f64]) -> Result<()> {
    if shrinks.iter().all(|shrink| (1.0..=LARGEST_SHRINK).contains(shrink)) {
        return Ok(());
    }
    let what = format!("every shrink factor must lie in 1..{LARGEST_SHRINK}");
    Err(Error::invalid(what, shrinks, "use, for example, 4, 2, 1"))
}

pub(super) fn in_range(what: &str, value: f64, [low, high]: [f64; 2], fix: &str) -> Result<()> {
    // NaN lies in no range.
    if (low..=high).contains(&value) {
        return Ok(());
    }
    let above = if low > 0.0 { "above 0".to_string() } else { format!("at least {low}") };
    Err(Error::invalid(format!("{what} must be {above} and at most {high}"), value, fix))
}
