//! By which number an epoch is the best one.

use ffdp_image::Result;

use crate::data::{Dataset, Pair};
use crate::folder::RunFolder;
use crate::journal::{self, Record, number};

/// A number of the validation, by the name it has in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// The highest mean Dice.
    Dice,
    /// The lowest loss, where there are no labels.
    Loss,
}

impl Criterion {
    /// What the validation pairs of a data set allow.
    pub fn of(dataset: &Dataset) -> Self {
        let labelled = dataset.validation.iter().all(Pair::has_labels);
        if labelled { Self::Dice } else { Self::Loss }
    }

    /// Its name in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dice => "dice",
            Self::Loss => "loss",
        }
    }

    /// A score that is better when it is higher; what is no number is worst.
    pub fn score(self, value: f64) -> f64 {
        let score = match self {
            Self::Dice => value,
            Self::Loss => -value,
        };
        if score.is_nan() { f64::NEG_INFINITY } else { score }
    }

    /// The scores of the epochs in a journal.
    pub fn scores(self, records: &[Record]) -> Vec<(usize, f64)> {
        let is =
            |record: &Record, key: &str, value: &str| record.get(key).is_some_and(|v| v == value);
        let validations =
            records.iter().filter(|r| is(r, "kind", "epoch") && is(r, "split", "valid"));
        let score = |r: &Record| (number(r, "epoch") as usize, self.score(number(r, self.name())));
        validations.map(score).collect()
    }
}

/// The epochs from the best to the worst; of equal ones the earlier first.
pub fn ranked(scores: &[(usize, f64)]) -> Vec<usize> {
    let mut scores = scores.to_vec();
    scores.sort_by(|(epoch, a), (other, b)| b.total_cmp(a).then(epoch.cmp(other)));
    scores.into_iter().map(|(epoch, _)| epoch).collect()
}

/// The epochs of a run from the best to the worst, by Dice if any was measured.
///
/// # Errors
/// A journal that cannot be read.
pub fn ranked_in(folder: &RunFolder) -> Result<Vec<usize>> {
    let records = journal::read(&folder.journal())?;
    let dice = Criterion::Dice.scores(&records);
    if dice.iter().any(|(_, score)| score.is_finite()) {
        return Ok(ranked(&dice));
    }
    Ok(ranked(&Criterion::Loss.scores(&records)))
}
