//! What a trained network predicts of two images, refined where that is asked for, and what it is worth.

use std::time::Instant;

use burn::tensor::Device;
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::Composite;
use ffdp_image::Result;
use ffdp_image::image::{LabelMap, Volume};
use ffdp_image::metrics::{Compared, Overlap, SimilarityMeasures, dice, jacobian};
use ffdp_register::Observer;
use ffdp_register::verdict::{Assessment, Evidence};
use ffdp_train::predict::{Predictor, Refinement, refine};
use rayon::prelude::*;
use serde::Serialize;

use super::folds::Folds;

/// Two images that a network registers, with labels on their grids.
pub struct PredictInputs {
    /// The image that stays.
    pub fixed: Volume,
    /// The one that is deformed.
    pub moving: Volume,
    /// Labels on the fixed grid.
    pub fixed_labels: Option<LabelMap>,
    /// Labels on the moving grid.
    pub moving_labels: Option<LabelMap>,
}

/// The result, in host memory.
pub struct Prediction {
    /// The moving image on the fixed grid.
    pub warped: Volume,
    /// The moving labels there as they were placed, and with the result.
    pub labels: [Option<LabelMap>; 2],
    /// The whole map, `[3, D, H, W]` in voxels of the fixed grid.
    pub values: Vec<f32>,
    /// What it is worth.
    pub measures: PredictionMeasures,
    /// What the prediction took, and the refinement.
    pub seconds: Vec<(&'static str, f64)>,
}

/// The measures of a prediction.
#[derive(Serialize)]
pub struct PredictionMeasures {
    /// The epoch whose weights were used.
    epoch: usize,
    /// The images as they were placed, through the prediction and, where it was asked for, through the refined map.
    pub phases: Vec<Phase>,
    /// Of the whole map.
    pub folds: Folds,
    /// What the result is worth, and what speaks against it.
    #[serde(flatten)]
    pub assessment: Assessment,
}

/// The images through one map.
#[derive(Serialize)]
pub struct Phase {
    pub name: &'static str,
    #[serde(flatten)]
    pub similarity: SimilarityMeasures,
    /// Mean over the labels of both images; lost labels count 0.
    pub dice: Option<f64>,
}

impl Prediction {
    /// Predicts, and refines by at most so many iterations.
    ///
    /// # Errors
    /// Those of the network, of the registration and of a device.
    pub fn of(
        predictor: &Predictor,
        inputs: &PredictInputs,
        iterations: Option<usize>,
        device: &Device,
        observer: &mut dyn Observer,
    ) -> Result<Self> {
        let (fixed, moving) = (&inputs.fixed, &inputs.moving);
        let clock = Instant::now();
        let placed = predictor.placement(fixed, moving);
        let predicted = predictor.predict(fixed, moving)?;
        let mut whole = predicted.to_displacement(&fixed.geometry, device);
        let mut seconds = vec![("predict", clock.elapsed().as_secs_f64())];
        let (before, _, labels_before) = inputs.phase("before", &placed.into(), device)?;
        let (after, mut warped, mut labels) = inputs.phase("predicted", &predicted, device)?;
        let mut phases = vec![before, after];
        if let Some(iterations) = iterations {
            let clock = Instant::now();
            // The field alone, on the fixed grid: the engine keeps the placement apart.
            let field = Composite::new(predicted.steps()[..1].to_vec());
            let displacement = field.to_displacement(&fixed.geometry, device);
            let from = Refinement { displacement, placed, iterations };
            let refined = refine([fixed, moving], from, &predictor.settings, device, observer)?;
            seconds.push(("refine", clock.elapsed().as_secs_f64()));
            let map = refined.transform()?;
            let phase;
            (phase, warped, labels) = inputs.phase("refined", &map, device)?;
            phases.push(phase);
            whole = map.to_displacement(&fixed.geometry, device);
        }
        let values = whole.to_vec()?;
        // The placement is part of the map.
        let folds = Folds::new(&jacobian(&values, fixed.geometry.size)?, 1.0);
        let measures = PredictionMeasures::of(predictor.epoch, phases, folds);
        Ok(Self { warped, labels: [labels_before, labels], values, measures, seconds })
    }

    /// How each label overlaps, where both images have some.
    ///
    /// # Errors
    /// Those of [`Overlap::of`].
    pub fn overlap(&self, inputs: &PredictInputs) -> Result<Option<Overlap>> {
        match (&inputs.fixed_labels, &inputs.moving_labels, &self.labels) {
            (Some(fixed), Some(moving), [Some(before), Some(after)]) => {
                Overlap::of(fixed, moving, [before, after], None).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl PredictionMeasures {
    fn of(epoch: usize, phases: Vec<Phase>, folds: Folds) -> Self {
        let ends = [&phases[0], &phases[phases.len() - 1]];
        let [before, after] = ends.map(|phase| phase.dice);
        let evidence = Evidence {
            similarity: Some(ends.map(|phase| phase.similarity.local_ncc_foreground)),
            folds_percent: Some(folds.percent),
            dice: before.zip(after).map(|(before, after)| [before, after]),
            ..Evidence::default()
        };
        let assessment = evidence.assess();
        Self { epoch, phases, folds, assessment }
    }
}

impl PredictInputs {
    /// Warps the moving image and labels, and compares them with the fixed ones.
    fn phase(
        &self,
        name: &'static str,
        map: &Composite,
        device: &Device,
    ) -> Result<(Phase, Volume, Option<LabelMap>)> {
        let map = map.on_grid(&self.fixed.geometry, device);
        let warped = map.warp(&self.moving, Interpolation::Linear)?;
        let moving_labels = self.moving_labels.as_ref();
        let labels = moving_labels.map(|labels| map.warp_labels(labels, Interpolation::Nearest));
        let labels = labels.transpose()?;
        let dice = match (&self.fixed_labels, moving_labels, &labels) {
            (Some(fixed), Some(moving), Some(moved)) => {
                Some(dice(&fixed.data, &moved.data)?.counting_lost(&moving.ids()).mean())
            }
            _ => None,
        };
        let ones = vec![1.0; self.moving.data.len()];
        let ones = Volume::new(ones, self.moving.geometry.clone())?;
        let inside = shows_all(&map.warp(&ones, Interpolation::Linear)?);
        let compared = Compared { windows: inside.clone(), inside };
        let similarity = SimilarityMeasures::of(&self.fixed, &warped, &compared)?;
        Ok((Phase { name, similarity, dice }, warped, labels))
    }
}

/// Where ones on the moving grid, as a map shows them, are whole.
pub fn shows_all(shown: &Volume) -> Vec<bool> {
    /// Sums of interpolation weights are rounded.
    const INSIDE: f32 = 1.0 - 1e-4;
    shown.data.par_iter().map(|&one| one >= INSIDE).collect()
}
