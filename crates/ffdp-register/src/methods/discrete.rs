//! The discrete start: displacements that descent cannot find, by coupled convex search of features
//! ([`ops::discrete`](ffdp_burn::ops::discrete())).

use burn::tensor::Tensor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::StageMethod;
use super::own::{MethodResult, StageInputs, StageRun, find};
use crate::context::{Estimate, Run, StageResult};
use crate::level_memory::LevelProblem;
use crate::problem::Content;
use crate::pyramid::plane_axis;
use crate::settings::{LevelSettings, Next, Similarity, validate_shrink};
use ffdp_burn::losses::similarities::{Mind, MindSettings};
use ffdp_burn::losses::{Dice, SimilarityLoss};
use ffdp_burn::ops::discrete::{Guide, PointPairs};
use ffdp_burn::ops::{DiscreteOptions, GridSampleOptions, compose, discrete_rounds, grid_sample};
use ffdp_burn::transform::{Displacement, affine_tensor};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical, Voxel};
use ffdp_parallel::{deform::Landmarks, planner::VALUE};

/// Discrete search of large displacements (Siebert, Hansen and Heinrich 2021): a coarse displacement from which a
/// deformable stage goes on. It compares structure by default (MIND), so that contrasts may differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiscreteSettings {
    /// Its level, of which a file has the `shrink`. Default: such that no axis of the fixed image has more than 112 voxels.
    #[serde(
        rename = "shrink",
        serialize_with = "shrink_of",
        deserialize_with = "level_of",
        skip_serializing_if = "Option::is_none"
    )]
    pub level: Option<LevelSettings>,
    /// The searches, wide and then narrow. Default: control points 6 voxels apart with displacements of up to 24
    /// voxels of the level, then 4 apart with up to 6.
    pub rounds: Vec<DiscreteRound>,
    /// The features that are compared, by which the result is judged as well: `mind` descriptors of structure; `ngf`
    /// edges (the term `inner`); `mse` the values themselves, of the images and of further channels; a `sum` of these,
    /// each with its weight and of the channels that it names. Default: `mind`.
    pub features: Similarity,
}

fn shrink_of<S: Serializer>(
    level: &Option<LevelSettings>,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    level.map(|level| level.shrink).serialize(to)
}

fn level_of<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<LevelSettings>, D::Error> {
    Ok(Some(LevelSettings { shrink: f64::deserialize(from)?, iterations: 1 }))
}

/// One search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscreteRound {
    /// Voxels between control points, 1 to 16.
    pub spacing_voxels: usize,
    /// Voxels between displacements, by which the spacing can be divided.
    pub step_voxels: usize,
    /// Steps in each direction, 1 to 8.
    pub radius: usize,
}

impl Default for DiscreteSettings {
    fn default() -> Self {
        let round = |[spacing_voxels, step_voxels, radius]: [usize; 3]| DiscreteRound {
            spacing_voxels,
            step_voxels,
            radius,
        };
        Self {
            level: None,
            rounds: [[6, 6, 4], [4, 2, 3]].map(round).to_vec(),
            features: Similarity::Mind(MindSettings::default()),
        }
    }
}

/// Descriptors of a channel (MIND-SSC), whose squared differences the search is made for, summed.
const DESCRIPTORS: f64 = 12.0;

/// What these costs usually gain.
fn usual_gain() -> f64 {
    DESCRIPTORS * Mind::default().usual_gain()
}

/// Images that have features at once: both, and the moving one as the round before shows it.
const DESCRIBED: u64 = 3;
/// Values a voxel of the fields: that before a round, what it adds, and both in turn composed.
const FIELDS: u64 = 12;

/// Voxels along the longest axis of the level that is searched by default.
const LONGEST_VOXELS: f64 = 112.0;

impl DiscreteSettings {
    fn options(&self) -> Vec<DiscreteOptions> {
        let of = |round: &DiscreteRound| DiscreteOptions {
            spacing_voxels: round.spacing_voxels,
            step_voxels: round.step_voxels,
            radius: round.radius,
            ..DiscreteOptions::default()
        };
        self.rounds.iter().map(of).collect()
    }

    /// Features of an image by which a voxel costs what it does by the descriptors of one channel, relative to what the
    /// similarity usually gains: the costs are weighed against distances.
    fn features(&self, image: &Tensor<5>) -> Tensor<5> {
        let loss = self.features.loss();
        let weight = usual_gain() / loss.usual_gain();
        loss.features(image, weight).expect("others do not validate")
    }

    /// Values a voxel of an image with so many channels.
    fn described(&self, channels: usize) -> u64 {
        self.features.feature_channels(channels).unwrap_or(0) as u64
    }

    /// The displacement on the level, after what was found before.
    fn search(&self, stage: &mut StageRun) -> Result<MethodResult> {
        let images = stage.images(self.level.as_ref().expect("a run has it"))?;
        let (affine, [fixed, _]) = (stage.affine(), images.grids());
        let map =
            affine_tensor(&images.index_map(&affine), &images.fixed.device(), images.fixed.dtype());
        let before = stage.displacement()?.map(|w| w.resampled(fixed).field().clone());
        let [_, _, d, h, w] = images.fixed.dims();
        let options = GridSampleOptions { size: Some([d, h, w]), ..GridSampleOptions::default() };
        let linear = images.index_map(&affine).linear();
        let scaled = before.clone().map(|u| ffdp_burn::transform::map_vectors(u, &linear));
        let seen = |image: &Tensor<5>| {
            grid_sample(image.clone(), Some(map.clone()), scaled.clone(), &options)
        };
        let moved = seen(&images.moving);
        let [of_fixed, of_moving] = &images.masks;
        let mut features = [&images.fixed, &moved].map(|x| self.features(x));
        if let Some(([fixed, moving], weight)) = images.driving_labels() {
            let labels = as_features([fixed, seen(&moving)], of_fixed.as_ref(), weight);
            features = join_channels(features, labels);
        }
        let [fixed_features, moved_features] = features;
        let landmarks = images.landmarks(&affine, usual_gain());
        let pairs =
            landmarks.map(|landmarks| point_pairs(&landmarks, plane_axis(fixed))).transpose()?;
        let guide = Guide {
            weights: [of_fixed.clone(), of_moving.as_ref().map(seen)],
            pairs: match &before {
                Some(before) => pairs.map(|pairs| pairs.seen_through(before.clone())),
                None => pairs,
            },
        };
        let found = discrete_rounds(fixed_features, moved_features, &guide, &self.options());
        let field = match before {
            None => found,
            Some(before) => compose(before, found),
        };
        Ok(MethodResult { affine, displacement: Some(Displacement::new(field, fixed.clone())?) })
    }
}

/// Labels as features: the mean over voxels of their squared difference costs what `1 - Dice` does with this weight, for
/// `1 - 2 sum a b / (sum a^2 + sum b^2)` is `sum (a - b)^2 / (sum a^2 + sum b^2)`. With a mask both count its voxels; a
/// label that fills not one of them costs nothing.
fn as_features(labels: [Tensor<5>; 2], mask: Option<&Tensor<5>>, weight: f64) -> [Tensor<5>; 2] {
    let count = labels[0].dims()[1] as f64;
    let ones = || labels[0].clone().narrow(1, 0, 1).ones_like();
    let mask = mask.cloned().unwrap_or_else(ones);
    let total = |of: Tensor<5>| (of * mask.clone()).sum_dims(&[2, 3, 4]);
    let sizes = total(labels[0].clone().square()) + total(labels[1].clone().square());
    let voxels = mask.clone().sum_dims(&[2, 3, 4]);
    let cost = weight * usual_gain() / (Dice.usual_gain() * count);
    let is_there = sizes.clone().greater_equal_elem(1.0).float().cast(sizes.dtype());
    let scale = (voxels.mul_scalar(cost) / sizes.clamp_min(1.0)).sqrt() * is_there;
    labels.map(|labels| labels * scale.clone())
}

fn join_channels([fixed, moving]: [Tensor<5>; 2], more: [Tensor<5>; 2]) -> [Tensor<5>; 2] {
    let [more_fixed, more_moving] = more;
    [Tensor::cat(vec![fixed, more_fixed], 1), Tensor::cat(vec![moving, more_moving], 1)]
}

/// Landmarks in voxels, where the moving image is seen through the affine map. Their distance counts the same along all
/// axes, as that of displacements does; across a single plane there is none.
fn point_pairs(landmarks: &Landmarks, across: Option<usize>) -> Result<PointPairs> {
    let Landmarks { fixed_voxels, offsets_mm, linear_mm, sigma_mm, weight } = landmarks;
    let to_voxels = Affine::<Voxel, Physical>::from_parts(*linear_mm, [0.0; 3]).inverse()?;
    let there = |(voxel, offset_mm): (&[f64; 3], &[f64; 3])| {
        let offset = to_voxels.apply(*offset_mm);
        std::array::from_fn(|c| if Some(c) == across { voxel[c] } else { voxel[c] - offset[c] })
    };
    let axes: Vec<usize> = (0..3).filter(|axis| Some(*axis) != across).collect();
    let square_mm = |axis: &usize| linear_mm.iter().map(|row| row[*axis].powi(2)).sum::<f64>();
    let voxel_mm2 = axes.iter().map(square_mm).sum::<f64>() / axes.len() as f64;
    Ok(PointPairs {
        fixed: fixed_voxels.clone(),
        moving: fixed_voxels.iter().zip(offsets_mm).map(there).collect(),
        precision: weight * voxel_mm2 / (2.0 * sigma_mm * sigma_mm),
    })
}

impl StageMethod for DiscreteSettings {
    fn levels(&self) -> &[LevelSettings] {
        self.level.as_slice()
    }

    fn levels_mut(&mut self) -> &mut [LevelSettings] {
        self.level.as_mut_slice()
    }

    fn for_images(&mut self, longest_voxels: f64, _: Next) {
        let shrink = (longest_voxels / LONGEST_VOXELS).max(1.0);
        self.level.get_or_insert(LevelSettings { shrink, iterations: 1 });
    }

    fn similarity(&self) -> &Similarity {
        &self.features
    }

    fn validate(&self) -> Result<()> {
        if let Some(level) = &self.level {
            validate_shrink(&[level.shrink])?;
        }
        self.features.validate()?;
        if self.features.feature_channels(1).is_none() {
            let what = "a discrete search compares features, which this similarity has none of";
            let fix = "use mind, ngf with the term inner, mse, or a sum of these";
            return Err(Error::invalid(what, &self.features, fix));
        }
        if self.rounds.is_empty() {
            let what = "a discrete search has at least one round";
            return Err(Error::invalid(what, &self.rounds, "leave the entry out"));
        }
        for round in &self.rounds {
            let DiscreteRound { spacing_voxels: s, step_voxels: q, radius } = *round;
            let divides = (1..=16).contains(&s) && (1..=s).contains(&q) && s % q == 0;
            if !divides || !(1..=8).contains(&radius) {
                let what = "a round has a spacing of 1..16 voxels, a step that divides it, and a radius of 1..8 steps";
                return Err(Error::invalid(what, round, "use, for example, 6, 6 and 4"));
            }
        }
        Ok(())
    }

    /// Features of both images and those that were moved, fields, and the costs of the round that has most. Of one
    /// channel, or as many as the features name.
    fn host_bytes_per_voxel(&self) -> u64 {
        let costs = |round: &DiscreteOptions| {
            let cell = [round.spacing_voxels; 3];
            round.all_cost_bytes(cell).div_ceil(cell.iter().product()) as u64
        };
        let costs = self.options().iter().map(costs).max().unwrap_or(0);
        VALUE * (self.described(1) * DESCRIBED + FIELDS) + costs
    }

    fn problem(&self, grids: [&Geometry; 2], content: Content) -> LevelProblem {
        let [fixed, moving] = grids.map(|grid| grid.len() as u64);
        let [of_fixed, of_moving] = content.with_masks().map(|channels| channels as u64);
        let images = of_fixed * fixed + of_moving * (moving + fixed);
        let features = self.described(content.channels - content.labels) + content.labels as u64;
        let made = features * DESCRIBED + FIELDS;
        let size = grids[0].dims();
        let costs = self.options().iter().map(|round| round.cost_bytes_at_once(size) as u64).max();
        let bytes = VALUE * (images + made * fixed) + costs.unwrap_or(0);
        LevelProblem::whole(grids, bytes)
    }

    /// Its level is whole on the first device, wherever those of other stages are.
    fn refuses(&self, given: &StageInputs) -> Option<String> {
        given.processes.then(|| "it has its images in one piece, of one process".into())
    }

    fn run(&self, name: &'static str, run: &mut Run, found: Estimate) -> Result<StageResult> {
        find(run, name, self, found, |stage| self.search(stage))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;
    use ffdp_burn::losses::Pair;
    use ffdp_kit::testing::{tensor, to_f64, uniform};

    #[test]
    fn labels_as_features_cost_what_their_overlap_does() {
        let (shape, voxels) = ([1, 3, 4, 5, 6], 120);
        let place = (&Device::flex(), DType::F64);
        let of = |seed| tensor::<5>(&uniform(3 * voxels, 0.0, 1.0, seed), shape, place.0, place.1);
        let half = |k: usize| if k.is_multiple_of(2) { 1.0 } else { 0.0 };
        let half: Vec<f64> = (0..voxels).map(half).collect();
        let mask = tensor::<5>(&half, [1, 1, 4, 5, 6], place.0, place.1);
        let (a, b, weight) = (of(1), of(2), 0.7);
        for mask in [None, Some(mask)] {
            let [fixed, moving] = as_features([a.clone(), b.clone()], mask.as_ref(), weight);
            let weights = mask.unwrap_or_else(|| Tensor::ones([1, 1, 4, 5, 6], place));
            let square = (fixed - moving).square().sum_dim(1) * weights.clone();
            let cost = to_f64(square.sum() / weights.clone().sum())[0];
            let pair =
                Pair { weights: Some(weights.repeat_dim(1, 3)), ..Pair::new(a.clone(), b.clone()) };
            let overlap = to_f64(Dice.loss_of(&pair))[0];
            let expected = weight * usual_gain() / Dice.usual_gain() * overlap;
            // What keeps a ratio of sums of some twenty voxels defined, 1e-5 of a voxel.
            assert!((cost / expected - 1.0).abs() < 1e-5, "{cost} {expected}");
        }
        // A label outside the mask of the fixed image, and in the moving image alone.
        let left: Vec<f64> = (0..voxels).map(|k| if k % 6 < 3 { 1.0 } else { 0.0 }).collect();
        let [left, right] = [0.0, 1.0].map(|flip: f64| {
            let values: Vec<f64> = left.iter().map(|value| (value - flip).abs()).collect();
            tensor::<5>(&values, [1, 1, 4, 5, 6], place.0, place.1)
        });
        let labels = [right.zeros_like(), right];
        for label in as_features(labels, Some(&left), weight) {
            assert!(to_f64(label).iter().all(|value| *value == 0.0));
        }
    }

    #[test]
    fn landmarks_of_a_thick_plane_count_by_its_pixels() {
        let landmarks = Landmarks {
            fixed_voxels: vec![[3.0, 4.0, 0.0]],
            offsets_mm: vec![[0.008, -0.004, 2.5]],
            linear_mm: [[0.004, 0.0, 0.0], [0.0, 0.004, 0.0], [0.0, 0.0, 1.0]],
            sigma_mm: 0.01,
            weight: 3.0,
        };
        let pairs = point_pairs(&landmarks, Some(2)).expect("invertible");
        let off: Vec<f64> =
            pairs.moving[0].iter().zip([1.0, 5.0, 0.0]).map(|(a, b)| a - b).collect();
        assert!(off.iter().all(|off| off.abs() < 1e-9), "{:?}", pairs.moving);
        let expected = 3.0 * 0.004 * 0.004 / (2.0 * 0.01 * 0.01);
        assert!((pairs.precision / expected - 1.0).abs() < 1e-12, "{}", pairs.precision);
        // Of a volume all axes count.
        let volume = point_pairs(&landmarks, None).expect("invertible");
        assert!((volume.moving[0][2] + 2.5).abs() < 1e-9 && volume.precision > 1e3 * expected);
    }
}
