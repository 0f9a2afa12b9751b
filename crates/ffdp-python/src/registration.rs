//! What a registration or a prediction gives back.

use ffdp_burn::transform::Composite;
use ffdp_image::image::{LabelMap, Volume};
use ffdp_register::report::StageReport;
use ffdp_register::verdict::Assessment;
use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::Result;
use crate::image::Image;
use crate::json::to_python;
use crate::transform::Transform;

/// The shrink factor of a level, and the loss before each of its iterations, with the stage's name before them.
type Losses = (&'static str, f64, Vec<f64>);

/// What a registration has found, and what it is worth.
#[pyclass(frozen, get_all, module = "ffdp")]
pub struct Registration {
    /// The moving image on the grid of the fixed one, in its own intensities.
    warped: Py<Image>,
    /// The moving labels there; `None` without them.
    warped_labels: Option<Py<Image>>,
    /// From points of the fixed to points of the moving image.
    transform: Py<Transform>,
    /// From points of the moving to points of the fixed image; `None` where it was not asked for.
    inverse: Option<Py<Transform>>,
    /// `aligned`, `doubtful` or `failed`.
    verdict: Py<PyAny>,
    /// What speaks against the result, the worst first.
    reasons: Vec<String>,
    /// Stage, shrink factor and losses of each level, in the order of the run.
    losses: Vec<Losses>,
    /// All measures, as `metrics.json` has them.
    metrics: Py<PyAny>,
    /// All settings; `settings=` with them repeats the run. `None` of a prediction.
    settings: Option<Py<PyAny>>,
}

/// The same in Rust.
pub struct Found {
    pub warped: Volume,
    pub warped_labels: Option<LabelMap>,
    pub transform: Composite,
    pub inverse: Option<Composite>,
}

impl Registration {
    /// Hands over a result, with measures that serialise.
    pub fn new(
        py: Python<'_>,
        found: Found,
        assessment: &Assessment,
        stages: &[StageReport],
        metrics: &impl Serialize,
        settings: Option<&impl Serialize>,
    ) -> Result<Self> {
        let Found { warped, warped_labels, transform, inverse } = found;
        let of_map = |map| Py::new(py, Transform { map });
        let labels = warped_labels.map(|labels| Image::of_labels(py, labels)).transpose()?;
        let losses = stages.iter().flat_map(|stage| {
            stage.levels.iter().map(|level| (stage.transform, level.shrink, level.losses.clone()))
        });
        Ok(Self {
            warped: Py::new(py, Image::of_volume(py, warped)?)?,
            warped_labels: labels.map(|labels| Py::new(py, labels)).transpose()?,
            transform: of_map(transform)?,
            inverse: inverse.map(of_map).transpose()?,
            verdict: to_python(py, &assessment.verdict)?.unbind(),
            reasons: assessment.reasons.clone(),
            losses: losses.collect(),
            metrics: to_python(py, metrics)?.unbind(),
            settings: settings.map(|of| to_python(py, of)).transpose()?.map(Bound::unbind),
        })
    }
}

#[pymethods]
impl Registration {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let verdict = self.verdict.bind(py).str()?;
        let reasons: String = self.reasons.iter().map(|reason| format!(": {reason}")).collect();
        Ok(format!("ffdp.Registration({verdict}{reasons})"))
    }
}
