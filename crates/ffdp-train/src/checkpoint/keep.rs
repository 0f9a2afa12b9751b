//! Which checkpoints stay, and when to stop: by the validation of every epoch so far.

use burn::train::EarlyStoppingStrategy;
use burn::train::checkpoint::{CheckpointingAction, CheckpointingStrategy};
use burn::train::metric::store::{Aggregate, EventStoreClient, Split};

use super::criterion::{Criterion, ranked};

/// The scores of the epochs so far, those before a resumption among them.
#[derive(Clone, Debug)]
pub struct Scores {
    criterion: Criterion,
    known: Vec<(usize, f64)>,
}

impl Scores {
    /// Goes on from what the journal knows.
    pub fn new(criterion: Criterion, known: Vec<(usize, f64)>) -> Self {
        Self { criterion, known }
    }

    fn learn(&mut self, epoch: usize, store: &EventStoreClient) {
        let name = self.criterion.name();
        let value = store.find_metric(name, epoch, Aggregate::Mean, &Split::Valid);
        self.add(epoch, self.criterion.score(value.unwrap_or(f64::NAN)));
    }

    fn add(&mut self, epoch: usize, score: f64) {
        self.known.retain(|(known, _)| *known != epoch);
        self.known.push((epoch, score));
    }
}

/// Saves every epoch, and then removes all but the last two and the best.
#[derive(Clone, Debug)]
pub struct Keep {
    scores: Scores,
    best: usize,
    saved: Vec<usize>,
}

impl Keep {
    /// Keeps the `best` best; `saved` are there already.
    pub fn new(scores: Scores, best: usize, saved: Vec<usize>) -> Self {
        Self { scores, best, saved }
    }

    fn after(&mut self, epoch: usize) -> Vec<CheckpointingAction> {
        self.saved.retain(|&saved| saved != epoch);
        self.saved.push(epoch);
        let best = ranked(&self.scores.known);
        let best = &best[..self.best.min(best.len())];
        let stays = |saved: &usize| *saved + 2 > epoch || best.contains(saved);
        let (kept, removed): (Vec<usize>, Vec<usize>) = self.saved.iter().partition(|e| stays(e));
        self.saved = kept;
        // The new one is safe before an old one goes.
        let removed = removed.into_iter().map(CheckpointingAction::Delete);
        [CheckpointingAction::Save].into_iter().chain(removed).collect()
    }
}

impl CheckpointingStrategy for Keep {
    fn checkpointing(
        &mut self,
        epoch: usize,
        store: &EventStoreClient,
    ) -> Vec<CheckpointingAction> {
        self.scores.learn(epoch, store);
        self.after(epoch)
    }
}

/// Stops when the best epoch lies so many epochs back.
#[derive(Clone, Debug)]
pub struct Patience {
    scores: Scores,
    epochs: usize,
}

impl Patience {
    /// Waits for `epochs` epochs.
    pub fn new(scores: Scores, epochs: usize) -> Self {
        Self { scores, epochs }
    }

    fn is_over(&self, epoch: usize) -> bool {
        ranked(&self.scores.known).first().is_some_and(|best| epoch >= best + self.epochs)
    }
}

impl EarlyStoppingStrategy for Patience {
    fn should_stop(&mut self, epoch: usize, store: &EventStoreClient) -> bool {
        self.scores.learn(epoch, store);
        self.is_over(epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_and_the_best_stay() {
        let scores = Scores::new(Criterion::Dice, Vec::new());
        let mut keep = Keep::new(scores, 2, Vec::new());
        let dice = [0.5, 0.9, 0.8, 0.1, f64::NAN, 0.7, 0.85];
        for (index, dice) in dice.into_iter().enumerate() {
            let epoch = index + 1;
            keep.scores.add(epoch, Criterion::Dice.score(dice));
            assert_eq!(keep.after(epoch)[0], CheckpointingAction::Save, "saved before removed");
        }
        keep.saved.sort_unstable();
        assert_eq!(keep.saved, [2, 6, 7], "best 2 and 7, last 6 and 7");
    }

    #[test]
    fn patience_counts_from_the_best_epoch() {
        let known = vec![(1, -0.9), (2, -0.7), (3, -0.8)];
        let patience = Patience::new(Scores::new(Criterion::Loss, known), 3);
        assert!(!patience.is_over(4));
        assert!(patience.is_over(5));
    }

    #[test]
    fn of_equal_epochs_the_earlier_is_better() {
        assert_eq!(ranked(&[(3, 0.5), (1, 0.5), (2, 0.6)]), [2, 1, 3]);
    }
}
