//! Images, pairs of them, and the order in which they are trained.
//!
//! A [`Subject`] says where an image is, a [`Pair`] which two are registered, a
//! [`Preparation`] brings both onto one grid when their turn comes. `pairs.rs` and `images.rs` read
//! lists of files, `synthetic.rs` makes subjects; `loader.rs` decides the order and what is random,
//! `prefetch.rs` prepares ahead, `on_device.rs` keeps what need not be copied to the device again.

mod augment;
mod cache;
mod files;
mod images;
mod loader;
mod on_device;
mod order;
mod pairs;
mod part;
mod prefetch;
mod prepare;
mod sample;
mod synthetic;

use std::path::PathBuf;
use std::sync::Arc;

use ffdp_image::image::Geometry;
use ffdp_image::{Error, Result};

pub use augment::{Change, Draw};
pub use cache::INTENSITY_PERCENTILES;
pub use loader::{Item, Loader};
pub use on_device::{OnDevice, Tensors};
pub use part::Part;
pub use prepare::{Preparation, image_on, placement};
pub use sample::Sample;

use crate::settings::Settings;

/// Where an image is.
#[derive(Clone, Debug)]
pub enum Subject {
    /// In memory.
    Ready(Arc<Sample>),
    /// In files, read when its turn comes.
    Files {
        /// The image (NIfTI).
        image: PathBuf,
        /// Its labels, on its grid.
        labels: Option<PathBuf>,
    },
}

impl Subject {
    fn has_labels(&self) -> bool {
        match self {
            Self::Ready(sample) => sample.labels.is_some(),
            Self::Files { labels, .. } => labels.is_some(),
        }
    }
}

/// A moving and a fixed image.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The image that is deformed.
    pub moving: Subject,
    /// The image that stays.
    pub fixed: Subject,
}

impl Pair {
    fn swapped(&self) -> Self {
        Self { moving: self.fixed.clone(), fixed: self.moving.clone() }
    }

    /// Whether both images have labels.
    pub fn has_labels(&self) -> bool {
        self.moving.has_labels() && self.fixed.has_labels()
    }
}

/// Both images of a pair on one grid, as the network sees them; in a training with augmentation on their own grids, and
/// what is yet to be changed.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The image that is deformed.
    pub moving: Arc<Sample>,
    /// The image that stays.
    pub fixed: Arc<Sample>,
    /// What [`OnDevice`] changes.
    pub changes: Option<Changes>,
}

/// The random changes of a pair, and the grid that its images come onto.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The grid of the network.
    pub grid: Geometry,
    /// Of the image that is deformed.
    pub moving: Change,
    /// Of the image that stays.
    pub fixed: Change,
}

/// What is trained on.
#[derive(Clone, Debug)]
pub enum Training {
    /// Subjects that are paired anew, at random, in every epoch.
    Subjects {
        /// All that may be paired.
        subjects: Vec<Subject>,
        /// Pairs in an epoch.
        pairs: usize,
    },
    /// Given pairs.
    Pairs(Vec<Pair>),
}

/// All images of a run.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// What is trained on.
    pub training: Training,
    /// Looked at after every epoch; the best checkpoint is chosen by them.
    pub validation: Vec<Pair>,
    /// Looked at once, at the end.
    pub held_out: Vec<Pair>,
    /// Whether no pair of `held_out` was trained on.
    pub is_held_out: bool,
    /// The labels that Dice is taken over; all that occur when `None`.
    pub evaluated_labels: Option<Vec<i32>>,
    /// How images come onto the network's grid.
    pub preparation: Arc<Preparation>,
    /// Size of the first fixed image on the network's grid, (x, y, z) voxels: what the network's
    /// windows are made for.
    pub size: [usize; 3],
    /// How its axes run, for example "RAS".
    pub axes: String,
    origin: String,
}

impl Dataset {
    /// The data of a run: from files with `--data`, else synthetic. Files are checked, not read.
    ///
    /// # Errors
    /// Files that cannot be read or do not fit together, and settings outside their range.
    pub fn open(settings: &Settings) -> Result<Self> {
        let dataset = match &settings.data {
            Some(path) => files::open(settings, path),
            None => synthetic::generate(settings),
        }?;
        if settings.dice_weight > 0.0 && !dataset.is_labelled() {
            return Err(Error::invalid(
                "--dice-weight: every training pair must have labels",
                settings.dice_weight,
                "list the label maps next to the images, or leave the flag out",
            ));
        }
        Ok(dataset)
    }

    fn is_labelled(&self) -> bool {
        match &self.training {
            Training::Subjects { subjects, .. } => subjects.iter().all(Subject::has_labels),
            Training::Pairs(pairs) => pairs.iter().all(Pair::has_labels),
        }
    }

    /// Training steps in an epoch.
    pub fn steps_per_epoch(&self) -> usize {
        self.training.steps_per_epoch()
    }

    /// What the data are, in a line.
    pub fn summary(&self) -> String {
        let [x, y, z] = self.size;
        let training = match &self.training {
            Training::Subjects { subjects, pairs } => {
                format!("{pairs} random pairs of {} subjects an epoch", subjects.len())
            }
            Training::Pairs(pairs) => format!("{} pairs", pairs.len()),
        };
        format!(
            "data: {}, {x}x{y}x{z} voxels; training: {training}, both directions; validation: {} \
             pairs; {}: {} pairs",
            self.origin,
            self.validation.len(),
            if self.is_held_out { "held out" } else { "evaluation on trained pairs" },
            self.held_out.len()
        )
    }
}

impl Training {
    /// Every pair is trained in both directions.
    pub fn steps_per_epoch(&self) -> usize {
        match self {
            Self::Subjects { pairs, .. } => pairs * 2,
            Self::Pairs(pairs) => pairs.len() * 2,
        }
    }
}
