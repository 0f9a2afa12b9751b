//! Overlap of label maps.
//!
//! A label that is absent from the fixed or the moved map scores NaN and is left out of the means,
//! as Learn2Reg has it for labels that the *images* lack. A label that a bad registration has lost
//! is left out too, when only the moved map is known; [`DiceScores::counting_lost`] makes it a 0.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use serde::Serialize;

use crate::{Error, Result};

/// Overlap of one label.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LabelDice {
    /// The label id.
    pub id: i32,
    /// `2 |F and M| / (|F| + |M|)`; NaN where the label is absent in either map.
    pub dice: f64,
    /// Voxels of the label in the fixed map.
    pub fixed_voxels: u64,
    /// Voxels of the label in the moved map.
    pub moved_voxels: u64,
}

/// Overlap of two label maps.
#[derive(Clone, Debug, PartialEq)]
pub struct DiceScores {
    /// One entry per label, in the order asked for (ascending when discovered).
    pub labels: Vec<LabelDice>,
}

impl DiceScores {
    /// Mean over the labels present in both maps (Learn2Reg's nanmean); NaN if there is none.
    pub fn mean(&self) -> f64 {
        self.weighted(|_| 1.0)
    }

    /// Mean over the labels present in both maps, each weighted by the inverse of its volume in
    /// the fixed map, so that small structures count most.
    ///
    /// The FFDP paper prints an InvDice after Mang et al. 2019 without its formula; this is our
    /// reading of it, to be named where it is printed.
    pub fn inverse_volume_mean(&self) -> f64 {
        self.weighted(|label| 1.0 / label.fixed_voxels as f64)
    }

    /// The same scores, where labels of `present_in_moving` that are in the fixed map but not in the
    /// moved one score 0 instead of NaN: the images had them, the registration lost them.
    pub fn counting_lost(mut self, present_in_moving: &[i32]) -> Self {
        for label in &mut self.labels {
            let lost = label.moved_voxels == 0 && label.fixed_voxels > 0;
            if lost && present_in_moving.contains(&label.id) {
                label.dice = 0.0;
            }
        }
        self
    }

    /// The score of one label.
    pub fn get(&self, id: i32) -> Option<&LabelDice> {
        self.labels.iter().find(|label| label.id == id)
    }

    fn weighted(&self, weight: impl Fn(&LabelDice) -> f64) -> f64 {
        let present = self.labels.iter().filter(|label| !label.dice.is_nan());
        let (sum, total) = present.fold((0.0, 0.0), |(sum, total), label| {
            (sum + weight(label) * label.dice, total + weight(label))
        });
        sum / total
    }
}

/// Dice of every label that occurs in either map; 0 is background and not counted.
///
/// # Errors
/// [`Error::Shape`] when the maps differ in length.
pub fn dice(fixed: &[i32], moved: &[i32]) -> Result<DiceScores> {
    let mut counts = OverlapCounts::default();
    counts.add(fixed, moved)?;
    Ok(counts.dice())
}

/// Dice of the given labels, in that order; background may be asked for by its id 0.
///
/// # Errors
/// [`Error::Shape`] when the maps differ in length.
pub fn dice_of(fixed: &[i32], moved: &[i32], ids: &[i32]) -> Result<DiceScores> {
    let mut counts = OverlapCounts::default();
    counts.add(fixed, moved)?;
    Ok(counts.dice_of(ids))
}

/// What Dice needs of two label maps, counted part by part: for maps that are never whole.
#[derive(Clone, Debug, Default)]
pub struct OverlapCounts(BTreeMap<i32, Counts>);

/// Voxels of a label in the fixed map, in the moved map, in both at once.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    fixed: u64,
    moved: u64,
    both: u64,
}

impl OverlapCounts {
    /// Counts a part of both maps, voxel by voxel.
    ///
    /// # Errors
    /// [`Error::Shape`] when the parts differ in length.
    pub fn add(&mut self, fixed: &[i32], moved: &[i32]) -> Result<()> {
        if fixed.len() != moved.len() {
            return Err(Error::Shape {
                what: "Dice compares label maps of one grid, voxel by voxel".into(),
                expected: vec![fixed.len()],
                got: vec![moved.len()],
            });
        }
        const CHUNK: usize = 1 << 16;
        let chunks = fixed.par_chunks(CHUNK).zip(moved.par_chunks(CHUNK));
        let parts: Vec<BTreeMap<i32, Counts>> =
            chunks.map(|(fixed, moved)| count_chunk(fixed, moved)).collect();
        for (id, part) in parts.into_iter().flatten() {
            let entry = self.0.entry(id).or_default();
            entry.fixed += part.fixed;
            entry.moved += part.moved;
            entry.both += part.both;
        }
        Ok(())
    }

    /// As [`dice()`] of the whole maps.
    pub fn dice(&self) -> DiceScores {
        let ids: BTreeSet<i32> = self.0.keys().copied().filter(|&id| id != 0).collect();
        self.scores(ids)
    }

    /// As [`dice_of`] the whole maps.
    pub fn dice_of(&self, ids: &[i32]) -> DiceScores {
        self.scores(ids.iter().copied())
    }

    fn scores(&self, ids: impl IntoIterator<Item = i32>) -> DiceScores {
        let score = |id| {
            let Counts { fixed, moved, both } = self.0.get(&id).copied().unwrap_or_default();
            let absent = fixed == 0 || moved == 0;
            let dice = if absent { f64::NAN } else { 2.0 * both as f64 / (fixed + moved) as f64 };
            LabelDice { id, dice, fixed_voxels: fixed, moved_voxels: moved }
        };
        DiceScores { labels: ids.into_iter().map(score).collect() }
    }
}

fn count_chunk(fixed: &[i32], moved: &[i32]) -> BTreeMap<i32, Counts> {
    let mut counts = BTreeMap::<i32, Counts>::new();
    let mut start = 0;
    // Labels come in runs: one look-up per run instead of one per voxel.
    while start < fixed.len() {
        let (f, m) = (fixed[start], moved[start]);
        let pairs = fixed[start..].iter().zip(&moved[start..]);
        let length = pairs.take_while(|&(&a, &b)| a == f && b == m).count();
        counts.entry(f).or_default().fixed += length as u64;
        counts.entry(m).or_default().moved += length as u64;
        if f == m {
            counts.entry(f).or_default().both += length as u64;
        }
        start += length;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_maps_score_by_hand() {
        let fixed = [0, 1, 1, 1, 2, 2, 3, 0];
        let moved = [0, 1, 1, 2, 2, 0, 4, 1];
        let scores = dice(&fixed, &moved).expect("same length");
        let ids: Vec<i32> = scores.labels.iter().map(|l| l.id).collect();
        assert_eq!(ids, [1, 2, 3, 4]);
        assert_eq!(scores.get(1).map(|l| l.dice), Some(2.0 * 2.0 / 6.0));
        assert_eq!(scores.get(2).map(|l| l.dice), Some(2.0 * 1.0 / 4.0));
        assert!(scores.get(3).is_some_and(|l| l.dice.is_nan()), "absent in moved");
        assert!(scores.get(4).is_some_and(|l| l.dice.is_nan()), "absent in fixed");
        assert!((scores.mean() - (2.0 / 3.0 + 0.5) / 2.0).abs() < 1e-15);
        // Weights 1/3 and 1/2 by the fixed volumes.
        let expected = (2.0 / 9.0 + 0.25) / (1.0 / 3.0 + 0.5);
        assert!((scores.inverse_volume_mean() - expected).abs() < 1e-15);
    }

    #[test]
    fn identical_maps_score_one_and_disjoint_ones_zero() {
        let map: Vec<i32> = (0..200_000).map(|i| (i / 777) % 9 - 4).collect();
        let scores = dice(&map, &map).expect("same length");
        assert_eq!(scores.labels.len(), 8);
        assert!(scores.labels.iter().all(|l| l.dice == 1.0 && l.fixed_voxels == l.moved_voxels));
        assert_eq!(dice(&[1, 0], &[0, 1]).expect("same length").mean(), 0.0);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let fixed: Vec<i32> = (0..10_000).map(|i| (i / 77) % 9).collect();
        let moved: Vec<i32> = (0..10_000).map(|i| (i / 71) % 8).collect();
        let mut counts = OverlapCounts::default();
        for cut in [0..1, 1..5000, 5000..10_000] {
            counts.add(&fixed[cut.clone()], &moved[cut]).expect("same length");
        }
        let whole = dice(&fixed, &moved).expect("same length");
        let bits = |scores: &DiceScores| -> Vec<(i32, u64)> {
            scores.labels.iter().map(|label| (label.id, label.dice.to_bits())).collect()
        };
        assert_eq!(bits(&counts.dice()), bits(&whole));
        assert!(whole.labels.len() == 8 && whole.mean() > 0.0);
        assert!(counts.add(&fixed, &moved[1..]).is_err());
    }

    #[test]
    fn asked_ids_keep_their_order_and_absent_ones_are_nan() {
        let scores = dice_of(&[5, 5, 0], &[5, 0, 0], &[9, 5, 0]).expect("same length");
        assert!(scores.labels[0].dice.is_nan());
        assert_eq!(scores.labels[1].dice, 2.0 / 3.0);
        assert_eq!(scores.labels[2].dice, 2.0 / 3.0);
        assert!(dice_of(&[1], &[1], &[]).expect("same length").mean().is_nan());
    }

    #[test]
    fn a_label_that_the_registration_lost_scores_zero() {
        let scores = dice_of(&[1, 2, 3, 3], &[1, 0, 0, 0], &[1, 2, 3, 4]).expect("same length");
        assert_eq!(scores.mean(), 1.0);
        let scores = scores.counting_lost(&[1, 3, 4]);
        // 2 is absent from the moving image, 4 from the fixed one.
        let values: Vec<f64> = scores.labels.iter().map(|l| l.dice).collect();
        assert!(values[0] == 1.0 && values[2] == 0.0, "{values:?}");
        assert!(values[1].is_nan() && values[3].is_nan(), "{values:?}");
        assert_eq!(scores.mean(), 0.5);
    }

    #[test]
    fn other_length_is_an_error_that_names_both() {
        let message = dice(&[1, 2], &[1]).expect_err("lengths differ").to_string();
        assert!(message.contains("[2]") && message.contains("[1]"), "{message}");
    }
}
