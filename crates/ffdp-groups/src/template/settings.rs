//! What a template is made with.

use ffdp_image::error::{Error, Result};
use ffdp_register::{Settings, Stage};
use serde::{Deserialize, Serialize};

/// What a template is made with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TemplateSettings {
    /// How an image is registered to the template. Its stage `moments` means that the images are first placed by their
    /// centres of mass; its other linear stages are those of the linear rounds, and the last of them begins each
    /// deformable round; the deformable stages follow.
    pub registration: Settings,
    /// Deformable rounds at most. Default 4, as ANTs.
    pub rounds: usize,
    /// Linear rounds before them, without effect where the registration has no linear stage. Default 2: the first aligns to
    /// a blurred mean, the second to a sharper one.
    pub linear_rounds: usize,
    /// The deformable rounds end when the template changes by less than this part of its root mean square. Default 0.01.
    pub tolerance: f64,
    /// Part of the mean map that a round takes out. Default 1: all of it.
    pub update: f64,
    /// How intensities are averaged.
    pub average: Average,
    /// How a template is sharpened before images are registered to it.
    pub sharpening: Sharpening,
    /// How the intensities of images are made comparable.
    pub intensities: Intensities,
    /// Spacing of the template's voxels in mm. Default: that of the images where they share one grid, else the median of
    /// their finest spacings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spacing_mm: Option<f64>,
}

/// How the intensities that images have at a voxel become that of the template. Images that do not reach a voxel are left
/// out there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Average {
    /// The mean.
    #[default]
    Mean,
    /// The median, which single images that are misaligned or diseased do not move.
    Median,
    /// The mean without this part of the images at either end, at most 0.45.
    Trimmed {
        /// Part at either end.
        part: f64,
    },
}

/// The unsharp mask `T + amount (T - G T)`, `G` a Gaussian. It undoes some of the blur of an average.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sharpening {
    /// Default 0.5; 0 leaves the average as it is.
    pub amount: f64,
    /// Standard deviation of the Gaussian, in voxels. Default 1.
    pub sigma_voxels: f64,
}

/// How the intensities of images are made comparable before they are averaged. The template has the mean scale of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intensities {
    /// The 1st percentile becomes 0, and the mean of the foreground (above a tenth of the range up to the 99.9th
    /// percentile) becomes the same in all.
    #[default]
    Foreground,
    /// The 1st percentile becomes 0, and the 99.9th the same in all.
    Range,
    /// As they are, of quantitative images.
    Keep,
}

impl Default for Sharpening {
    fn default() -> Self {
        Self { amount: 0.5, sigma_voxels: 1.0 }
    }
}

impl Default for TemplateSettings {
    fn default() -> Self {
        Self {
            registration: Settings::default(),
            rounds: 4,
            linear_rounds: 2,
            tolerance: 0.01,
            update: 1.0,
            average: Average::default(),
            sharpening: Sharpening::default(),
            intensities: Intensities::default(),
            spacing_mm: None,
        }
    }
}

/// What images are registered by in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoundKind {
    /// Nothing: they lie as headers or centres of mass place them.
    Start,
    /// Linear stages.
    Linear,
    /// A deformation.
    Deformable,
}

impl TemplateSettings {
    /// # Errors
    /// [`Error::Invalid`] for a value without meaning.
    pub fn validate(&self) -> Result<()> {
        self.registration.validate()?;
        let within = |what: &str, value: f64, [low, high]: [f64; 2], fix: &str| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(Error::invalid(format!("{what} must lie in {low}..{high}"), value, fix))
        };
        within("rounds", self.rounds as f64, [0.0, 100.0], "4 is the usual number")?;
        within("linear_rounds", self.linear_rounds as f64, [0.0, 100.0], "2 is the usual number")?;
        within("tolerance", self.tolerance, [0.0, 1.0], "0.01 is the usual one")?;
        within("update", self.update, [0.0, 1.0], "1 takes the whole mean map out")?;
        within("the amount of sharpening", self.sharpening.amount, [0.0, 10.0], "0.5 is usual")?;
        within("sigma_voxels", self.sharpening.sigma_voxels, [0.1, 20.0], "1 voxel is usual")?;
        if let Average::Trimmed { part } = self.average {
            within("the trimmed part", part, [0.0, 0.45], "0.1 is the usual one")?;
        }
        if let Some(spacing) = self.spacing_mm {
            within("spacing_mm", spacing, [1e-6, 1e4], "1 mm is usual for heads")?;
        }
        if self.registration.landmark_sigma_mm.is_some() {
            let what = "a template has no landmarks, so landmark_sigma_mm has no meaning";
            return Err(Error::invalid(what, self.registration.landmark_sigma_mm, "leave it out"));
        }
        if let Some(term) = &self.registration.label_term {
            let what = "a template has no labels while it is made, so label_term has no meaning";
            return Err(Error::invalid(what, &term.labels, "leave it out"));
        }
        Ok(())
    }

    /// Whether images are first placed by their centres of mass.
    pub(super) fn is_placed_by_mass(&self) -> bool {
        self.registration.stages.iter().any(|stage| matches!(stage, Stage::Moments(_)))
    }

    /// What is done in each round, the start first.
    pub(super) fn kinds(&self) -> Vec<RoundKind> {
        let has = |linear: bool| self.stages(linear).next().is_some();
        let linear = if has(true) { self.linear_rounds } else { 0 };
        let deformable = if has(false) { self.rounds } else { 0 };
        let mut kinds = vec![RoundKind::Start];
        kinds.extend(std::iter::repeat_n(RoundKind::Linear, linear));
        kinds.extend(std::iter::repeat_n(RoundKind::Deformable, deformable));
        kinds
    }

    /// The settings of a registration in a round.
    pub(super) fn of_round(&self, kind: RoundKind) -> Settings {
        let stages = match kind {
            RoundKind::Start => Vec::new(),
            RoundKind::Linear => self.stages(true).cloned().collect(),
            RoundKind::Deformable => {
                self.stages(true).last().into_iter().chain(self.stages(false)).cloned().collect()
            }
        };
        Settings { stages, ..self.registration.clone() }
    }

    fn stages(&self, linear: bool) -> impl DoubleEndedIterator<Item = &Stage> {
        let stages = self.registration.stages.iter();
        stages
            .filter(move |stage| stage.is_linear() == linear && !matches!(stage, Stage::Moments(_)))
    }
}

#[cfg(test)]
mod tests {
    use ffdp_register::settings::LabelTerm;

    use super::*;

    #[test]
    fn the_stages_of_a_registration_become_rounds() {
        let settings = TemplateSettings { rounds: 2, linear_rounds: 1, ..Default::default() };
        let kinds = settings.kinds();
        let [start, linear, deformable] =
            [RoundKind::Start, RoundKind::Linear, RoundKind::Deformable];
        assert_eq!(kinds, [start, linear, deformable, deformable]);
        let names = |kind| -> Vec<&str> {
            settings.of_round(kind).stages.iter().map(Stage::name).collect()
        };
        assert_eq!(names(linear), ["rigid", "affine"]);
        assert_eq!(names(deformable), ["affine", "greedy"]);
        let mut aligned = settings.clone();
        aligned.registration.stages.retain(|stage| !stage.is_linear());
        assert_eq!(aligned.kinds(), [start, deformable, deformable]);
        assert!(settings.is_placed_by_mass() && !aligned.is_placed_by_mass());
    }

    #[test]
    fn values_without_meaning_are_refused_by_name() {
        let refused = |settings: TemplateSettings, word: &str| {
            let message = settings.validate().expect_err(word).to_string();
            assert!(message.contains(word), "{message}");
        };
        let default = TemplateSettings::default;
        default().validate().expect("the default");
        refused(TemplateSettings { update: 1.5, ..default() }, "update");
        refused(TemplateSettings { tolerance: f64::NAN, ..default() }, "tolerance");
        let average = Average::Trimmed { part: 0.5 };
        refused(TemplateSettings { average, ..default() }, "trimmed");
        refused(TemplateSettings { spacing_mm: Some(0.0), ..default() }, "spacing_mm");
        let mut driven = default();
        driven.registration.label_term = Some(LabelTerm::of(vec![1, 2]));
        refused(driven, "label_term");
    }
}
