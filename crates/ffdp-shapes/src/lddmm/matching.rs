//! One shape onto another.

use burn::tensor::Tensor;
use ffdp_image::{Error, Result};

use super::flow::Flow;
use super::minimise::{MomentaSearch, Observer};
use super::path::Path;
use super::settings::LddmmSettings;
use crate::attachment::{Attachment, Comparison};
use crate::shape::{Position, Shape, ShapeTree};
use crate::tensors::{TensorOptions, number, to_points, to_tensor};

/// What a matching found.
#[derive(Clone, Debug)]
pub struct Match {
    /// The deformation.
    pub flow: Flow,
    /// The source at the end of it.
    pub shape: Shape,
    /// The cost before every iteration and at the end.
    pub costs: Vec<f64>,
    /// The attachment before and after the deformation, in its own unit; before it is after the linear start.
    pub attachment: [f64; 2],
    /// The energy `H` of the deformation in mm^2: half of its squared length.
    pub energy: f64,
}

/// Deforms `source` onto `target`, after the linear start of the settings ([`LddmmSettings::start_map`]), which is part
/// of the flow. `start` are momenta to go on from, one for every control point of the source after its linear start.
///
/// # Errors
/// Settings without meaning, shapes that cannot be compared, a device that fails; [`Error::Shape`] for momenta that are
/// not one for every control point.
pub fn match_shapes(
    [source, target]: [&Shape; 2],
    settings: &LddmmSettings,
    place: TensorOptions,
    start: Option<Vec<Position>>,
    observe: Observer,
) -> Result<Match> {
    settings.validate()?;
    let start_map = settings.start_map(source, target)?;
    let moved = start_map.map(|map| source.transformed(&map));
    let source = moved.as_ref().unwrap_or(source);
    // Landmarks correspond point for point.
    let side = match settings.attachment {
        Attachment::Landmarks => 0.0,
        _ => settings.coarsen_mm,
    };
    let (coarse, target) = (source.coarsened(side), &target.coarsened(side));
    let setting = Setting::new(&coarse, settings, place);
    let comparison = settings.attachment.between(&coarse, target, place)?;
    let comparisons = std::slice::from_ref(&comparison);
    let terms = Terms::new(comparisons, &setting.x, [target], settings)?;
    let momenta = setting.momenta(start, 1)?;
    let cost = |p: Tensor<2>| {
        let path = setting.path([setting.q.clone(), p.clone()], settings);
        terms.of([setting.end(&path)]) + setting.energy(&p, settings) / terms.diameter2
    };
    let (p, costs) = setting.search(&cost, settings).run(momenta, observe)?;
    let path = setting.path([setting.q.clone(), p.clone()], settings);
    let end = setting.end(&path);
    let attachment = [setting.x.clone(), end.clone()].map(|x| number(comparison.loss(x)));
    let [before, after] = attachment;
    let energy = number(setting.energy(&p, settings))?;
    let flow = Flow::new(settings, to_points(setting.q.clone())?, to_points(p)?);
    Ok(Match {
        energy,
        flow: match &start_map {
            Some(map) => flow.after(map)?,
            None => flow,
        },
        shape: source
            .with_points(to_points(path.carry_to_end(to_tensor(&source.points, place)))?)?,
        costs,
        attachment: [before?, after?],
    })
}

/// A shape with its control points.
pub(super) struct Setting {
    /// Control points.
    pub q: Tensor<2>,
    /// Points of the shape.
    pub x: Tensor<2>,
    /// Whether these are the same.
    all: bool,
}

impl Setting {
    pub fn new(source: &Shape, settings: &LddmmSettings, place: TensorOptions) -> Self {
        let control = control_points(source, settings.control_spacing_mm);
        let all = control.len() == source.points.len();
        Self { q: to_tensor(&control, place), x: to_tensor(&source.points, place), all }
    }

    /// Momenta to begin with, for so many geodesics.
    pub fn momenta(&self, start: Option<Vec<Position>>, blocks: usize) -> Result<Tensor<2>> {
        let place = (self.q.device(), self.q.dtype());
        let rows = self.q.dims()[0] * blocks;
        match start {
            None => Ok(Tensor::zeros([rows, 3], (&place.0, place.1))),
            Some(start) if start.len() == rows => Ok(to_tensor(&start, (&place.0, place.1))),
            Some(start) => {
                let (what, got) = ("momenta to go on from".into(), vec![start.len(), 3]);
                Err(Error::Shape { what, expected: vec![rows, 3], got })
            }
        }
    }

    pub fn path(&self, [q, p]: [Tensor<2>; 2], settings: &LddmmSettings) -> Path {
        Path::shoot(&settings.hamiltonian(), [q, p], settings.scheme, settings.steps, 1.0)
    }

    /// Where the shape's points end.
    pub fn end(&self, path: &Path) -> Tensor<2> {
        match self.all {
            true => path.end()[0].clone(),
            false => path.carry_to_end(self.x.clone()),
        }
    }

    /// Where the shape's points are at the beginning and after every step.
    pub fn places(&self, path: &Path) -> Vec<Tensor<2>> {
        match self.all {
            true => path.states.iter().map(|[q, _]| q.clone()).collect(),
            false => path.carry(self.x.clone()),
        }
    }

    pub fn energy(&self, p: &Tensor<2>, settings: &LddmmSettings) -> Tensor<1> {
        settings.hamiltonian().energy(&self.q, p)
    }

    pub fn search<'a>(
        &self,
        cost: &'a dyn Fn(Tensor<2>) -> Tensor<1>,
        settings: &'a LddmmSettings,
    ) -> MatchingSearch<'a> {
        MatchingSearch { cost, settings, q: self.q.clone() }
    }
}

/// A search that is about to be run.
pub(super) struct MatchingSearch<'a> {
    cost: &'a dyn Fn(Tensor<2>) -> Tensor<1>,
    settings: &'a LddmmSettings,
    q: Tensor<2>,
}

impl MatchingSearch<'_> {
    pub fn run(self, start: Tensor<2>, observe: Observer) -> Result<(Tensor<2>, Vec<f64>)> {
        let hamiltonian = self.settings.hamiltonian();
        let (iterations, tolerance) = (self.settings.iterations, self.settings.tolerance);
        let width_mm = self.settings.sigmas_mm[0];
        let (cost, q) = (self.cost, self.q);
        MomentaSearch { cost, hamiltonian: &hamiltonian, q, width_mm, iterations, tolerance }
            .run(start, observe)
    }
}

/// What is compared, without a unit: every attachment as a part of what their mean is before anything moves. A start
/// that is one of the targets has nothing to gain there, so its own attachment could not be the unit.
pub(super) struct Terms<'a> {
    comparisons: &'a [Comparison],
    factor: f64,
    /// Of the largest target, in mm^2.
    pub diameter2: f64,
}

impl<'a> Terms<'a> {
    /// `before`: where the shape's points are at t = 0.
    pub fn new<'t>(
        comparisons: &'a [Comparison],
        before: &Tensor<2>,
        targets: impl IntoIterator<Item = &'t Shape>,
        settings: &LddmmSettings,
    ) -> Result<Self> {
        let mut sum = 0.0;
        for comparison in comparisons {
            sum += number(comparison.loss(before.clone()))?;
        }
        // Equal shapes: nothing to gain, and nothing to divide by.
        let mean = if sum > 0.0 { sum / comparisons.len() as f64 } else { 1.0 };
        let diameter = targets.into_iter().map(Shape::diameter).fold(0.0, f64::max);
        let diameter2 = if diameter > 0.0 { diameter * diameter } else { 1.0 };
        Ok(Self { comparisons, factor: settings.fidelity / mean, diameter2 })
    }

    /// The mean over the targets, of each with the points that belong to it.
    pub fn of(&self, points: impl IntoIterator<Item = Tensor<2>>) -> Tensor<1> {
        let parts = self.comparisons.iter().zip(points).map(|(target, x)| target.loss(x));
        let sum = parts.reduce(Tensor::add).expect("one target at least");
        sum * (self.factor / self.comparisons.len() as f64)
    }
}

/// Points of a shape of which none is nearer to another than a distance, and none of the shape farther from all: the
/// first, then each that is far enough from those before. All for a distance of 0.
pub(super) fn control_points(shape: &Shape, spacing_mm: f64) -> Vec<Position> {
    if spacing_mm == 0.0 {
        return shape.points.clone();
    }
    let cloud = Shape { points: shape.points.clone(), ..Shape::default() };
    let tree = ShapeTree::new(&cloud);
    let mut covered = vec![false; cloud.points.len()];
    let mut control = Vec::new();
    for (index, &point) in cloud.points.iter().enumerate() {
        if covered[index] {
            continue;
        }
        control.push(point);
        tree.within_distance(point, spacing_mm, |other| covered[other] = true);
    }
    control
}
