//! Which pairs an epoch trains, in which order: a function of the seed and the epoch's number alone.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Draw, Pair, Subject, Training};
use crate::settings::Augmentation;

/// One step to come.
#[derive(Clone, Debug)]
pub struct Task {
    pub pair: Pair,
    pub draw: Option<Draw>,
}

/// The steps of an epoch: every pair in both directions, shuffled, each with its own changes.
pub fn epoch(
    training: &Training,
    augmentation: &Augmentation,
    seed: u64,
    epoch: usize,
) -> Vec<Task> {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ ((epoch as u64) << 32));
    let pairs = match training {
        Training::Pairs(pairs) => pairs.clone(),
        Training::Subjects { subjects, pairs } => random_pairs(subjects, *pairs, &mut random),
    };
    let mut both: Vec<Pair> =
        pairs.iter().flat_map(|pair| [pair.clone(), pair.swapped()]).collect();
    both.shuffle(&mut random);
    both.into_iter().map(|pair| Task { pair, draw: Draw::new(augmentation, &mut random) }).collect()
}

/// Random partners. The subjects are shuffled and stand in a ring; if there are to be at least as
/// many pairs as subjects, each is paired with the next one, so that every subject has two partners
/// a round. Fewer pairs are disjoint as long as that is possible.
fn random_pairs(subjects: &[Subject], count: usize, random: &mut ChaCha8Rng) -> Vec<Pair> {
    let mut subjects = subjects.to_vec();
    let mut pairs = Vec::with_capacity(count);
    while pairs.len() < count {
        subjects.shuffle(random);
        let step = if 2 * (count - pairs.len()) <= subjects.len() { 2 } else { 1 };
        let pair = |k: usize| Pair {
            moving: subjects[k].clone(),
            fixed: subjects[(k + 1) % subjects.len()].clone(),
        };
        pairs.extend((0..subjects.len()).step_by(step).map(pair).take(count - pairs.len()));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;

    fn subjects(count: usize) -> Vec<Subject> {
        let subject =
            |k: usize| Subject::Files { image: PathBuf::from(k.to_string()), labels: None };
        (0..count).map(subject).collect()
    }

    fn names(task: &Task) -> [String; 2] {
        [&task.pair.moving, &task.pair.fixed].map(|subject| match subject {
            Subject::Files { image, .. } => image.display().to_string(),
            Subject::Ready(_) => panic!("files"),
        })
    }

    fn epoch_of(count: usize, pairs: usize, seed: u64, number: usize) -> Vec<[String; 2]> {
        let training = Training::Subjects { subjects: subjects(count), pairs };
        let tasks = epoch(&training, &Augmentation::default(), seed, number);
        tasks.iter().map(names).collect()
    }

    #[test]
    fn every_subject_has_two_partners_and_both_directions() {
        for (count, pairs) in [(2, 2), (5, 5), (8, 16)] {
            let steps = epoch_of(count, pairs, 7, 3);
            assert_eq!(steps.len(), 2 * pairs);
            let mut moving = BTreeMap::new();
            for [from, to] in &steps {
                assert_ne!(from, to, "no image is registered with itself");
                assert!(steps.contains(&[to.clone(), from.clone()]), "both directions");
                *moving.entry(from).or_insert(0) += 1;
            }
            assert!(moving.values().all(|&n| n == 2 * pairs / count), "{count}: {moving:?}");
        }
    }

    #[test]
    fn few_pairs_share_no_subject() {
        let steps = epoch_of(8, 4, 1, 1);
        let moving: std::collections::BTreeSet<_> = steps.iter().map(|[from, _]| from).collect();
        assert_eq!(moving.len(), 8);
    }

    #[test]
    fn epochs_differ_and_can_be_repeated() {
        assert_eq!(epoch_of(6, 6, 1, 4), epoch_of(6, 6, 1, 4));
        assert_ne!(epoch_of(6, 6, 1, 4), epoch_of(6, 6, 1, 5));
        assert_ne!(epoch_of(6, 6, 1, 4), epoch_of(6, 6, 2, 4));
    }
}
