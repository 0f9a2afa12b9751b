//! Every number of a registration that can be chosen, with its unit and the origin of its default.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::ops::MomentStorage;

/// What a registration does. Readable from a file: missing entries take their defaults, unknown
/// ones are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
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
    /// Percentiles of each image that become 0 and 1 before it is compared. Default 1 and 99.9:
    /// the background stays at 0 and a few hot voxels cannot flatten the contrast.
    pub intensity_percentiles: [f64; 2],
    /// When a level ends before its iterations are spent.
    pub convergence: ConvergenceSettings,
    /// How the moments of the gradient are stored between iterations. Default `full`; `bf16` halves
    /// them (24 bytes a voxel become 12) where the device has it, for volumes that would not fit.
    pub moments: MomentStorage,
    /// Iterations between two reads of the loss from the device. Default 10: every read waits for
    /// all work in flight.
    pub loss_interval: usize,
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

/// How alike the warped moving and the fixed image are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Similarity {
    /// Local normalised cross-correlation; see [`ops::lncc`](crate::ops::lncc()).
    Lncc(LnccSettings),
    /// Mean squared difference, for images of the same intensities.
    Mse,
    /// Mutual information, for images of different modalities; see
    /// [`losses::MutualInformation`](crate::losses::MutualInformation).
    Mi(MiSettings),
}

/// Settings of the local correlation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LnccSettings {
    /// Width of the window in voxels of the level; odd, 3 to 21. Default 7 (FFDP paper).
    pub window: usize,
    /// Added to the product of the variances, in intensity^4 of images scaled to 0..1. Default
    /// 1e-5 (VoxelMorph, FireANTs): regions with less contrast than about 0.05 count less.
    pub epsilon: f64,
}

/// Settings of the mutual information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MiSettings {
    /// Bins of each image's intensities, 8 to 256, spread by the cubic B-spline. Default 32 (FFDP
    /// paper).
    pub bins: usize,
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
        let level = |shrink, iterations| LevelSettings { shrink, iterations };
        Self {
            levels: vec![level(4.0, 200), level(2.0, 100), level(1.0, 50)],
            similarity: Similarity::Lncc(LnccSettings::default()),
            learning_rate_voxels: 0.25,
            gradient_floor: 0.1,
            sigma_gradient_voxels: 1.0,
            sigma_warp_voxels: 0.5,
            intensity_percentiles: [1.0, 99.9],
            convergence: ConvergenceSettings::default(),
            moments: MomentStorage::Full,
            loss_interval: 10,
        }
    }
}

impl Default for LnccSettings {
    fn default() -> Self {
        Self { window: 7, epsilon: 1e-5 }
    }
}

impl Default for MiSettings {
    fn default() -> Self {
        Self { bins: 32 }
    }
}

impl Default for ConvergenceSettings {
    fn default() -> Self {
        Self { window: 10, tolerance: 1e-6 }
    }
}

/// Shrink factors, step and smoothing beyond this are slips of the pen.
const LARGEST_SHRINK: f64 = 64.0;
const LARGEST_STEP_VOXELS: f64 = 10.0;
const LARGEST_SIGMA_VOXELS: f64 = 20.0;

impl Settings {
    /// # Errors
    /// [`Error::Invalid`] naming the first setting that has no meaning, with its value.
    pub fn validate(&self) -> Result<()> {
        self.validate_levels()?;
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
        let [low, high] = self.intensity_percentiles;
        if !(0.0 <= low && low < high && high <= 100.0) {
            return Err(Error::invalid(
                "intensity_percentiles must be ascending and within 0..100",
                self.intensity_percentiles,
                "use, for example, 1 and 99.9",
            ));
        }
        if self.convergence.window < 2 || !self.convergence.tolerance.is_finite() {
            return Err(Error::invalid(
                "convergence needs a window of at least 2 losses and a finite tolerance",
                self.convergence,
                "use, for example, 10 and 1e-6",
            ));
        }
        if self.loss_interval == 0 {
            let what = "loss_interval must be at least 1 iteration";
            return Err(Error::invalid(what, self.loss_interval, "use, for example, 10"));
        }
        Ok(())
    }

    fn validate_levels(&self) -> Result<()> {
        if self.levels.is_empty() {
            let what = "a registration needs at least one level";
            return Err(Error::invalid(what, &self.levels, "use, for example, shrink 4, 2, 1"));
        }
        let shrinks: Vec<f64> = self.levels.iter().map(|level| level.shrink).collect();
        if !shrinks.iter().all(|shrink| (1.0..=LARGEST_SHRINK).contains(shrink)) {
            return Err(Error::invalid(
                format!("every shrink factor must lie in 1..{LARGEST_SHRINK}"),
                shrinks,
                "use, for example, 4, 2, 1",
            ));
        }
        if !shrinks.is_sorted_by(|coarse, fine| coarse >= fine) {
            let what = "shrink factors must go from coarse to fine";
            return Err(Error::invalid(what, shrinks, "use, for example, 4, 2, 1"));
        }
        if self.levels.iter().all(|level| level.iterations == 0) {
            let what = "at least one level needs iterations";
            return Err(Error::invalid(what, &self.levels, "use, for example, 200, 100, 50"));
        }
        Ok(())
    }
}

impl Similarity {
    fn validate(&self) -> Result<()> {
        let LnccSettings { window, epsilon } = match *self {
            Self::Lncc(settings) => settings,
            Self::Mi(MiSettings { bins }) if !(8..=256).contains(&bins) => {
                let what = "the bins of mutual information must lie in 8..256";
                return Err(Error::invalid(what, bins, "32 is the usual number"));
            }
            Self::Mi(_) | Self::Mse => return Ok(()),
        };
        if window.is_multiple_of(2) || !(3..=21).contains(&window) {
            let what = "the window of LNCC must be odd and within 3..21 voxels";
            return Err(Error::invalid(what, window, "use, for example, 5, 7 or 9"));
        }
        let range = [f64::MIN_POSITIVE, 1.0];
        in_range("the epsilon of LNCC", epsilon, range, "1e-5 is the usual one")
    }
}

fn in_range(what: &str, value: f64, [low, high]: [f64; 2], fix: &str) -> Result<()> {
    // NaN lies in no range.
    if (low..=high).contains(&value) {
        return Ok(());
    }
    let above = if low > 0.0 { "above 0".to_string() } else { format!("at least {low}") };
    Err(Error::invalid(format!("{what} must be {above} and at most {high}"), value, fix))
}
