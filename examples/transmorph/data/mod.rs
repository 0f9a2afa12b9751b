//! Images, pairs of them, and the order in which they are trained.

mod grid;
mod loader;
mod manifest;
mod nifti;
mod synthetic;

use std::sync::Arc;

use burn::tensor::Device;
use ffdp::image::{LabelMap, Volume};
use ffdp::{Error, Result};

pub use loader::{Item, Loader};

use crate::args::Settings;

/// An image in 0..1, perhaps with labels, on the grid that is trained on.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    pub image: Volume,
    pub labels: Option<LabelMap>,
}

/// A moving and a fixed image on one grid.
#[derive(Clone, Debug)]
pub struct Pair {
    pub moving: Arc<Sample>,
    pub fixed: Arc<Sample>,
}

impl Pair {
    fn swapped(&self) -> Self {
        Self { moving: self.fixed.clone(), fixed: self.moving.clone() }
    }
}

/// What is trained on.
#[derive(Clone, Debug)]
pub enum Training {
    /// Subjects that are paired anew, at random, in every epoch.
    Subjects(Vec<Arc<Sample>>),
    /// Given pairs.
    Pairs(Vec<Pair>),
}

/// All images of a run.
#[derive(Clone, Debug)]
pub struct Dataset {
    pub training: Training,
    /// Looked at after every epoch; the best checkpoint is chosen by them.
    pub validation: Vec<Pair>,
    /// Looked at once, at the end.
    pub held_out: Vec<Pair>,
    /// Whether no pair of `held_out` was trained on.
    pub is_held_out: bool,
    /// The labels that Dice is taken over; all that occur when `None`.
    pub evaluated_labels: Option<Vec<i32>>,
    origin: String,
}

impl Dataset {
    /// The data of a run: from files with `--data`, else synthetic.
    ///
    /// # Errors
    /// Files that cannot be read or do not fit together, and settings outside their range.
    pub fn load(settings: &Settings, device: &Device) -> Result<Self> {
        let dataset = match &settings.data {
            Some(folder) => nifti::load(settings, folder, device),
            None => synthetic::generate(settings),
        }?;
        if settings.dice_weight > 0.0 && !dataset.is_labelled() {
            return Err(Error::invalid(
                "--dice-weight: every training pair must have labels",
                settings.dice_weight,
                "add the columns fixed_labels and moving_labels, or leave the flag out",
            ));
        }
        Ok(dataset)
    }

    fn is_labelled(&self) -> bool {
        match &self.training {
            Training::Subjects(subjects) => subjects.iter().all(|s| s.labels.is_some()),
            Training::Pairs(pairs) => pairs.iter().all(|pair| pair.fixed.labels.is_some()),
        }
    }

    /// Size of the first image, (x, y, z) voxels: what the network's windows are made for.
    pub fn size(&self) -> [usize; 3] {
        self.held_out[0].fixed.image.geometry.size
    }

    /// Training steps in an epoch.
    pub fn steps_per_epoch(&self) -> usize {
        match &self.training {
            Training::Subjects(subjects) => subjects.len() / 2 * 2,
            Training::Pairs(pairs) => pairs.len() * 2,
        }
    }

    /// What the data are, in a line.
    pub fn summary(&self) -> String {
        let [x, y, z] = self.size();
        let training = match &self.training {
            Training::Subjects(subjects) => {
                format!("{} subjects, paired anew each epoch", subjects.len())
            }
            Training::Pairs(pairs) => format!("{} pairs", pairs.len()),
        };
        format!(
            "data: {}, {x}x{y}x{z} voxels; training: {training}, both directions; validation: {} \
             pairs; {}: {} pairs",
            self.origin,
            self.validation.len(),
            if self.is_held_out { "held out" } else { "evaluation on the training pairs" },
            self.held_out.len()
        )
    }
}
