//! The mean shape of a cohort: a template, and a geodesic from it to every member.
//!
//! ```text
//! cost = 1/K sum_k [H(q, p_k) / D^2 + fidelity A(template at t = 1 along p_k, member k) / A(start)]
//! template = start + k(start, q) s
//! ```
//! `A(start)` is the mean of what the start differs from the members by, `D` the largest diameter.
//! The template moves by a smooth field `s` of the control points, not point by point: its triangles stay in order.

use burn::tensor::Tensor;
use ffdp_image::{Error, Result};

use super::flow::Flow;
use super::hamiltonian::{Hamiltonian, Metric};
use super::matching::{Setting, Terms};
use super::minimise::Observer;
use super::settings::LddmmSettings;
use crate::shape::Shape;
use crate::tensors::{TensorOptions, to_points};

/// What was found of a cohort.
#[derive(Clone, Debug)]
pub struct Atlas {
    /// The mean shape.
    pub template: Shape,
    /// The deformation of the template onto every member.
    pub flows: Vec<Flow>,
    /// The template at the end of each.
    pub shapes: Vec<Shape>,
    /// The cost before every iteration and at the end.
    pub costs: Vec<f64>,
}

/// The mean shape of a cohort; `start` gives it its points and cells.
///
/// # Errors
/// [`Error::Invalid`] for fewer than two members; else as [`match_shapes`](super::match_shapes).
pub fn atlas(
    start: &Shape,
    members: &[Shape],
    settings: &LddmmSettings,
    place: TensorOptions,
    observe: Observer,
) -> Result<Atlas> {
    settings.validate()?;
    settings.without_start()?;
    if members.len() < 2 {
        let fix = "match a single shape by register";
        return Err(Error::invalid("an atlas needs two shapes or more", members.len(), fix));
    }
    let setting = Setting::new(start, settings, place);
    let compare = |member: &Shape| settings.attachment.between(start, member, place);
    let comparisons: Vec<_> = members.iter().map(compare).collect::<Result<_>>()?;
    let terms = Terms::new(&comparisons, &setting.x, members, settings)?;
    // The template's own field is that of the classical kernel.
    let smooth = Hamiltonian { metric: Metric::Classical, ..settings.hamiltonian() };
    let count = setting.q.dims()[0];
    let template = |s: &Tensor<2>| {
        let field = smooth.field(&setting.q, s);
        let moved = |x: &Tensor<2>| x.clone() + field.at(x.clone());
        [moved(&setting.q), moved(&setting.x)]
    };
    let carried = |[q, x]: &[Tensor<2>; 2], p: &Tensor<2>| {
        setting.path([q.clone(), p.clone()], settings).carry_to_end(x.clone())
    };
    let cost = |all: Tensor<2>| {
        let mut blocks = all.split(count, 0).into_iter();
        let at = template(&blocks.next().expect("the template's field comes first"));
        let momenta: Vec<_> = blocks.collect();
        let energies = momenta.iter().map(|p| settings.hamiltonian().energy(&at[0], p));
        let energy = energies.reduce(Tensor::add).expect("two members at least");
        let ends = momenta.iter().map(|p| carried(&at, p));
        terms.of(ends) + energy / (terms.diameter2 * members.len() as f64)
    };
    let begin = setting.momenta(None, 1 + members.len())?;
    let (all, costs) = setting.search(&cost, settings).run(begin, observe)?;
    let mut blocks = all.split(count, 0).into_iter();
    let at = template(&blocks.next().expect("the template's field comes first"));
    let (mut flows, mut shapes) = (Vec::new(), Vec::new());
    for p in blocks {
        shapes.push(start.with_points(to_points(carried(&at, &p))?)?);
        flows.push(Flow::new(settings, to_points(at[0].clone())?, to_points(p)?));
    }
    let template = start.with_points(to_points(at[1].clone())?)?;
    Ok(Atlas { template, flows, shapes, costs })
}
