//! What labels say of a registration: their overlap and the distances of their surfaces, before and after.

use std::collections::BTreeSet;

use rayon::join;
use serde::Serialize;

use super::dice::{DiceScores, dice, dice_of};
use super::surface::{DistanceUnit, LabelSurface, surface_distances, surface_mean};
use crate::Result;
use crate::image::LabelMap;

/// A measure of two images before and after a registration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BeforeAfter<T> {
    /// As they are placed at the start.
    pub before: T,
    /// With the result.
    pub after: T,
}

impl<T> BeforeAfter<T> {
    /// Of both.
    pub fn of([before, after]: [T; 2]) -> Self {
        Self { before, after }
    }

    /// Both.
    pub fn pair(self) -> [T; 2] {
        [self.before, self.after]
    }
}

/// Overlap of labels before and after a registration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overlap {
    /// Mean over the labels present in both maps.
    pub mean: BeforeAfter<f64>,
    /// The same, weighted by the inverse volume in the fixed map.
    pub inverse_volume_mean: BeforeAfter<f64>,
    /// Distances of the labels' surfaces; null on a sheared grid.
    pub surfaces: Option<Surfaces>,
    /// Each of them.
    pub labels: Vec<LabelOverlap>,
}

/// How far the surfaces of labels lie apart: means over the labels, in mm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Surfaces {
    /// 95th percentile of the distances.
    pub hd95_mm: BeforeAfter<f64>,
    /// Cumulative HD90 (FFDP paper): mean of the smallest 90 % of the distances, of the worse
    /// direction.
    pub hd90_cumulative_mm: BeforeAfter<f64>,
}

/// Overlap of one label; null where it is absent from either map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabelOverlap {
    /// The label.
    pub id: i32,
    /// Voxels that it has in the fixed map.
    pub fixed_voxels: u64,
    /// Its Dice as the images are placed at the start.
    pub before: Option<f64>,
    /// The same with the result.
    pub after: Option<f64>,
    /// 95th percentile of the distances between the surfaces after registration, in mm.
    pub hd95_after_mm: Option<f64>,
}

impl Overlap {
    /// Of the moving labels on the fixed grid, by the headers alone and with the result.
    /// A label of `moving` that is nowhere on the fixed grid scores 0: it was lost. Of all labels, or those
    /// that were asked for.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) when the maps differ in size.
    pub fn of(
        fixed: &LabelMap,
        moving: &LabelMap,
        [before, after]: [&LabelMap; 2],
        asked: Option<&[i32]>,
    ) -> Result<Self> {
        let present = moving.ids();
        let score = |moved: &LabelMap| {
            let scores = match asked {
                Some(ids) => dice_of(&fixed.data, &moved.data, ids)?,
                None => dice(&fixed.data, &moved.data)?,
            };
            Ok::<_, crate::Error>(scores.counting_lost(&present))
        };
        let (labels_before, labels_after) = (before, after);
        let scores = [score(before)?, score(after)?];
        let ids = Self::ids(&scores);
        // Both maps lie on the fixed grid: what is refused is a sheared one.
        let distances =
            |moved| surface_distances(fixed, moved, &ids, DistanceUnit::Millimetres).ok();
        let (near, far) = join(|| distances(labels_before), || distances(labels_after));
        Ok(Self::new(&scores, near.zip(far)))
    }

    fn ids(scores: &[DiceScores; 2]) -> Vec<i32> {
        let all = scores.iter().flat_map(|scores| &scores.labels).map(|label| label.id);
        let all: BTreeSet<i32> = all.collect();
        all.into_iter().collect()
    }

    /// Of scores before and after, and the distances of the surfaces of all their labels.
    pub fn new(
        scores: &[DiceScores; 2],
        distances: Option<(Vec<LabelSurface>, Vec<LabelSurface>)>,
    ) -> Self {
        let ([before, after], ids) = (scores, Self::ids(scores));
        let known = |value: f64| (!value.is_nan()).then_some(value);
        let score = |scores: &DiceScores, id| scores.get(id).and_then(|label| known(label.dice));
        let labels = ids.iter().enumerate().map(|(i, &id)| LabelOverlap {
            id,
            fixed_voxels: before
                .get(id)
                .or_else(|| after.get(id))
                .map_or(0, |label| label.fixed_voxels),
            before: score(before, id),
            after: score(after, id),
            hd95_after_mm: distances.as_ref().and_then(|(_, after)| known(after[i].hd95)),
        });
        Self {
            mean: BeforeAfter { before: before.mean(), after: after.mean() },
            inverse_volume_mean: BeforeAfter {
                before: before.inverse_volume_mean(),
                after: after.inverse_volume_mean(),
            },
            surfaces: distances.as_ref().map(|(before, after)| Surfaces::of(before, after)),
            labels: labels.collect(),
        }
    }
}

impl Surfaces {
    fn of(before: &[LabelSurface], after: &[LabelSurface]) -> Self {
        let mean = |measure: fn(&LabelSurface) -> f64| BeforeAfter {
            before: surface_mean(before, measure),
            after: surface_mean(after, measure),
        };
        Self {
            hd95_mm: mean(|label| label.hd95),
            hd90_cumulative_mm: mean(|label| label.hd90_cumulative),
        }
    }
}
