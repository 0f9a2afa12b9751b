//! Updates of potentials, and the lengths at which they are made.

use std::sync::Arc;

use burn::tensor::Tensor;

use super::settings::{SinkhornSettings, TransportCost};
use crate::formula::Formula;
use crate::ranges::Ranges;
use crate::tensors::{column, number};

/// Who sees whom, as `[row, column]`: f of a by b, g of b by a; with debiasing each by itself.
pub(super) const PAIRS: [[usize; 2]; 4] = [[0, 1], [1, 0], [0, 0], [1, 1]];

/// The potential that the one of `[row, column]` is computed from belongs to `[column, row]`.
pub(super) const PARTNER: [usize; 4] = [1, 0, 2, 3];

/// One regularity `eps` and what marginals cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub eps: f64,
    pub rho: Option<f64>,
}

impl Level {
    pub fn damping(self) -> f64 {
        self.rho.map_or(1.0, |rho| 1.0 / (1.0 + self.eps / rho))
    }
}

/// `eps` from the diameter of both clouds together down to the blur.
pub(super) fn levels(points: [&Tensor<2>; 2], settings: &SinkhornSettings) -> Vec<Level> {
    let p = settings.cost.p();
    let all = Tensor::cat(points.map(Clone::clone).into(), 0);
    let extent = all.clone().max_dim(0) - all.min_dim(0);
    // A diameter that cannot be read leaves the blur alone.
    let diameter = number(extent.square().sum().sqrt()).unwrap_or(settings.blur);
    let steps = (settings.blur / diameter).ln() / settings.scaling.ln();
    let steps = if steps.is_finite() && steps > 0.0 { steps.ceil() as usize } else { 0 };
    let (blur, scaling) = (settings.blur, settings.scaling);
    let on_the_way = move |step: usize| (diameter * scaling.powi(step as i32)).max(blur).powf(p);
    let rho = settings.reach.map(|reach| reach.powf(p));
    // The first one twice: it has no average.
    let eps = std::iter::once(on_the_way(0))
        .chain((0..steps).map(on_the_way))
        .chain(std::iter::repeat_n(blur.powf(p), settings.at_blur));
    eps.map(|eps| Level { eps, rho }).collect()
}

/// `h_j - C(x_i, y_j) / eps` of variables x (rows), y (columns), h (columns), 1 / eps (parameter).
pub(super) fn exponent(cost: TransportCost, dim: usize) -> Formula {
    Formula::new(|v| {
        let (x, y, h) = (v.rows(dim), v.columns(dim), v.columns(1));
        let inverse = v.parameters(1);
        let c = match cost {
            TransportCost::Distance => (&x - &y).norm(),
            TransportCost::HalfSquare => (&x - &y).norm2() * 0.5,
        };
        h.at(0) - c * inverse.at(0)
    })
}

/// Two clouds off the tape, as columns.
#[derive(Clone, Debug)]
pub(super) struct Clouds {
    formula: Formula,
    pairs: usize,
    points: [Tensor<2>; 2],
    logs: [Tensor<2>; 2],
}

impl Clouds {
    pub fn new(
        settings: &SinkhornSettings,
        points: [Tensor<2>; 2],
        weights: [Tensor<2>; 2],
    ) -> Self {
        let formula = exponent(settings.cost, points[0].dims()[1]);
        let pairs = if settings.debias { 4 } else { 2 };
        Self { formula, pairs, points, logs: weights.map(Tensor::log) }
    }

    pub fn points(&self) -> [&Tensor<2>; 2] {
        self.points.each_ref()
    }

    /// `f_i = -d eps log sum_j b_j exp((g_j - C_ij) / eps)` for all pairs of [`PAIRS`]. No potentials count as 0; no
    /// ranges keep all pairs of points.
    pub fn update(
        &self,
        potentials: &[Tensor<2>],
        level: Level,
        rows: [&Tensor<2>; 2],
        ranges: &[Arc<Ranges>],
    ) -> Vec<Tensor<2>> {
        let update = |(k, [row, col]): (usize, &[usize; 2])| {
            let (x, y) = (rows[*row], &self.points[*col]);
            let mut h = self.logs[*col].clone();
            if let Some(potential) = potentials.get(PARTNER[k]) {
                h = h + potential.clone() / level.eps;
            }
            let inverse = column(&[1.0 / level.eps], (&x.device(), x.dtype()));
            let tensors = [x.clone(), y.clone(), h, inverse];
            let logs = match ranges.get(k) {
                None => self.formula.log_sum_exp(&tensors),
                Some(ranges) => self.formula.log_sum_exp_in_ranges(&tensors, ranges),
            };
            logs * (-level.damping() * level.eps)
        };
        PAIRS[..self.pairs].iter().enumerate().map(update).collect()
    }

    /// [`Clouds::update`] at the points themselves, averaged with what was there.
    pub fn step(
        &self,
        potentials: Vec<Tensor<2>>,
        level: Level,
        ranges: &[Arc<Ranges>],
    ) -> Vec<Tensor<2>> {
        let new = self.update(&potentials, level, self.points(), ranges);
        if potentials.is_empty() {
            return new;
        }
        potentials.into_iter().zip(new).map(|(old, new)| (old + new) * 0.5).collect()
    }

    /// Products with the matrix of all pairs of `whole` that an update of `rows` costs.
    pub fn work(&self, rows: [&Tensor<2>; 2], whole: &Self, ranges: &[Arc<Ranges>]) -> f64 {
        let count = |t: &Tensor<2>| t.dims()[0] as f64;
        let part = |(k, [row, col]): (usize, &[usize; 2])| {
            let pairs = match ranges.get(k) {
                None => count(rows[*row]) * count(&self.points[*col]),
                Some(ranges) => ranges.pairs() as f64,
            };
            pairs / (count(&whole.points[*row]) * count(&whole.points[*col]))
        };
        PAIRS[..self.pairs].iter().enumerate().map(part).sum()
    }
}
