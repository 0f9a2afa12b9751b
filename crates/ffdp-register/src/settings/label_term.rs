//! Which labels drive a registration.

use serde::{Deserialize, Serialize};

use super::in_range;
use ffdp_image::error::{Error, Result};

/// Labels whose overlap is a term of the loss of deformable stages. Each of them takes as much memory as a channel of the
/// images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelTerm {
    /// The labels, each of which is in both maps.
    pub labels: Vec<i32>,
    /// How much their mean soft Dice overlap counts, where what the similarity of the images usually gains counts 1, up
    /// to 1000. Default 1.
    #[serde(default = "usual_weight")]
    pub weight: f64,
}

fn usual_weight() -> f64 {
    1.0
}

/// Larger labels are not exact in f32, in which they are read.
const LARGEST_LABEL: u32 = 1 << 24;

impl LabelTerm {
    /// Of labels, with the usual weight.
    pub fn of(labels: impl Into<Vec<i32>>) -> Self {
        Self { labels: labels.into(), weight: usual_weight() }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let Self { labels, weight } = self;
        let refused = |what: &str, given: String, fix: &str| {
            Err(Error::invalid(
                format!("the labels of label_term must {what}"),
                format_args!("{given}"),
                fix,
            ))
        };
        if labels.is_empty() {
            return refused("be some", "none".into(), "name them, or leave label_term out");
        }
        let unfit = |id: &&i32| **id == 0 || id.unsigned_abs() >= LARGEST_LABEL;
        if let Some(id) = labels.iter().find(unfit) {
            let what = "not be the background (0), and be below 2^24 in magnitude";
            return refused(what, id.to_string(), "leave it out, or renumber the labels");
        }
        if let Some((_, id)) = labels.iter().enumerate().find(|(k, id)| labels[..*k].contains(id)) {
            return refused("be named once", format!("{id} twice"), "leave one of them out");
        }
        in_range(
            "the weight of label_term",
            *weight,
            [f64::MIN_POSITIVE, 1e3],
            "1 is the usual one",
        )
    }
}
