//! What is minimised: `similarity(moving o phi, fixed) + weight * smoothness(u)`, with labels
//! `+ dice_weight * overlap`, and where they are asked for
//! `+ jacobian_weight * folds(u) + inverse_weight * |phi' o phi - id|^2`, `phi'` that of the pair turned round.

use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor};
use ffdp_burn::baseline;
use ffdp_burn::losses::{
    SimilarityLoss, bending_energy, diffusion, jacobian_penalty, label_dice_loss, total_variation,
};
use ffdp_burn::ops;
use ffdp_burn::ops::label_dice::LabelDiceOptions;
use ffdp_burn::ops::regularity::SMALL_DIFFERENCE;
use ffdp_image::Result;
use ffdp_image::metrics::{DiceScores, dice, dice_of, warp_labels};
use ffdp_nets::{Deformation, Network};
use ffdp_parallel::{DisplacementBounds, Sharded};

use crate::data::{Item, Prepared};
use crate::settings::{Regularizer, Settings};

/// The Jacobian determinant below which a voxel folds.
const FOLD: f64 = 0.0;

/// The objective of a run.
#[derive(Clone, Debug)]
pub struct Objective {
    /// Who computes its terms.
    pub operations: Operations,
    regularizer: Regularizer,
    weight: f64,
    jacobian_weight: f64,
    inverse_weight: f64,
    dice_weight: f64,
    evaluated_labels: Option<Arc<Vec<i32>>>,
}

/// Who computes integration, warp and the terms of the loss.
#[derive(Clone, Debug)]
pub enum Operations {
    /// The fused operations, with their hand-derived gradients.
    Fused(Arc<dyn SimilarityLoss>),
    /// Burn's own tensor operations and its autodiff, as one would write them without this
    /// library; the same values at more time and memory.
    Baseline {
        /// What is composed.
        similarity: Arc<dyn SimilarityLoss>,
        /// Squarings, with `--integrate`.
        squarings: Option<usize>,
    },
}

/// What a network predicts for a pair, `[N, 3, D, H, W]` in voxels.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// The whole displacement.
    pub displacement: Tensor<5>,
    /// Of it, what is to be smooth: all but the affine alignment.
    pub deformation: Tensor<5>,
    /// The whole displacement of the pair turned round, where the objective asks for it.
    pub back: Option<Tensor<5>>,
}

/// The terms of the objective, each `[1]`.
pub struct Terms {
    /// What is minimised.
    pub total: Tensor<1>,
    similarity: Tensor<1>,
    smoothness: Tensor<1>,
    overlap: Tensor<1>,
}

impl Terms {
    /// What is minimised, times the share of the pair in a step of several.
    pub fn share(&self, share: f64) -> Tensor<1> {
        if share == 1.0 {
            return self.total.clone();
        }
        self.total.clone().mul_scalar(share)
    }

    /// Total, similarity, smoothness and overlap as numbers; waits for the device, once.
    pub fn read(self) -> [f64; 4] {
        Self::read_all(vec![self]).remove(0)
    }

    /// [`read`](Self::read) of several, once for each device.
    pub fn read_all(all: Vec<Self>) -> Vec<[f64; 4]> {
        let devices: Vec<Device> = all.iter().map(|terms| terms.total.device()).collect();
        let mut numbers = vec![[f64::NAN; 4]; all.len()];
        let mut left: Vec<(usize, Self)> = all.into_iter().enumerate().collect();
        while let Some((first, _)) = left.first() {
            let device = &devices[*first];
            let (here, elsewhere): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|(i, _)| devices[*i] == *device);
            let places: Vec<usize> = here.iter().map(|(i, _)| *i).collect();
            let terms = here.into_iter().flat_map(|(_, terms)| {
                [terms.total, terms.similarity, terms.smoothness, terms.overlap]
            });
            let values = Tensor::cat(terms.collect(), 0).try_into_vec_as::<f64>();
            let values = values.expect("the device hands back its numbers");
            for (place, four) in places.into_iter().zip(values.chunks_exact(4)) {
                numbers[place].copy_from_slice(four);
            }
            left = elsewhere;
        }
        numbers
    }
}

impl Operations {
    fn new(settings: &Settings) -> Self {
        let similarity = settings.loss.loss();
        match settings.baseline {
            true => Self::Baseline { similarity, squarings: settings.squarings() },
            false => Self::Fused(similarity),
        }
    }

    /// What the network predicts for a pair.
    pub fn predict(&self, network: &Network, moving: Tensor<5>, fixed: Tensor<5>) -> Predicted {
        let Some(alignment) = &network.alignment else {
            let deformation = self.deformation(&network.deformation, moving, fixed);
            return Predicted { displacement: deformation.clone(), deformation, back: None };
        };
        let affine = alignment.forward(moving.clone(), fixed.clone());
        let moved = self.warp(moving, affine.clone());
        let deformation = self.deformation(&network.deformation, moved, fixed);
        let displacement = self.compose(affine, deformation.clone());
        Predicted { displacement, deformation, back: None }
    }

    fn deformation(&self, network: &Deformation, moving: Tensor<5>, fixed: Tensor<5>) -> Tensor<5> {
        match self {
            Self::Fused(_) => network.forward(moving, fixed),
            Self::Baseline { squarings: Some(steps), .. } => {
                baseline::exp(network.flow(moving, fixed), *steps)
            }
            Self::Baseline { squarings: None, .. } => network.flow(moving, fixed),
        }
    }

    /// `moving` as seen through the displacement.
    pub fn warp(&self, moving: Tensor<5>, displacement: Tensor<5>) -> Tensor<5> {
        match self {
            Self::Fused(_) => ops::warp(moving, displacement),
            Self::Baseline { .. } => baseline::warp(moving, displacement),
        }
    }

    fn compose(&self, outer: Tensor<5>, inner: Tensor<5>) -> Tensor<5> {
        match self {
            Self::Fused(_) => ops::compose(outer, inner),
            Self::Baseline { .. } => baseline::compose(outer, inner),
        }
    }

    fn folds(&self, displacement: Tensor<5>) -> Tensor<1> {
        match self {
            Self::Fused(_) => jacobian_penalty(displacement, FOLD),
            Self::Baseline { .. } => baseline::jacobian_penalty(displacement, FOLD),
        }
    }

    fn smoothness(&self, displacement: Tensor<5>, regularizer: Regularizer) -> Tensor<1> {
        match (self, regularizer) {
            (Self::Fused(_), Regularizer::Diffusion) => diffusion(displacement),
            (Self::Fused(_), Regularizer::Bending) => bending_energy(displacement),
            (Self::Baseline { .. }, Regularizer::Diffusion) => baseline::diffusion(displacement),
            (Self::Baseline { .. }, Regularizer::Bending) => baseline::bending_energy(displacement),
            (Self::Fused(_), Regularizer::TotalVariation) => {
                total_variation(displacement, SMALL_DIFFERENCE)
            }
            (Self::Baseline { .. }, Regularizer::TotalVariation) => {
                baseline::total_variation(displacement, SMALL_DIFFERENCE)
            }
        }
    }

    /// One minus the mean soft Dice of the labels `ids`, `[1]`.
    fn overlap(&self, labels: [Tensor<5, Int>; 2], u: Tensor<5>, ids: &[i32]) -> Tensor<1> {
        let [moving, fixed] = labels;
        match self {
            Self::Fused(_) => label_dice_loss(moving, fixed, u, ids),
            Self::Baseline { .. } => {
                let options = LabelDiceOptions::default();
                let scores = baseline::label_dice(moving, fixed, u, ids, &options);
                scores.mean().neg().add_scalar(1.0)
            }
        }
    }

    fn similarity(&self, moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1> {
        match self {
            Self::Fused(similarity) => similarity.loss(moved, fixed),
            Self::Baseline { similarity, .. } => {
                baseline::similarity(similarity.as_ref(), moved, fixed)
            }
        }
    }
}

/// A pair in parts, and what a network predicts for it.
pub struct Parts {
    /// The images.
    pub images: [Sharded; 2],
    /// The whole displacement, as in [`Predicted`].
    pub displacement: Sharded,
    /// Of it, what is to be smooth.
    pub deformation: Sharded,
}

impl Objective {
    /// The objective of a recipe; Dice counts `evaluated_labels`, or all that occur.
    pub fn new(settings: &Settings, evaluated_labels: Option<&[i32]>) -> Self {
        Self {
            operations: Operations::new(settings),
            regularizer: settings.regularizer,
            weight: settings.smoothness_weight(),
            jacobian_weight: settings.jacobian_weight,
            inverse_weight: settings.inverse_weight,
            dice_weight: settings.dice_weight,
            evaluated_labels: evaluated_labels.map(|ids| Arc::new(ids.to_vec())),
        }
    }

    /// What the network predicts for a pair, and for the pair turned round where that is asked for.
    pub fn predict(&self, network: &Network, moving: Tensor<5>, fixed: Tensor<5>) -> Predicted {
        let predicted = self.operations.predict(network, moving.clone(), fixed.clone());
        let back = (self.inverse_weight > 0.0)
            .then(|| self.operations.predict(network, fixed, moving).displacement);
        Predicted { back, ..predicted }
    }

    /// The terms of a step, and the moved image.
    pub fn terms(&self, item: &Item, predicted: Predicted) -> (Terms, Tensor<5>) {
        let flaws = self.flaws(&predicted);
        let Predicted { displacement, deformation, .. } = predicted;
        let moved = self.operations.warp(item.moving.image.clone(), displacement.clone());
        let similarity = self.operations.similarity(moved.clone(), item.fixed.image.clone());
        let smoothness = self.operations.smoothness(deformation, self.regularizer);
        let mut total = similarity.clone() + smoothness.clone().mul_scalar(self.weight);
        if let Some(flaws) = flaws {
            total = total + flaws;
        }
        let mut overlap = Tensor::zeros([1], &displacement.device());
        if let Some((labels, ids)) = self.labels(item) {
            overlap = self.operations.overlap(labels, displacement, &ids);
            total = total + overlap.clone().mul_scalar(self.dice_weight);
        }
        (Terms { total, similarity, smoothness, overlap }, moved)
    }

    /// What folds cost, and a map back that does not lead back; `None` where neither counts.
    fn flaws(
        &self,
        Predicted { displacement, deformation, back }: &Predicted,
    ) -> Option<Tensor<1>> {
        let folds = (self.jacobian_weight > 0.0)
            .then(|| self.operations.folds(deformation.clone()).mul_scalar(self.jacobian_weight));
        let inverse = back.clone().map(|back| {
            let off = self.operations.compose(back, displacement.clone());
            // Of vectors, not of components.
            (off.clone() * off).mean().mul_scalar(3.0 * self.inverse_weight)
        });
        folds.into_iter().chain(inverse).reduce(Tensor::add)
    }

    /// [`terms`](Self::terms) of a step whose images and displacement are in parts, and the moved image.
    ///
    /// # Errors
    /// When the bounds of the displacement cannot be read.
    ///
    /// # Panics
    /// With `--baseline`.
    pub fn terms_of_parts(&self, item: &Item, parts: &Parts) -> Result<(Terms, Sharded)> {
        let Parts { images: [moving, fixed], displacement, deformation } = parts;
        let bounds = DisplacementBounds::read(displacement)?;
        let moved = ffdp_parallel::ops::warp(moving, displacement, &bounds);
        let Operations::Fused(similarity) = &self.operations else {
            panic!("composed operations know no parts")
        };
        let similarity = ffdp_parallel::ops::loss(similarity.as_ref(), &moved, fixed);
        let smoothness = match self.regularizer {
            Regularizer::Diffusion => ffdp_parallel::ops::diffusion(deformation),
            Regularizer::Bending => ffdp_parallel::ops::bending_energy(deformation),
            Regularizer::TotalVariation => {
                ffdp_parallel::ops::total_variation(deformation, SMALL_DIFFERENCE)
            }
        };
        let mut total = similarity.clone() + smoothness.clone().mul_scalar(self.weight);
        if self.jacobian_weight > 0.0 {
            let folds = ffdp_parallel::ops::jacobian_penalty(deformation, FOLD);
            total = total + folds.mul_scalar(self.jacobian_weight);
        }
        let mut overlap = Tensor::zeros([1], &total.device());
        if let Some((labels, ids)) = self.labels(item) {
            overlap = ffdp_parallel::ops::label_dice_loss(labels, displacement, &bounds, &ids);
            total = total + overlap.clone().mul_scalar(self.dice_weight);
        }
        Ok((Terms { total, similarity, smoothness, overlap }, moved))
    }

    /// The labels of moving and fixed, and which of them are evaluated and in both; `None` without labels or without
    /// weight.
    fn labels(&self, item: &Item) -> Option<([Tensor<5, Int>; 2], Vec<i32>)> {
        let moving = item.moving.labels.clone().filter(|_| self.dice_weight > 0.0)?;
        let fixed = item.fixed.labels.clone()?;
        let wanted = |id: &&i32| {
            let evaluated = self.evaluated_labels.as_ref().is_none_or(|ids| ids.contains(id));
            evaluated && item.pair.moving.ids.contains(id)
        };
        let ids: Vec<i32> = item.pair.fixed.ids.iter().filter(wanted).copied().collect();
        (!ids.is_empty()).then_some(([moving, fixed], ids))
    }

    /// The labels of `pair` compared after the displacement `[3, D, H, W]`; `None` without labels.
    ///
    /// # Errors
    /// A displacement on another grid than the pair's.
    pub fn dice(&self, pair: &Prepared, displacement: &[f32]) -> Result<Option<DiceScores>> {
        let (Some(moving), Some(fixed)) = (&pair.moving.labels, &pair.fixed.labels) else {
            return Ok(None);
        };
        let moved = warp_labels(moving, displacement)?;
        let scores = match &self.evaluated_labels {
            Some(ids) => dice_of(&fixed.data, &moved.data, ids),
            None => dice(&fixed.data, &moved.data),
        };
        scores.map(|scores| Some(scores.counting_lost(&pair.moving.ids)))
    }
}

#[cfg(test)]
mod tests {
    use ffdp_burn::losses::{Mse, Pair, similarities};

    use super::*;

    /// The sum of squares: one's own, without kernels.
    #[derive(Debug)]
    struct Squares;

    impl SimilarityLoss for Squares {
        fn partial(&self, pair: &Pair) -> Tensor<1> {
            Mse.partial(pair)
        }

        fn finish(&self, total: Tensor<1>, _count: Tensor<1>) -> Tensor<1> {
            total
        }

        fn usual_gain(&self) -> f64 {
            20.0
        }
    }

    /// A shift by two voxels along x with and without the shift back, and a field that mirrors x.
    #[test]
    fn folds_and_inconsistent_inverses_cost_what_they_are() {
        let shift = |along_x: f32| {
            let shape = [1, 1, 4, 5, 6];
            let x = Tensor::<5>::full(shape, along_x, &Device::flex());
            let zero = Tensor::zeros(shape, &Device::flex());
            Tensor::cat(vec![x, zero.clone(), zero], 1)
        };
        let ramp = Tensor::<1>::from_floats([0.0, -2.0, -4.0, -6.0, -8.0, -10.0], &Device::flex());
        let ramp = ramp.reshape([1, 1, 1, 1, 6]).expand([1, 1, 4, 5, 6]);
        let zero = ramp.zeros_like();
        let mirrored = Tensor::cat(vec![ramp, zero.clone(), zero], 1);
        for baseline in [false, true] {
            let weights = Settings {
                jacobian_weight: 3.0,
                inverse_weight: 0.5,
                baseline,
                ..Settings::default()
            };
            let objective = Objective::new(&weights, None);
            let cost = |displacement: &Tensor<5>, back: Option<Tensor<5>>| {
                let [displacement, deformation] = [displacement.clone(), displacement.clone()];
                let flaws = objective.flaws(&Predicted { displacement, deformation, back });
                flaws.expect("folds count").into_scalar::<f32>()
            };
            assert_eq!(cost(&shift(2.0), Some(shift(-2.0))), 0.0);
            assert_eq!(cost(&shift(2.0), Some(shift(0.0))), 0.5 * 4.0);
            // Its determinant is -1 everywhere.
            assert_eq!(cost(&mirrored, None), 3.0);
            let none = Objective::new(&Settings { baseline, ..Settings::default() }, None);
            let [displacement, deformation] = [mirrored.clone(), mirrored.clone()];
            assert!(none.flaws(&Predicted { displacement, deformation, back: None }).is_none());
        }
    }

    #[test]
    fn a_loss_of_ones_own_is_trained_and_weighed() {
        let loss = similarities::Similarity::own(Squares);
        let settings = Settings { loss, ..Settings::default() };
        let error = settings.validate().expect_err("no file can name it").to_string();
        assert!(error.contains("settings.toml cannot name"), "{error}");
        for baseline in [false, true] {
            let objective = Objective::new(&Settings { baseline, ..settings.clone() }, None);
            assert_eq!(objective.weight, 20.0);
            let device = Device::flex();
            let [a, b] = [1.0, 3.0].map(|v| Tensor::<5>::full([1, 1, 2, 3, 4], v, &device));
            let value = objective.operations.similarity(a, b).into_scalar::<f32>();
            assert_eq!(value, 96.0);
        }
    }
}
