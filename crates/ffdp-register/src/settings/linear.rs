//! Settings of the linear stages.

use serde::{Deserialize, Serialize};

use super::{
    ConvergenceSettings, LevelSettings, MiSettings, Similarity, in_range, validate_levels,
    validate_shrink,
};
use ffdp_burn::error::Result;
use ffdp_parallel::Outside;

/// Intensities above this part of an image's largest are the object; the rest is background, however
/// wide it is.
pub(crate) const FOREGROUND: f64 = 0.1;

/// Settings of a rigid (turns and shifts), a similarity (one scale, too) or an affine stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinearSettings {
    /// The levels, coarse to fine. Default: shrink 8, 4, 2 with at most 60, 40, 20 iterations, most
    /// of which are not needed: the search ends where steps become shorter than 0.01 voxels. The full
    /// resolution would refine the map by hundredths of a voxel and take eight times as long.
    pub levels: Vec<LevelSettings>,
    /// What is maximised. Default: normalised mutual information, which suits one modality and
    /// several and does not reward overlap as such. Heads turned by up to 30 degrees were found with it
    /// as often as with plain mutual information, with two thirds of the error at the border.
    pub similarity: Similarity,
    /// What fixed voxels count that see nothing of the moving image. Default `ignored`: joint histograms
    /// leave them out, as images that end inside the object need it (an echo-planar image with the top of
    /// the brain cut off came 2 mm closer to its reference). LNCC and MSE take them as background all
    /// the same: with fewer voxels to compare, the least squares are those of air.
    pub outside: Outside,
    /// When a level ends before its iterations are spent.
    pub convergence: ConvergenceSettings,
}

/// Which moments are brought together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MomentsOrder {
    /// The centres.
    First,
    /// The centres and the principal axes.
    #[default]
    Second,
}

/// What counts as the centre of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MomentsCentre {
    /// The intensity-weighted mean position of its foreground.
    #[default]
    Mass,
    /// The middle of its grid, for images whose intensities are not comparable at all.
    Frame,
}

/// Settings of the first placement, by moments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MomentsSettings {
    /// Which moments. Default `second`: the axes are tried in all four ways to turn them, beside
    /// the centres alone and the placement by the headers.
    pub order: MomentsOrder,
    /// What is brought together. Default `mass`.
    pub centre: MomentsCentre,
    /// Whether mirror images are tried too. Default no: anatomy has a left and a right, and a nearly
    /// symmetric brain would be matched with its mirror image.
    pub reflections: bool,
    /// Voxel size of the level on which candidates are compared, as a multiple of the finest spacing of
    /// the fixed image. Default 8.
    pub shrink: f64,
    /// Rigid iterations that improve each candidate, and affine ones after which it is judged. Default
    /// 10 and as many: what lies 30 degrees off, or is a fifth larger, looks no better than what lies
    /// upside down.
    pub refinement: usize,
    /// Intensities above this part of the image's largest are foreground. Default 0.1.
    pub foreground: f64,
    /// How candidates are compared. Default: normalised mutual information.
    pub similarity: Similarity,
    /// As [`LinearSettings::outside`].
    pub outside: Outside,
}

impl Default for LinearSettings {
    fn default() -> Self {
        let level = |(shrink, iterations)| LevelSettings { shrink, iterations };
        Self {
            levels: [(8.0, 60), (4.0, 40), (2.0, 20)].map(level).to_vec(),
            similarity: Similarity::Nmi(MiSettings::default()),
            outside: Outside::Ignored,
            convergence: ConvergenceSettings::default(),
        }
    }
}

impl Default for MomentsSettings {
    fn default() -> Self {
        Self {
            order: MomentsOrder::Second,
            centre: MomentsCentre::Mass,
            reflections: false,
            shrink: 8.0,
            refinement: 10,
            foreground: FOREGROUND,
            similarity: Similarity::Nmi(MiSettings::default()),
            outside: Outside::Ignored,
        }
    }
}

impl LinearSettings {
    pub(crate) fn validate(&self) -> Result<()> {
        validate_levels(&self.levels)?;
        self.similarity.validate()?;
        self.convergence.validate()
    }
}

impl MomentsSettings {
    pub(crate) fn validate(&self) -> Result<()> {
        validate_shrink(&[self.shrink])?;
        let fix = "0.1 is the usual one";
        in_range("the foreground of moments", self.foreground, [0.0, 0.99], fix)?;
        in_range(
            "the refinement of moments (iterations)",
            self.refinement as f64,
            [1.0, 1000.0],
            "10 is the usual one",
        )?;
        self.similarity.validate()
    }
}
