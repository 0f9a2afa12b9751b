//! What is trained: a network with its objective, as Burn's `TrainStep` and `InferenceStep`.
//!
//! Burn's `Learner` fits: a step may compute what it likes as long as it returns gradients, and
//! each loss term is a metric of its own. Only the data loader and the metric log are ours (see
//! `data/loader.rs` and `journal.rs`), because a resumed run must repeat an uninterrupted one.

use std::time::Instant;

use burn::module::Module;
use burn::tensor::Tensor;
use burn::train::{InferenceStep, TrainOutput, TrainStep};
use ffdp_image::metrics::regularity;
use ffdp_image::{Error, Result};
use ffdp_nets::Network;

use crate::data::Item;
use crate::metrics::{Measured, Scores};
use crate::objective::{Objective, Predicted, Terms};

/// A network and what it minimises; the module that is trained and saved.
#[derive(Module, Debug)]
pub struct Registration {
    /// The network.
    pub network: Network,
    #[module(skip)]
    objective: Objective,
}

impl Registration {
    /// A network with its objective.
    pub fn new(network: Network, objective: Objective) -> Self {
        Self { network, objective }
    }

    /// What is minimised.
    pub fn objective(&self) -> &Objective {
        &self.objective
    }

    /// The terms of a pair on the tape.
    pub fn terms(&self, item: &Item) -> Terms {
        let predicted = self.predict(item.moving.image.clone(), item.fixed.image.clone());
        self.objective.terms(item, predicted).0
    }

    fn predict(&self, moving: Tensor<5>, fixed: Tensor<5>) -> Predicted {
        self.objective.predict(&self.network, moving, fixed)
    }
}

impl TrainStep for Registration {
    type Input = Item;
    type Output = Measured;

    fn step(&self, item: Item) -> TrainOutput<Measured> {
        let started = Instant::now();
        let terms = self.terms(&item);
        let device = item.moving.image.device();
        let gradients = terms.total.backward();
        let scores = Scores::of_terms(started, terms.read(), item.waited, &device);
        TrainOutput::new(self, gradients, Measured::now(scores))
    }
}

impl InferenceStep for Registration {
    type Input = Item;
    type Output = Measured;

    fn step(&self, item: Item) -> Measured {
        let started = Instant::now();
        let predicted = self.predict(item.moving.image.clone(), item.fixed.image.clone());
        let (terms, moved) = self.objective.terms(&item, predicted.clone());
        let scores = Scores::of_terms(started, terms.read(), item.waited, &moved.device());
        let moved = item.picture.is_some().then(|| values(moved));
        self.validated(item, scores, values(predicted.displacement), moved)
    }
}

impl Registration {
    /// Results of a validation: the terms at once, and later what is found on the host from the displacement
    /// `[3, D, H, W]` and, for a picture, the moved image.
    pub fn validated(
        &self,
        item: Item,
        scores: Scores,
        field: Vec<f32>,
        moved: Option<Vec<f32>>,
    ) -> Measured {
        let (objective, pair, picture) = (self.objective.clone(), item.pair, item.picture);
        Measured::later(scores, move |scores| {
            // The field comes from the network on this very grid, so that only a defect of this
            // program could make the sizes differ.
            let report = regularity(&field, pair.fixed.image.geometry.size)
                .expect("the displacement lies on the image's grid");
            scores.folds_percent = 100.0 * report.true_fold_fraction;
            scores.sd_log_jacobian = report.sd_log;
            let dice = objective.dice(&pair, &field).expect("labels lie on the same grid");
            scores.dice = dice.map_or(f64::NAN, |dice| dice.mean());
            #[cfg(feature = "report")]
            if let (Some(path), Some(moved)) = (picture, moved)
                && let Err(error) = crate::pictures::slices::draw(&path, &pair, &moved, &field)
            {
                crate::stderr::say(&format!("warning: {error}"));
            }
            #[cfg(not(feature = "report"))]
            drop((picture, moved));
        })
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
    let operations = &model.objective.operations;
    let displacement = operations.predict(&model.network, moving.clone(), fixed).displacement;
    let moved = operations.warp(moving, displacement.clone());
    let read = |tensor: Tensor<5>| {
        let failed = |reason| Error::device("reading back a prediction", reason);
        tensor.try_into_vec_as::<f32>().map_err(failed)
    };
    let (moved, displacement) = (read(moved)?, read(displacement)?);
    Ok(Prediction { displacement, moved, seconds: started.elapsed().as_secs_f64() })
}
