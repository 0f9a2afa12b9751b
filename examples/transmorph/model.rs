//! What is trained: TransMorph with its objective, as Burn's `TrainStep` and `InferenceStep`.
//!
//! Burn's `Learner` fits: a step may compute what it likes as long as it returns gradients, and
//! each loss term is a metric of its own. Only the data loader and the metric log are ours (see
//! `data/loader.rs` and `journal.rs`), because a resumed run must repeat an uninterrupted one.

use std::sync::Arc;
use std::time::Instant;

use burn::module::Module;
use burn::tensor::Tensor;
use burn::train::{InferenceStep, TrainOutput, TrainStep};
use ffdp::losses::{Lncc, Mse, Similarity, diffusion, memberships, soft_dice};
use ffdp::metrics::{DiceScores, dice, dice_of, jacobian, warp_labels};
use ffdp::nets::TransMorph;
use ffdp::ops::{LnccOptions, warp};
use ffdp::{Error, Result};

use crate::args::{Loss, Settings};
use crate::data::{Item, Pair};
use crate::metrics::Scores;
use crate::pictures;

/// TransMorph and what it minimises.
#[derive(Module, Debug)]
pub struct Registration {
    pub network: TransMorph,
    #[module(skip)]
    objective: Objective,
}

/// `similarity(moving o phi, fixed) + weight * smoothness(u) + dice_weight * overlap(labels)`.
#[derive(Clone, Debug)]
pub struct Objective {
    similarity: Arc<dyn Similarity>,
    weight: f64,
    dice_weight: f64,
    evaluated_labels: Option<Arc<Vec<i32>>>,
}

/// The terms of the objective, each `[1]`.
struct Terms {
    total: Tensor<1>,
    similarity: Tensor<1>,
    smoothness: Tensor<1>,
    overlap: Tensor<1>,
}

impl Objective {
    pub fn new(settings: &Settings, evaluated_labels: Option<&[i32]>) -> Self {
        let similarity: Arc<dyn Similarity> = match settings.loss {
            Loss::Lncc => {
                let window = settings.window;
                Arc::new(Lncc(LnccOptions { window, ..LnccOptions::default() }))
            }
            Loss::Mse => Arc::new(Mse),
        };
        Self {
            similarity,
            weight: settings.smoothness_weight(),
            dice_weight: settings.dice_weight,
            evaluated_labels: evaluated_labels.map(|ids| Arc::new(ids.to_vec())),
        }
    }

    /// `moving` as seen through the displacement.
    pub fn warp(&self, moving: Tensor<5>, displacement: Tensor<5>) -> Tensor<5> {
        warp(moving, displacement)
    }

    /// The labels of `pair` compared after the displacement `[3, D, H, W]`; `None` without labels.
    pub fn dice(&self, pair: &Pair, displacement: &[f32]) -> Result<Option<DiceScores>> {
        let (Some(moving), Some(fixed)) = (&pair.moving.labels, &pair.fixed.labels) else {
            return Ok(None);
        };
        let moved = warp_labels(moving, displacement)?;
        match &self.evaluated_labels {
            Some(ids) => dice_of(&fixed.data, &moved.data, ids),
            None => dice(&fixed.data, &moved.data),
        }
        .map(Some)
    }

    /// The terms of a step, and the moved image.
    fn terms(&self, item: &Item, displacement: Tensor<5>) -> (Terms, Tensor<5>) {
        let moved = self.warp(item.moving.clone(), displacement.clone());
        let similarity = self.similarity.loss(moved.clone(), item.fixed.clone());
        let smoothness = diffusion(displacement.clone());
        let mut total = similarity.clone() + smoothness.clone().mul_scalar(self.weight);
        let mut overlap = Tensor::zeros([1], &displacement.device());
        if let Some([moving, fixed]) = self.memberships(item) {
            overlap = soft_dice(self.warp(moving, displacement), fixed);
            total = total + overlap.clone().mul_scalar(self.dice_weight);
        }
        (Terms { total, similarity, smoothness, overlap }, moved)
    }

    /// Channels of the evaluated labels that moving and fixed both have; `None` without labels or
    /// weight.
    fn memberships(&self, item: &Item) -> Option<[Tensor<5>; 2]> {
        let moving = item.pair.moving.labels.as_ref().filter(|_| self.dice_weight > 0.0)?;
        let fixed = item.pair.fixed.labels.as_ref()?;
        let in_moving = moving.ids();
        let wanted = |id: &i32| {
            let evaluated = self.evaluated_labels.as_ref().is_none_or(|ids| ids.contains(id));
            evaluated && in_moving.contains(id)
        };
        let ids: Vec<i32> = fixed.ids().into_iter().filter(wanted).collect();
        let device = item.moving.device();
        (!ids.is_empty()).then(|| [moving, fixed].map(|map| memberships(map, &ids, &device)))
    }
}

impl Registration {
    pub fn new(network: TransMorph, objective: Objective) -> Self {
        Self { network, objective }
    }

    pub fn objective(&self) -> &Objective {
        &self.objective
    }
}

impl TrainStep for Registration {
    type Input = Item;
    type Output = Scores;

    fn step(&self, item: Item) -> TrainOutput<Scores> {
        let started = Instant::now();
        let displacement = self.network.forward(item.moving.clone(), item.fixed.clone());
        let (terms, _) = self.objective.terms(&item, displacement);
        let gradients = terms.total.backward();
        TrainOutput::new(self, gradients, Scores::of_terms(started, terms.read()))
    }
}

impl InferenceStep for Registration {
    type Input = Item;
    type Output = Scores;

    fn step(&self, item: Item) -> Scores {
        let started = Instant::now();
        let displacement = self.network.forward(item.moving.clone(), item.fixed.clone());
        let (terms, moved) = self.objective.terms(&item, displacement.clone());
        let mut scores = Scores::of_terms(started, terms.read());
        let field = values(displacement);
        // The field comes from the network on this very grid, so that only a defect of this
        // program could make the sizes differ.
        let report = jacobian(&field, item.pair.fixed.image.geometry.size)
            .expect("the displacement lies on the image's grid");
        scores.folds_percent = 100.0 * report.true_fold_fraction;
        let dice = self.objective.dice(&item.pair, &field).expect("labels lie on the same grid");
        scores.dice = dice.map_or(f64::NAN, |dice| dice.mean());
        if let Some(path) = &item.picture {
            let drawn = pictures::slices::draw(path, &item.pair, &values(moved), &field);
            if let Err(error) = drawn {
                eprintln!("warning: {error}");
            }
        }
        scores
    }
}

impl Terms {
    /// Total, similarity, smoothness and overlap as numbers; waits for the device.
    fn read(self) -> [f64; 4] {
        let terms = [self.total, self.similarity, self.smoothness, self.overlap];
        terms.map(|term| term.into_scalar::<f64>())
    }
}

/// The values of a tensor of f32.
fn values(tensor: Tensor<5>) -> Vec<f32> {
    tensor.try_into_vec_as::<f32>().expect("the device hands back its results")
}

/// The prediction for one pair, on the host.
pub struct Prediction {
    /// `[3, D, H, W]`, components (x, y, z), voxels.
    pub displacement: Vec<f32>,
    /// The moving image seen through it, `[D, H, W]`.
    pub moved: Vec<f32>,
    /// Seconds that the network and the warp took.
    pub seconds: f64,
}

/// Registers one pair.
///
/// # Errors
/// A device that cannot hand back its result.
pub fn predict(model: &Registration, moving: Tensor<5>, fixed: Tensor<5>) -> Result<Prediction> {
    let started = Instant::now();
    let displacement = model.network.forward(moving.clone(), fixed);
    let moved = model.objective.warp(moving, displacement.clone());
    let read = |tensor: Tensor<5>| {
        let failed = |reason| Error::device("reading back a prediction", reason);
        tensor.try_into_vec_as::<f32>().map_err(failed)
    };
    let (moved, displacement) = (read(moved)?, read(displacement)?);
    Ok(Prediction { displacement, moved, seconds: started.elapsed().as_secs_f64() })
}
