//! `ffdp.predict`: a trained network registers two images.

use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::Device;
use ffdp_burn::transform::{Composite, Displacement, Step};
use ffdp_cli::{PredictInputs, Prediction, PredictionMeasures};
use ffdp_image::image::Volume;
use ffdp_image::metrics::Overlap;
use ffdp_train::RunFolder;
use ffdp_train::predict::Predictor;
use ffdp_train::settings::parse_size;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::errors::{Refusal, Result};
use crate::flags::{PredictFlags, Read, read};
use crate::image_argument::ImageArgument;
use crate::observer::Watch;
use crate::registration::{Found, Registration};

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
    let inputs = PredictInputs {
        fixed_labels: labels(fixed_labels, "fixed_labels", &fixed)?,
        moving_labels: labels(moving_labels, "moving_labels", &moving)?,
        fixed,
        moving,
    };
    let mut watch = Watch::new(progress)?;
    let predicted = py.detach(|| {
        let device = flags.computing.device.open()?;
        let predictor = loaded(model, flags, &device)?;
        Ok::<_, Refusal>(predicted(&inputs, &predictor, flags.refine, &device, &mut watch)?)
    });
    watch.check()?;
    let (found, measures) = predicted?;
    let assessment = &measures.result.assessment;
    Registration::new(py, found, assessment, &[], &measures, None::<&()>)
}

fn loaded(model: PathBuf, flags: &PredictFlags, device: &Device) -> Result<Predictor> {
    let mut predictor = Predictor::load(&RunFolder::new(&model), flags.checkpoint, device)?;
    if let Some(size) = &flags.size {
        predictor = predictor.with_size(parse_size(size)?);
    }
    predictor.align = flags.align.unwrap_or(predictor.align);
    Ok(predictor)
}

/// What is known about a prediction, as `metrics.json` holds it.
#[derive(Serialize)]
struct Measures {
    #[serde(flatten)]
    result: PredictionMeasures,
    /// Of each label, as the images were placed and with the result.
    dice: Option<Overlap>,
    seconds: f64,
}

fn predicted(
    inputs: &PredictInputs,
    predictor: &Predictor,
    iterations: Option<usize>,
    device: &Device,
    watch: &mut Watch,
) -> ffdp_image::Result<(Found, Measures)> {
    let clock = Instant::now();
    let found = Prediction::of(predictor, inputs, iterations, device, watch)?;
    let dice = found.overlap(inputs)?;
    let Prediction { warped, labels: [_, warped_labels], values, measures: result, .. } = found;
    let whole = Displacement::from_vec(values, warped.geometry.clone(), &Device::flex())?;
    let transform = Composite::new(vec![Step::Displacement(whole)]);
    let seconds = clock.elapsed().as_secs_f64();
    let found = Found { warped, warped_labels, transform, inverse: None };
    Ok((found, Measures { result, dice, seconds }))
}
