//! Settings of the linear stages.

use serde::{Deserialize, Serialize};

use super::{
    ConvergenceSettings, LARGEST_SHRINK, LevelSettings, MiSettings, Similarity, in_range,
    validate_levels, validate_shrink,
};
use ffdp_image::error::Result;
use ffdp_parallel::alignment::Outside;

/// Intensities above this part of an image's largest are the object; the rest is background, however
/// wide it is.
pub(crate) const FOREGROUND: f64 = 0.1;

/// Settings of a rigid (turns and shifts), a similarity (one scale, too) or an affine stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinearSettings {
    /// The levels, coarse to fine. Empty, the default: by the images. Before another linear stage shrink 8 and 4, before
    /// a deformation 8, 4 and 2. The last stage of all ends at full resolution or, for larger images, where the longest
    /// axis has `fine_voxels`, on levels of 8, 4, 2 and 1 times those voxels. At most 60, 40, 20 and 10 iterations, most
    /// of which are not needed: a level ends where steps become shorter than 0.01 voxels.
    pub levels: Vec<LevelSettings>,
    /// Voxels along the longest axis of the fixed image with which the last level is fine enough, where the levels are
    /// those of the images and nothing is found after the stage. Default 256: a head of 1 mm ends at full resolution. Coarser
    /// levels are smoothed, and smoothing moves the optimum of information between two contrasts, of MNI's T1 and T2 by 0.15 mm
    /// at 1.36 mm.
    pub fine_voxels: usize,
    /// How far the stage may stretch or shrink space, relative to what was found before it: singular values lie in
    /// `1 / stretch..stretch`. Default 2. A stage that ends at this bound has lost the object, and is undone.
    pub stretch: f64,
    /// Part of the overlap of the two images at the start of the stage that is kept. Default 0.5.
    pub overlap: f64,
    /// What is maximised. Default: normalised mutual information, which suits one modality and
    /// several and does not reward overlap as such. Heads turned by up to 30 degrees were found with it
    /// as often as with plain mutual information, with two thirds of the error at the border.
    pub similarity: Similarity,
    /// What fixed voxels count that see nothing of the moving image. Default `ignored`: joint histograms
    /// leave them out, as images that end inside the object need it (an echo-planar image with the top of
    /// the brain cut off came 2 mm closer to its reference). LNCC and MSE take them as background all
    /// the same, if the moving image fades into its background: otherwise shifting the image out of view would lower
    /// the squared difference. Beyond any other image nothing counts, whatever this says.
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

/// A search of orientations: rotations spread evenly ([`rotations`](ffdp_burn::transform::rotations())) are scored on a
/// level of 32 voxels along the longest axis, about the centres of mass and of the grids.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OrientationSettings {
    /// The largest turn that is tried. Default 180: all there are.
    pub up_to_degrees: f64,
    /// Between neighbours. Default 30.
    pub spacing_degrees: f64,
    /// How many of the most alike are improved like the placements of the moments, of which the best is taken. Default
    /// 24.
    pub kept: usize,
}

impl Default for OrientationSettings {
    fn default() -> Self {
        Self { up_to_degrees: 180.0, spacing_degrees: 30.0, kept: 24 }
    }
}

impl OrientationSettings {
    fn validate(&self) -> Result<()> {
        let Self { up_to_degrees, spacing_degrees, kept } = *self;
        in_range(
            "the largest turn of a search",
            up_to_degrees,
            [0.0, 180.0],
            "180 is all there are",
        )?;
        in_range("the spacing of a search", spacing_degrees, [5.0, 90.0], "30 is the usual one")?;
        let most = "the kept orientations of a search";
        in_range(most, kept as f64, [1.0, 1000.0], "24 is the usual number")
    }
}

/// Settings of the first placement, by moments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MomentsSettings {
    /// Which moments. Default `second`: the axes are tried in all four ways to turn them, besides
    /// the centres alone and the placement by the headers.
    pub order: MomentsOrder,
    /// What is brought together. Default `mass`.
    pub centre: MomentsCentre,
    /// All orientations, for images whose headers and axes say nothing: off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<OrientationSettings>,
    /// Whether mirror images are tried too. Default no: anatomy has a left and a right, and a nearly
    /// symmetric brain would be matched with its mirror image.
    pub reflections: bool,
    /// Voxel size of the level on which candidates are compared, as a multiple of the finest spacing of
    /// the fixed image. Default 8.
    pub shrink: f64,
    /// Rigid iterations that improve each candidate, and as many affine ones, after which it is judged.
    /// Default 10: without them the right orientation, 30 degrees off or a fifth too large, is as dissimilar as a
    /// wrong one.
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
        Self {
            levels: Vec::new(),
            fine_voxels: 256,
            stretch: 2.0,
            overlap: 0.5,
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
            search: None,
            reflections: false,
            shrink: 8.0,
            refinement: 10,
            foreground: FOREGROUND,
            similarity: Similarity::Nmi(MiSettings::default()),
            outside: Outside::Ignored,
        }
    }
}

/// What comes after a linear stage, which decides how fine it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A linear stage with more parameters: it only has to be brought into reach.
    Linear,
    /// A deformation, which moves what is left.
    Deformation,
    /// Nothing: its result is the answer.
    Nothing,
}

impl LinearSettings {
    /// Iterations at most of levels that are left to the images, the coarsest first.
    pub const ITERATIONS: [usize; 4] = [60, 40, 20, 10];

    /// The levels of a stage on images whose longest axis has so many of the finest voxels: those that are set, or by
    /// what comes after it.
    ///
    /// Before another linear stage shrink 8 and 4, before a deformation 8, 4 and 2. The last stage of all ends at full
    /// resolution or, for larger images, where the longest axis has [`fine_voxels`](Self::fine_voxels), on levels of 8,
    /// 4, 2 and 1 times those voxels. At most 60, 40, 20 and 10 iterations, most of which are not needed: a level ends
    /// where steps become shorter than 0.01 voxels.
    pub(crate) fn levels_for(&self, longest_voxels: f64, next: Next) -> Vec<LevelSettings> {
        if !self.levels.is_empty() {
            return self.levels.clone();
        }
        let fine = longest_voxels / self.fine_voxels as f64;
        let (finest, count) = match next {
            Next::Linear => (4.0, 2),
            Next::Deformation => (2.0, 3),
            Next::Nothing => {
                // Headers round their spacings.
                let finest = (100.0 * fine).round() / 100.0;
                (finest.max(1.0), 4)
            }
        };
        let level = |(k, iterations)| LevelSettings {
            shrink: f64::min(finest * f64::from(1 << (count - 1 - k)), LARGEST_SHRINK),
            iterations,
        };
        (0..count).zip(Self::ITERATIONS).map(level).collect()
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if !self.levels.is_empty() {
            validate_levels(&self.levels)?;
        }
        in_range("fine_voxels", self.fine_voxels as f64, [16.0, 1e6], "256 is the usual number")?;
        in_range("stretch", self.stretch, [1.0, 100.0], "2 is the usual one")?;
        in_range("overlap", self.overlap, [0.0, 1.0], "0.5 is the usual one")?;
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
        if let Some(search) = &self.search {
            search.validate()?;
        }
        self.similarity.validate()
    }
}
