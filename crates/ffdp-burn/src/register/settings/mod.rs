//! Every number of a registration that can be chosen, with its unit and the origin of its default.

mod deformable;
mod greedy;
mod linear;
mod preset;
mod similarity;
mod svf;
mod syn;

pub(super) use deformable::Descent;
pub use deformable::{AdamSettings, GaussNewtonSettings, OptimizerSettings, Regularization};
pub use greedy::GreedySettings;
pub(super) use linear::FOREGROUND;
pub use linear::{LinearSettings, MomentsCentre, MomentsOrder, MomentsSettings};
pub use preset::Preset;
pub use similarity::{LnccSettings, MiSettings, OwnSimilarity, Similarity};
pub use svf::SvfSettings;
pub use syn::SynSettings;

use serde::{Deserialize, Serialize};

use super::pyramid::MINIMUM_AXIS_VOXELS;
use crate::error::{Error, Result};

/// What a registration does. Readable from a file: missing entries take their defaults, unknown
/// ones are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// What is found, in this order; each stage starts from what those before it found. Linear stages
    /// come first. Default: moments, rigid, affine, greedy.
    pub stages: Vec<Stage>,
    /// Percentiles of each image that become 0 and 1 before it is compared. Default 1 and 99.9:
    /// the background stays at 0 and a few hot voxels cannot flatten the contrast.
    pub intensity_percentiles: [f64; 2],
    /// Whether the intensities of the moving image are first distributed as those of the fixed one, by
    /// landmarks of their histograms. For images of one modality that are compared by `mse`; LNCC and
    /// the information do not need it. Default false.
    pub match_histograms: bool,
    /// Iterations between two reads of the loss from the device. Default 10: every read waits for
    /// all work in flight.
    pub loss_interval: usize,
    /// No axis of a level has fewer voxels than this (nor more than the image), 8 to 32. Default 16: below,
    /// a brain is a blob.
    pub minimum_axis_voxels: usize,
}

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
}

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

impl Default for Settings {
    fn default() -> Self {
        Self::preset(Preset::Default)
    }
}

impl Default for ConvergenceSettings {
    fn default() -> Self {
        Self { window: 10, tolerance: 1e-6 }
    }
}

/// Shrink factors beyond this are slips of the pen.
const LARGEST_SHRINK: f64 = 64.0;

impl Settings {
    /// # Errors
    /// [`Error::Invalid`] naming the first setting that has no meaning, with its value.
    pub fn validate(&self) -> Result<()> {
        if self.stages.is_empty() {
            let what = "a registration needs at least one stage";
            return Err(Error::invalid(what, &self.stages, "add one, for example greedy"));
        }
        self.stages.iter().try_for_each(Stage::validate)?;
        self.check_order()?;
        if !(MINIMUM_AXIS_VOXELS..=32).contains(&self.minimum_axis_voxels) {
            return Err(Error::invalid(
                format!("minimum_axis_voxels must lie in {MINIMUM_AXIS_VOXELS}..32"),
                self.minimum_axis_voxels,
                "16 is the usual one",
            ));
        }
        let [low, high] = self.intensity_percentiles;
        if !(0.0 <= low && low < high && high <= 100.0) {
            return Err(Error::invalid(
                "intensity_percentiles must be ascending and within 0..100",
                self.intensity_percentiles,
                "use, for example, 1 and 99.9",
            ));
        }
        if self.loss_interval == 0 {
            let what = "loss_interval must be at least 1 iteration";
            return Err(Error::invalid(what, self.loss_interval, "use, for example, 10"));
        }
        Ok(())
    }
}

impl Settings {
    /// Linear stages come first, moments before all; a velocity begins at rest: it cannot go on from
    /// a displacement.
    fn check_order(&self) -> Result<()> {
        let names: Vec<_> = self.stages.iter().map(Stage::name).collect();
        if !self.stages.is_sorted_by_key(|stage| !stage.is_linear()) {
            let what = "linear stages (moments, rigid, affine) must come before deformable ones";
            let fix = "change the order, for example to moments, rigid, affine, greedy";
            return Err(Error::invalid(what, names, fix));
        }
        if self.stages.iter().skip(1).any(|stage| matches!(stage, Stage::Moments(_))) {
            let fix = "leave them out there: they would undo what was found before";
            return Err(Error::invalid("moments can only be the first stage", names, fix));
        }
        let mut deformable = self.stages.iter().filter(|stage| !stage.is_linear()).skip(1);
        if deformable.all(|stage| !matches!(stage, Stage::Svf(_))) {
            return Ok(());
        }
        let what = "svf must be the first deformable stage: a displacement has no velocity";
        Err(Error::invalid(what, names, "put svf first, or use greedy or syn after it"))
    }
}

impl Stage {
    /// Its name, as a file has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Moments(_) => "moments",
            Self::Rigid(_) => "rigid",
            Self::Affine(_) => "affine",
            Self::Greedy(_) => "greedy",
            Self::Syn(_) => "syn",
            Self::Svf(_) => "svf",
        }
    }

    /// Whether it moves the image as a whole.
    pub fn is_linear(&self) -> bool {
        match self {
            Self::Moments(_) | Self::Rigid(_) | Self::Affine(_) => true,
            Self::Greedy(_) | Self::Syn(_) | Self::Svf(_) => false,
        }
    }

    fn validate(&self) -> Result<()> {
        match self {
            Self::Moments(settings) => settings.validate(),
            Self::Rigid(settings) | Self::Affine(settings) => settings.validate(),
            Self::Greedy(settings) => settings.descent().validate(),
            Self::Syn(settings) => settings.descent().validate(),
            Self::Svf(settings) => settings.validate(),
        }
    }

    /// What a deformable stage shares with the others; `None` for other stages.
    pub(super) fn descent(&self) -> Option<Descent<'_>> {
        match self {
            Self::Moments(_) | Self::Rigid(_) | Self::Affine(_) => None,
            Self::Greedy(settings) => Some(settings.descent()),
            Self::Syn(settings) => Some(settings.descent()),
            Self::Svf(settings) => Some(settings.descent()),
        }
    }
}

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
fn default_levels() -> Vec<LevelSettings> {
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
fn validate_shrink(shrinks: &[f64]) -> Result<()> {
    if shrinks.iter().all(|shrink| (1.0..=LARGEST_SHRINK).contains(shrink)) {
        return Ok(());
    }
    let what = format!("every shrink factor must lie in 1..{LARGEST_SHRINK}");
    Err(Error::invalid(what, shrinks, "use, for example, 4, 2, 1"))
}

fn in_range(what: &str, value: f64, [low, high]: [f64; 2], fix: &str) -> Result<()> {
    // NaN lies in no range.
    if (low..=high).contains(&value) {
        return Ok(());
    }
    let above = if low > 0.0 { "above 0".to_string() } else { format!("at least {low}") };
    Err(Error::invalid(format!("{what} must be {above} and at most {high}"), value, fix))
}
