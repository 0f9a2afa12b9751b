//! An image with its labels on the host.

use ffdp_image::image::{LabelMap, Volume};

/// An image in 0..1, perhaps with labels on its grid.
#[derive(Clone, Debug)]
pub struct Sample {
    /// For people: the name of its file.
    pub name: String,
    /// Intensities in 0..1.
    pub image: Volume,
    /// Its labels.
    pub labels: Option<LabelMap>,
    /// The labels that occur, but 0, ascending.
    pub ids: Vec<i32>,
}

impl Sample {
    /// Looks for the labels that occur: once here, rather than at every step.
    pub fn new(name: String, image: Volume, labels: Option<LabelMap>) -> Self {
        let ids = labels.as_ref().map(LabelMap::ids).unwrap_or_default();
        Self { name, image, labels, ids }
    }
}
