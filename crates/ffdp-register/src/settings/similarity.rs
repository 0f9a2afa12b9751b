//! How alike two images are, as a user chooses it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::in_range;
use ffdp_burn::error::{Error, Result};
use ffdp_burn::losses::{self, Lncc, Mse, MutualInformation, NormalizedMutualInformation};
use ffdp_burn::ops::{HistogramOptions, LnccFloor, LnccOptions};

/// How alike the warped moving and the fixed image are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Similarity {
    /// Local normalised cross-correlation; see [`ops::lncc`](ffdp_burn::ops::lncc()).
    Lncc(LnccSettings),
    /// Mean squared difference, for images of the same intensities.
    Mse,
    /// Mutual information, for images of different modalities; see
    /// [`losses::MutualInformation`](ffdp_burn::losses::MutualInformation).
    Mi(MiSettings),
    /// The same in relation to the joint entropy, so that it does not grow with the overlap alone; see
    /// [`losses::NormalizedMutualInformation`](ffdp_burn::losses::NormalizedMutualInformation).
    Nmi(MiSettings),
    /// One of your own. A file cannot name it.
    #[serde(skip)]
    Own(OwnSimilarity),
}

/// A similarity that a program brings along. Equal to itself alone.
#[derive(Clone, Debug)]
pub struct OwnSimilarity(pub Arc<dyn losses::SimilarityLoss>);

impl PartialEq for OwnSimilarity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Similarity {
    /// All that a file can name, with their usual settings, and what each is for.
    pub fn built_in() -> [(Self, &'static str); 4] {
        let mi = MiSettings::default();
        [
            (
                Self::Lncc(LnccSettings::default()),
                "Local normalised cross-correlation: one modality",
            ),
            (Self::Mse, "Mean squared difference: equal intensities"),
            (Self::Mi(mi), "Mutual information: two modalities"),
            (Self::Nmi(mi), "Normalised mutual information: two modalities that overlap in part"),
        ]
    }

    /// Its name, as a file has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Lncc(_) => "lncc",
            Self::Mse => "mse",
            Self::Mi(_) => "mi",
            Self::Nmi(_) => "nmi",
            Self::Own(_) => "own",
        }
    }

    /// One of your own: it works wherever those of this crate do.
    pub fn own(similarity: impl losses::SimilarityLoss + 'static) -> Self {
        Self::Own(OwnSimilarity(Arc::new(similarity)))
    }

    /// What is compared.
    pub fn loss(&self) -> Arc<dyn losses::SimilarityLoss> {
        match self {
            Self::Lncc(LnccSettings { window, epsilon, floor }) => Arc::new(Lncc(LnccOptions {
                window: *window,
                epsilon: *epsilon,
                floor: *floor,
                ..LnccOptions::default()
            })),
            Self::Mse => Arc::new(Mse),
            Self::Mi(settings) => Arc::new(MutualInformation(settings.options())),
            Self::Nmi(settings) => Arc::new(NormalizedMutualInformation(settings.options())),
            Self::Own(own) => own.0.clone(),
        }
    }
}

impl MiSettings {
    fn options(self) -> HistogramOptions {
        HistogramOptions { bins: self.bins, ..HistogramOptions::default() }
    }
}

/// Settings of the local correlation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LnccSettings {
    /// Width of the window in voxels of the level; odd, 3 to 21. Default 7 (FFDP paper).
    pub window: usize,
    /// What keeps flat windows defined, in intensity^4 of images scaled to 0..1. Default 1e-5 (VoxelMorph,
    /// FireANTs): regions with less contrast than about 0.05 count less.
    pub epsilon: f64,
    /// Where `epsilon` is added. Default `common`, so that equal images are not moved; `denominator` is that
    /// of the FFDP paper.
    pub floor: LnccFloor,
}

/// Settings of the mutual information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MiSettings {
    /// Bins of each image's intensities, 8 to 256, spread by the cubic B-spline. Default 32 (FFDP
    /// paper).
    pub bins: usize,
}

impl Default for LnccSettings {
    fn default() -> Self {
        Self { window: 7, epsilon: 1e-5, floor: LnccFloor::Common }
    }
}

impl Default for MiSettings {
    fn default() -> Self {
        Self { bins: 32 }
    }
}

impl Similarity {
    pub(super) fn validate(&self) -> Result<()> {
        let LnccSettings { window, epsilon, .. } = match self {
            Self::Lncc(settings) => *settings,
            &Self::Mi(MiSettings { bins }) | &Self::Nmi(MiSettings { bins })
                if !(8..=256).contains(&bins) =>
            {
                let what = "the bins of mutual information must lie in 8..256";
                return Err(Error::invalid(what, bins, "32 is the usual number"));
            }
            Self::Mi(_) | Self::Nmi(_) | Self::Mse | Self::Own(_) => return Ok(()),
        };
        if window.is_multiple_of(2) || !(3..=21).contains(&window) {
            let what = "the window of LNCC must be odd and within 3..21 voxels";
            return Err(Error::invalid(what, window, "use, for example, 5, 7 or 9"));
        }
        let range = [f64::MIN_POSITIVE, 1.0];
        in_range("the epsilon of LNCC", epsilon, range, "1e-5 is the usual one")
    }
}
