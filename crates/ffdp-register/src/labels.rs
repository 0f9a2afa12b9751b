//! Labels that drive a registration: their overlap is a term of the loss of every deformable stage. Each of them is a
//! further channel of both images, 1 where the label is, after their own channels: smoothed to the levels, cut, sent and
//! kept as they are.
//!
//! ```text
//! loss = S + w g_S / g_D (1 - mean_k 2 sum a_k b_k / (sum a_k^2 + sum b_k^2))
//! ```
//! `S` the similarity of the stage over the channels of the images · `g` what a loss usually gains · `w` the weight.

use std::sync::Arc;

use super::problem::Source;
use super::settings::LabelTerm;
use ffdp_burn::losses::{Dice, OfChannels, SimilarityLoss, WeightedSum};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Planes, label_ids};

/// The labels of an image that drive, as its last channels.
pub(super) struct DrivingLabels<'a> {
    /// In messages.
    name: &'static str,
    pub map: Source<'a>,
    ids: Vec<i32>,
}

impl<'a> DrivingLabels<'a> {
    /// Those of a map.
    pub fn new(name: &'static str, map: Source<'a>, ids: &[i32]) -> Self {
        Self { name, map, ids: ids.to_vec() }
    }

    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// The values that stand for them in the map.
    pub fn values(&self) -> Vec<f32> {
        let meaning = self.map.labels();
        self.ids.iter().map(|id| meaning.number(*id)).collect()
    }

    /// Demands that each of them is somewhere. Reads the map once.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one that is nowhere or a value that is no label, and those of reading.
    pub fn check(&mut self) -> Result<()> {
        let there = label_ids(&mut self.map)?;
        let Some(missing) = self.ids.iter().find(|id| there.binary_search(id).is_err()) else {
            return Ok(());
        };
        let what = format!("{} must have all labels that drive the registration", self.name);
        let fix =
            "leave it out of label_term (--label-terms), or check that it is the file you meant";
        Err(Error::invalid(what, format_args!("no voxel of label {missing}"), fix))
    }
}

/// What labels add to the loss, where they do.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelChannels {
    /// Channels of the images themselves.
    pub images: usize,
    /// Labels after them.
    pub labels: usize,
    pub weight: f64,
}

impl LabelChannels {
    /// Of images with so many channels, as the settings say.
    pub fn new(images: usize, term: &LabelTerm) -> Self {
        Self { images, labels: term.labels.len(), weight: term.weight }
    }

    /// A similarity of the images alone.
    pub fn without(self, similarity: Arc<dyn SimilarityLoss>) -> Arc<dyn SimilarityLoss> {
        Arc::new(OfChannels::new(similarity, 0..self.images))
    }

    /// The same with the overlap of the labels.
    pub fn with(self, similarity: Arc<dyn SimilarityLoss>) -> Arc<dyn SimilarityLoss> {
        let weight = self.weight * similarity.usual_gain() / Dice.usual_gain();
        let overlap = OfChannels::new(Arc::new(Dice), self.images..self.images + self.labels);
        let terms: [(f64, Arc<dyn SimilarityLoss>); 2] =
            [(1.0, self.without(similarity)), (weight, Arc::new(overlap))];
        Arc::new(WeightedSum::new(terms))
    }
}
