//! What a registration does: its stages in order, and what holds for all of them.

mod matrix;
mod preset;
mod stage;

pub use matrix::matrix;
pub use preset::Preset;

use serde::{Deserialize, Serialize};

use super::methods::Stage;
use super::pyramid::{MINIMUM_AXIS_VOXELS, finest_spacing_mm};
use super::settings::{LabelTerm, Next, in_range};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::Geometry;

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
    /// Whether the histogram of the moving image is first matched to that of the fixed image, by quantiles.
    /// For images of one modality that are compared by `mse`; LNCC and mutual information do not need it.
    /// Default false.
    pub match_histograms: bool,
    /// Standard deviation of the distance of corresponding landmarks, mm: with it, those that are given drive every stage
    /// but moments. A point one standard deviation off costs half a thousandth of what the similarity of the
    /// images usually gains.
    /// Default: none, they are measured only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub landmark_sigma_mm: Option<f64>,
    /// The same on the coarsest level of all stages, mm, from where it goes to `landmark_sigma_mm` on the finest one, by the
    /// logarithm of the size of voxels. Above it landmarks are annealed: they count little at first. Below it they lead at
    /// first, and the images decide in the end. Default: that of the finest level, on all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub landmark_sigma_first_mm: Option<f64>,
    /// Labels of both images whose overlap drives the deformable stages. Default: none, labels are measured only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_term: Option<LabelTerm>,
    /// Iterations between two reads of the loss from the device. Default 10: every read waits for
    /// all work in flight.
    pub loss_interval: usize,
    /// No axis of a level has fewer voxels than this (nor more than the image), 8 to 32. Default 16:
    /// smaller levels do not show the structure of a brain.
    pub minimum_axis_voxels: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self::preset(Preset::Default)
    }
}

impl Settings {
    /// The same with the levels of linear stages that are left to the images, for a fixed image on this grid.
    pub fn for_images(&self, fixed: &Geometry) -> Self {
        let mut settings = self.clone();
        let extent = |i: usize| fixed.size[i] as f64 * fixed.spacing_mm[i];
        let longest_mm = (0..3).filter(|&i| fixed.size[i] > 1).map(extent).fold(0.0, f64::max);
        let longest_voxels = longest_mm / finest_spacing_mm(fixed);
        for (index, stage) in settings.stages.iter_mut().enumerate() {
            let next = match self.stages.get(index + 1) {
                None => Next::Nothing,
                Some(stage) if stage.is_linear() => Next::Linear,
                Some(_) => Next::Deformation,
            };
            stage.method_mut().for_images(longest_voxels, next);
        }
        settings
    }

    /// Whether a stage deforms.
    pub(super) fn deforms(&self) -> bool {
        self.stages.iter().any(|stage| !stage.is_linear())
    }

    /// Whether a stage displaces the fixed image as well.
    pub(super) fn displaces_fixed(&self) -> bool {
        let halves =
            |stage: &Stage| stage.fields().is_some_and(|by| by.model().shows().displaces_fixed());
        self.stages.iter().any(halves)
    }
}

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
        if let Some(sigma) = self.landmark_sigma_mm {
            in_range("landmark_sigma_mm", sigma, [1e-3, 1e3], "1 to 3 voxels are usual")?;
        }
        if let Some(first) = self.landmark_sigma_first_mm {
            let usual = "a few times landmark_sigma_mm is usual";
            in_range("landmark_sigma_first_mm", first, [1e-3, 1e3], usual)?;
            if self.landmark_sigma_mm.is_none() {
                let what =
                    "landmark_sigma_first_mm is where landmark_sigma_mm begins, and there is none";
                return Err(Error::invalid(what, first, "set landmark_sigma_mm as well"));
            }
        }
        if let Some(term) = &self.label_term {
            term.validate()?;
        }
        if self.loss_interval == 0 {
            let what = "loss_interval must be at least 1 iteration";
            return Err(Error::invalid(what, self.loss_interval, "use, for example, 10"));
        }
        Ok(())
    }
}

impl Settings {
    /// Linear stages come first, moments before all. Deformable ones follow each other in any order.
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
        Ok(())
    }
}
