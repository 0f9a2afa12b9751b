//! How labels of several atlases become one map.

use ffdp_image::error::{Error, Result};
use ffdp_register::Settings;
use serde::{Deserialize, Serialize};

/// How labels of several atlases become one map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FusionSettings {
    /// How an atlas is registered to the target.
    pub registration: Settings,
    /// How the labels are joined.
    pub method: FusionMethod,
}

/// How labels that several atlases have at a voxel are joined.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FusionMethod {
    /// The label that most atlases have; of those that as many have, the smallest.
    Majority,
    /// The label with the largest sum of weights; see [`joint`](super).
    Joint(JointSettings),
}

/// Settings of joint label fusion; the defaults are those of the paper, but for the radius of the search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JointSettings {
    /// Added to the diagonal of the matrix of expected errors. Default 0.1.
    pub alpha: f64,
    /// Exponent that makes expected errors of differences of intensities. Default 2.
    pub beta: f64,
    /// Patches are cubes with so many voxels to either side of the middle. Default 2.
    pub patch_radius: usize,
    /// The best patch of an atlas is looked for as far as this from the voxel. Default 1: 3, that of the authors' program,
    /// gave the same Dice in four times the processor time (`benchmarks/fusion.json`).
    pub search_radius: usize,
}

impl Default for FusionMethod {
    fn default() -> Self {
        Self::Joint(JointSettings::default())
    }
}

impl Default for JointSettings {
    fn default() -> Self {
        Self { alpha: 0.1, beta: 2.0, patch_radius: 2, search_radius: 1 }
    }
}

impl FusionSettings {
    /// # Errors
    /// [`Error::Invalid`] for a value without meaning.
    pub fn validate(&self) -> Result<()> {
        self.registration.validate()?;
        if let Some(sigma) = self.registration.landmark_sigma_mm {
            let what = "atlases have no landmarks, so landmark_sigma_mm has no meaning";
            return Err(Error::invalid(what, sigma, "leave it out"));
        }
        if let Some(term) = &self.registration.label_term {
            let what = "the target has no labels that drive, so label_term has no meaning";
            return Err(Error::invalid(what, &term.labels, "leave it out"));
        }
        let FusionMethod::Joint(joint) = self.method else { return Ok(()) };
        let within = |what: &str, value: f64, [low, high]: [f64; 2], fix: &str| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(Error::invalid(format!("{what} must lie in {low}..{high}"), value, fix))
        };
        within("alpha", joint.alpha, [1e-9, 1e6], "0.1 is that of the paper")?;
        within("beta", joint.beta, [0.1, 20.0], "2 is that of the paper")?;
        within("patch_radius", joint.patch_radius as f64, [1.0, 8.0], "2 is that of the paper")?;
        within("search_radius", joint.search_radius as f64, [0.0, 8.0], "1 is the usual one")
    }
}
