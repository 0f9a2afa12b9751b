//! A geodesic through a series of shapes: one deformation that passes all of them at their times.

use burn::tensor::Tensor;
use ffdp_image::{Error, Result};

use super::flow::Flow;
use super::matching::{Setting, Terms};
use super::minimise::Observer;
use super::settings::LddmmSettings;
use crate::shape::Shape;
use crate::tensors::{TensorOptions, to_points};

/// What a regression found.
#[derive(Clone, Debug)]
pub struct Regression {
    /// The deformation from the baseline; its end is that of the last observation.
    pub flow: Flow,
    /// The baseline at the time of every observation.
    pub shapes: Vec<Shape>,
    /// The cost before every iteration and at the end.
    pub costs: Vec<f64>,
}

/// The geodesic of `baseline`, at time 0, that passes observed shapes best; the times are positive, in any unit. An
/// observation counts at the nearest step.
///
/// # Errors
/// [`Error::Invalid`] for no observations and times that are not positive; else as
/// [`match_shapes`](super::match_shapes).
pub fn regression(
    baseline: &Shape,
    observations: &[(f64, Shape)],
    settings: &LddmmSettings,
    place: TensorOptions,
    observe: Observer,
) -> Result<Regression> {
    settings.validate()?;
    settings.without_start()?;
    let times: Vec<f64> = observations.iter().map(|(time, _)| *time).collect();
    if times.is_empty() || !times.iter().all(|t| *t > 0.0 && t.is_finite()) {
        let fix = "count time from the baseline, which is no observation";
        return Err(Error::invalid("times of observations must be positive", times, fix));
    }
    let last = times.iter().copied().fold(0.0, f64::max);
    let step_of = |time: f64| ((time / last * settings.steps as f64).round() as usize).max(1);
    let setting = Setting::new(baseline, settings, place);
    let compare = |(_, shape): &(f64, Shape)| settings.attachment.between(baseline, shape, place);
    let comparisons: Vec<_> = observations.iter().map(compare).collect::<Result<_>>()?;
    let shapes = observations.iter().map(|(_, shape)| shape);
    let terms = Terms::new(&comparisons, &setting.x, shapes, settings)?;
    let cost = |p: Tensor<2>| {
        let path = setting.path([setting.q.clone(), p.clone()], settings);
        let places = setting.places(&path);
        let seen = times.iter().map(|time| places[step_of(*time)].clone());
        terms.of(seen) + setting.energy(&p, settings) / terms.diameter2
    };
    let start = setting.momenta(None, 1)?;
    let (p, costs) = setting.search(&cost, settings).run(start, observe)?;
    let path = setting.path([setting.q.clone(), p.clone()], settings);
    let places = setting.places(&path);
    let shape = |time: &f64| baseline.with_points(to_points(places[step_of(*time)].clone())?);
    let shapes = times.iter().map(shape).collect::<Result<_>>()?;
    let flow = Flow::new(settings, to_points(setting.q.clone())?, to_points(p)?);
    Ok(Regression { flow, shapes, costs })
}
