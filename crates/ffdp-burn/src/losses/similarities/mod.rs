//! The built-in similarities: each a file of its own, and a line in each part of the list below, [`Similarity`].
//! No other file knows how many there are.
//!
//! [`Similarity`] is what a user chooses: a value of a settings file or of a flag, which a stage of a registration, a
//! shard, a rank and a training read alike. What it compares with is a [`losses::SimilarityLoss`].

mod channels;
mod lncc;
mod mind;
mod mse;
mod mutual_information;
mod ngf;
mod overlap;
mod sum;

use std::sync::Arc;

use burn::Tensor;
use burn::tensor::{DType, Device};
use serde::{Deserialize, Serialize};

use crate::losses;
use crate::ops::Measure;
pub use channels::OfChannels;
use ffdp_image::error::Result;
pub use lncc::{Lncc, LnccSettings};
pub use mind::{Mind, MindSettings};
pub use mse::Mse;
pub use mutual_information::{
    MiSettings, MutualInformation, NormalizedMutualInformation, mutual_information,
    normalized_mutual_information,
};
pub use ngf::{Ngf, NgfSettings, NgfTerm};
pub use overlap::Dice;
pub use sum::{SimilarityTerm, WeightedSum};

/// How alike the warped moving and the fixed image are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Similarity {
    /// Local normalised cross-correlation; see [`ops::lncc`](crate::ops::lncc()).
    Lncc(LnccSettings),
    /// Mean squared difference, for images of the same intensities.
    Mse,
    /// Mutual information, for images of different modalities; see
    /// [`MutualInformation`].
    Mi(MiSettings),
    /// The same in relation to the joint entropy, so that it does not grow with the overlap alone; see
    /// [`NormalizedMutualInformation`].
    Nmi(MiSettings),
    /// Differences of MIND descriptors, for images of different modalities; see [`Mind`].
    Mind(MindSettings),
    /// Normalised gradient fields, for images of different modalities with the same edges; see [`Ngf`].
    Ngf(NgfSettings),
    /// Soft Dice overlap of each channel, for channels that say how much of a voxel is of a label; see [`Dice`]. A term of
    /// a sum names them.
    Dice,
    /// Several at once, each with its weight and, where it says so, of some channels: what ANTs and elastix call several
    /// metrics.
    Sum(Vec<SimilarityTerm>),
    /// One of your own. A file cannot name it.
    #[serde(skip)]
    Own(OwnSimilarity),
}

impl Similarity {
    /// All that a name alone says of images, with their usual settings, and what each is for.
    pub fn built_in() -> [(Self, &'static str); 6] {
        let mi = MiSettings::default();
        [
            (
                Self::Lncc(LnccSettings::default()),
                "Local normalised cross-correlation: one modality",
            ),
            (Self::Mse, "Mean squared difference: equal intensities"),
            (Self::Mi(mi), "Mutual information: two modalities"),
            (Self::Nmi(mi), "Normalised mutual information: two modalities that overlap in part"),
            (
                Self::Mind(MindSettings::default()),
                "Structure of neighbourhoods (MIND): two modalities",
            ),
            (
                Self::Ngf(NgfSettings::default()),
                "Normalised gradient fields: two modalities with the same edges",
            ),
        ]
    }

    /// The built-in one of a name, with its usual settings; `None` where there is none.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::built_in().into_iter().map(|(similarity, _)| similarity);
        all.find(|similarity| similarity.name() == name)
    }

    /// Its name, as a file has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Lncc(_) => "lncc",
            Self::Mse => "mse",
            Self::Mi(_) => "mi",
            Self::Nmi(_) => "nmi",
            Self::Mind(_) => "mind",
            Self::Ngf(_) => "ngf",
            Self::Dice => "dice",
            Self::Sum(_) => "sum",
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
            Self::Lncc(settings) => Arc::new(Lncc(settings.options())),
            Self::Mse => Arc::new(Mse),
            Self::Mi(settings) => Arc::new(MutualInformation(settings.options())),
            Self::Nmi(settings) => Arc::new(NormalizedMutualInformation(settings.options())),
            Self::Mind(settings) => Arc::new(Mind(settings.options())),
            Self::Ngf(settings) => Arc::new(settings.similarity()),
            Self::Dice => Arc::new(Dice),
            Self::Sum(terms) => {
                Arc::new(WeightedSum::new(terms.iter().map(|term| (term.weight, term.loss()))))
            }
            Self::Own(own) => own.0.clone(),
        }
    }

    /// How many [`features`](losses::SimilarityLoss::features) an image of so many channels has, of those that it needs
    /// at least; `None` of a similarity that is no difference of features.
    pub fn feature_channels(&self, channels: usize) -> Option<usize> {
        let loss = self.loss();
        // As large as a feature looks.
        let n = 2 * loss.reach_voxels() + 2;
        let shape = [1, channels.max(loss.least_channels()), n, n, n];
        let image = Tensor::<5>::zeros(shape, (&Device::flex(), DType::F32));
        Some(loss.features(&image, 1.0)?.dims()[1])
    }

    /// The side of its window in voxels, where it has one.
    pub fn window_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Lncc(settings) => Some(&mut settings.window),
            _ => None,
        }
    }

    /// The bins of its histograms, where it has any.
    pub fn bins_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Mi(settings) | Self::Nmi(settings) => Some(&mut settings.bins),
            _ => None,
        }
    }

    /// That a device has the types in which it stores what it compares.
    ///
    /// # Errors
    /// [`Error::Invalid`](ffdp_image::Error::Invalid) with the device where it has not.
    pub fn check_on(&self, device: &Device) -> Result<()> {
        match self {
            Self::Mind(settings) => settings.check_on(device),
            Self::Sum(terms) => terms.iter().try_for_each(|term| term.similarity.check_on(device)),
            _ => Ok(()),
        }
    }

    /// That its settings have a meaning.
    ///
    /// # Errors
    /// [`Error::Invalid`](ffdp_image::Error::Invalid) for the first that has none, with a way out.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Lncc(settings) => settings.validate(),
            Self::Mi(settings) | Self::Nmi(settings) => settings.validate(),
            Self::Mind(settings) => settings.validate(),
            Self::Ngf(settings) => settings.validate(),
            Self::Sum(terms) => sum::validate(terms),
            Self::Mse | Self::Dice | Self::Own(_) => Ok(()),
        }
    }
}

/// The loss of what the fused iterations improve.
impl From<Measure> for Arc<dyn losses::SimilarityLoss> {
    fn from(measure: Measure) -> Self {
        match measure {
            Measure::Lncc(options) => Arc::new(Lncc(options)),
            Measure::SquaredDifference => Arc::new(Mse),
            Measure::MutualInformation(options) => Arc::new(MutualInformation(options)),
            Measure::NormalizedMutualInformation(options) => {
                Arc::new(NormalizedMutualInformation(options))
            }
        }
    }
}

/// A similarity that a program brings along. Equal to itself alone.
#[derive(Clone, Debug)]
pub struct OwnSimilarity(pub Arc<dyn losses::SimilarityLoss>);

impl PartialEq for OwnSimilarity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
