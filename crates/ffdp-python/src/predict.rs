//! `ffdp.predict`: a trained network registers two images.

use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::Device;
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::{Composite, Step};
use ffdp_cli::{Folds, shows_all};
use ffdp_image::Result as Found;
use ffdp_image::image::{LabelMap, Volume};
use ffdp_image::metrics::{Compared, SimilarityMeasures, dice, jacobian};
use ffdp_register::verdict::{Assessment, Evidence};
use ffdp_train::RunFolder;
use ffdp_train::predict::{Predictor, Refinement, refine};
use ffdp_train::settings::parse_size;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::errors::{Refusal, Result};
use crate::flags::{PredictFlags, Read, read};
use crate::image_argument::ImageArgument;
use crate::observer::Watch;
use crate::registration::{self, Registration};
use crate::transform::placed_on;

/// Registers two images with a trained network; see the stubs of the module.
#[pyfunction]
#[pyo3(signature = (
    model, fixed, moving, *, fixed_labels=None, moving_labels=None, progress=None, **settings
))]
pub fn predict<'py>(
    py: Python<'py>,
    model: PathBuf,
    fixed: &Bound<'py, PyAny>,
    moving: &Bound<'py, PyAny>,
    fixed_labels: Option<&Bound<'py, PyAny>>,
    moving_labels: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
    settings: Option<&Bound<'py, PyDict>>,
) -> Result<Registration> {
    let Read { flags, .. } = &read::<PredictFlags>(settings)?;
    let image = |object, name| ImageArgument::of(object, name)?.volume(py, name, flags.reading);
    let (fixed, moving) = (image(fixed, "fixed")?, image(moving, "moving")?);
    let labels = |object, name, image: &Volume| {
        let given = ImageArgument::optional(object, name)?;
        given.map(|labels| labels.labels_on(py, &image.geometry, name)).transpose()
    };
    let inputs = Inputs {
        fixed_labels: labels(fixed_labels, "fixed_labels", &fixed)?,
        moving_labels: labels(moving_labels, "moving_labels", &moving)?,
        fixed,
        moving,
    };
    let mut watch = Watch::new(progress)?;
    let predicted = py.detach(|| {
        let device = flags.computing.device.open()?;
        let predictor = loaded(model, flags, &device)?;
        Ok::<_, Refusal>(inputs.predicted(&predictor, flags.refine, &device, &mut watch)?)
    });
    watch.check()?;
    let (found, measures) = predicted?;
    let worth = (&measures.assessment, &[][..]);
    Registration::new(py, found, worth, &measures, None::<&()>)
}

fn loaded(model: PathBuf, flags: &PredictFlags, device: &Device) -> Result<Predictor> {
    let mut predictor = Predictor::load(&RunFolder::new(&model), flags.checkpoint, device)?;
    if let Some(size) = &flags.size {
        predictor = predictor.with_size(parse_size(size)?);
    }
    predictor.align = flags.align.unwrap_or(predictor.align);
    Ok(predictor)
}

struct Inputs {
    fixed: Volume,
    moving: Volume,
    fixed_labels: Option<LabelMap>,
    moving_labels: Option<LabelMap>,
}

/// What is known about a prediction, as `metrics.json` holds it.
#[derive(Serialize)]
struct Measures {
    epoch: usize,
    /// The images as they were placed, through the prediction and, where it was asked for, through the refined map.
    phases: Vec<Phase>,
    folds: Folds,
    #[serde(flatten)]
    assessment: Assessment,
    seconds: f64,
}

#[derive(Serialize)]
struct Phase {
    name: &'static str,
    #[serde(flatten)]
    similarity: SimilarityMeasures,
    /// Mean over the labels of both images; lost labels count 0.
    dice: Option<f64>,
}

impl Inputs {
    fn predicted(
        &self,
        predictor: &Predictor,
        iterations: Option<usize>,
        device: &Device,
        watch: &mut Watch,
    ) -> Found<(registration::Found, Measures)> {
        let clock = Instant::now();
        let (fixed, moving) = (&self.fixed, &self.moving);
        let placed = predictor.placement(fixed, moving);
        let mut map = predictor.predict(fixed, moving)?;
        let (mut phases, mut shown) = (Vec::new(), None);
        for (name, map) in [("before", &placed.into()), ("predicted", &map)] {
            let (phase, warped, labels) = self.phase(name, map, device)?;
            phases.push(phase);
            shown = Some((warped, labels));
        }
        if let Some(iterations) = iterations {
            // The field alone, on the fixed grid: the engine keeps the placement apart.
            let field = Composite::new(map.steps()[..1].to_vec());
            let displacement = field.to_displacement(&fixed.geometry, device);
            let from = Refinement { displacement, placed, iterations };
            map = refine([fixed, moving], from, &predictor.settings, device, watch)?.transform()?;
            let (phase, warped, labels) = self.phase("refined", &map, device)?;
            phases.push(phase);
            shown = Some((warped, labels));
        }
        let whole = map.to_displacement(&fixed.geometry, device);
        // The placement is part of the map.
        let folds = Folds::new(&jacobian(&whole.to_vec()?, fixed.geometry.size)?, 1.0);
        let (first, last) = (&phases[0], &phases[phases.len() - 1]);
        let local = |phase: &Phase| phase.similarity.local_ncc_foreground;
        let evidence = Evidence {
            similarity: Some([local(first), local(last)]),
            folds_percent: Some(folds.percent),
            dice: first.dice.zip(last.dice).map(|(before, after)| [before, after]),
            ..Evidence::default()
        };
        let assessment = evidence.assess();
        let (warped, warped_labels) = shown.expect("two phases at least");
        let transform =
            placed_on(&Composite::new(vec![Step::Displacement(whole)]), &Device::flex())?;
        let found = registration::Found { warped, warped_labels, transform, inverse: None };
        let seconds = clock.elapsed().as_secs_f64();
        Ok((found, Measures { epoch: predictor.epoch, phases, folds, assessment, seconds }))
    }

    /// Warps the moving image and labels, and compares them with the fixed ones.
    fn phase(
        &self,
        name: &'static str,
        map: &Composite,
        device: &Device,
    ) -> Found<(Phase, Volume, Option<LabelMap>)> {
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
