//! Optimal transport with entropy: Sinkhorn divergences in the log domain, with potentials and plans.
//!
//! ```text
//! OT(a, b) = min over plans  <plan, C> + eps KL(plan | a b^T)  [+ rho KL of both marginals]
//! S(a, b)  = OT(a, b) - OT(a, a) / 2 - OT(b, b) / 2                       C(x, y) = |x - y|^p / p
//! f_i <- - d eps log sum_j b_j exp((g_j - C_ij) / eps)                    d = 1 / (1 + eps / rho)
//! ```
//! `eps = blur^p`, `rho = reach^p`. `eps` falls from the diameter's by `scaling^p` a step, potentials are updated at
//! once and averaged; a last step without the average gives potentials whose gradients are those of the divergence
//! (envelope theorem): none of the steps before is on the tape. Sources: Cuturi 2013; Schmitzer 2019; Feydy et al.
//! 2019; Sejourne et al. 2019 (the unbalanced case).

mod plan;
#[cfg(test)]
mod tests;

use burn::tensor::Tensor;
use ffdp_image::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::formula::Formula;
use crate::tensors::{column, number};

/// The cost of moving a unit of mass by a distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransportCost {
    /// `r`: p = 1.
    Distance,
    /// `r^2 / 2`: p = 2.
    #[default]
    HalfSquare,
}

impl TransportCost {
    fn p(self) -> f64 {
        match self {
            Self::Distance => 1.0,
            Self::HalfSquare => 2.0,
        }
    }
}

/// How transport is computed. Lengths are in the unit of the points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SinkhornSettings {
    /// The cost.
    pub cost: TransportCost,
    /// Details below this length are blurred.
    pub blur: f64,
    /// Mass is rather destroyed than carried further; none keeps all mass (balanced transport).
    pub reach: Option<f64>,
    /// Ratio of two successive lengths on the way from the diameter down to the blur, between 0 and 1; larger is slower
    /// and more precise.
    pub scaling: f64,
    /// Updates at the blur itself, 1 at least. Potentials lag behind on the way down: more updates, or a larger scaling,
    /// bring the value and its gradient closer to those of converged potentials. The gradient is exact for those alone: in
    /// the tests it is wrong by up to 10 % with 1, 0.1 % with 10, 1e-8 with 200.
    pub at_blur: usize,
    /// Subtracts what the entropy adds: the divergence of a measure to itself is 0.
    pub debias: bool,
}

impl Default for SinkhornSettings {
    /// GeomLoss's values, for points in a box of size 1.
    fn default() -> Self {
        let cost = TransportCost::HalfSquare;
        Self { cost, blur: 0.05, reach: None, scaling: 0.5, at_blur: 1, debias: true }
    }
}

impl SinkhornSettings {
    /// Refuses what has no meaning.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a blur or reach that is not positive and a scaling outside 0..1.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str, value: f64, fix: &str| Err(Error::invalid(what, value, fix));
        match self {
            Self { blur, .. } if !(*blur > 0.0 && blur.is_finite()) => {
                refuse("the blur must be positive", *blur, "try a hundredth of the size")
            }
            Self { reach: Some(reach), .. } if !(*reach > 0.0 && reach.is_finite()) => {
                refuse("the reach must be positive", *reach, "leave it out to keep all mass")
            }
            Self { scaling, .. } if !(*scaling > 0.0 && *scaling < 1.0) => {
                refuse("the scaling must lie between 0 and 1", *scaling, "try 0.5, or 0.9")
            }
            Self { at_blur: 0, .. } => {
                Err(Error::invalid("updates at the blur must be positive", 0, "try 1, or 50"))
            }
            _ => Ok(()),
        }
    }
}

/// Weighted points.
#[derive(Clone, Debug)]
pub struct Measure {
    /// Positions, `[N, D]`.
    pub points: Tensor<2>,
    /// Masses, positive, `[N, 1]`.
    pub weights: Tensor<2>,
}

impl Measure {
    /// Points of equal mass, together 1.
    pub fn uniform(points: Tensor<2>) -> Self {
        let count = points.dims()[0];
        let weights = column(&vec![1.0 / count as f64; count], (&points.device(), points.dtype()));
        Self { points, weights }
    }

    fn detached(&self) -> Self {
        // Burn's `detach` keeps a leaf's wish for a gradient.
        let still = |t: &Tensor<2>| t.clone().detach().set_require_grad(false);
        Self { points: still(&self.points), weights: still(&self.weights) }
    }
}

/// What transport costs, and how the mass goes.
#[derive(Clone, Debug)]
pub struct Transport {
    /// The divergence, `[1]`, differentiable in points and weights.
    pub value: Tensor<1>,
    /// The dual potentials `f` of the first, `g` of the second measure, `[N, 1]` and `[M, 1]`.
    pub potentials: [Tensor<2>; 2],
    /// Products with a matrix of all pairs that it took.
    pub products: usize,
}

/// Masses may differ by so much of their sum: they are sums in f32.
const SAME_MASS: f64 = 1e-4;

/// The divergence of two measures, after a check that they can be transported.
///
/// # Errors
/// [`Error::Invalid`] for settings without meaning, masses that are not positive, and different masses in balanced
/// transport; [`Error::Device`] when they cannot be read.
pub fn sinkhorn(a: &Measure, b: &Measure, settings: &SinkhornSettings) -> Result<Transport> {
    settings.validate()?;
    let mut masses = [0.0; 2];
    for (mass, measure) in masses.iter_mut().zip([a, b]) {
        let weights = measure.weights.clone().detach();
        let least = number(weights.clone().min())?;
        // NaN is not positive either.
        if least.is_nan() || least <= 0.0 {
            let fix = "leave out points without mass";
            return Err(Error::invalid("masses must be positive", least, fix));
        }
        *mass = number(weights.sum())?;
    }
    if settings.reach.is_none() && (masses[0] - masses[1]).abs() > SAME_MASS * masses[0] {
        let fix = "divide each by its mass, or give a reach (unbalanced transport)";
        return Err(Error::invalid("balanced transport needs equal masses", masses, fix));
    }
    Ok(sinkhorn_divergence(a, b, settings))
}

/// One regularity `eps` and what marginals cost.
#[derive(Clone, Copy)]
struct Level {
    eps: f64,
    rho: Option<f64>,
}

impl Level {
    fn damping(self) -> f64 {
        self.rho.map_or(1.0, |rho| 1.0 / (1.0 + self.eps / rho))
    }
}

/// `h_j - C(x_i, y_j) / eps` of variables x (rows), y (columns), h (columns), 1 / eps (parameter).
fn exponent(cost: TransportCost, dim: usize) -> Formula {
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

/// `-d eps log sum_j exp(h_j - C_ij / eps)`.
fn soft_minimum(
    formula: &Formula,
    level: Level,
    x: &Tensor<2>,
    y: &Tensor<2>,
    h: Tensor<2>,
) -> Tensor<2> {
    let inverse = column(&[1.0 / level.eps], (&x.device(), x.dtype()));
    let tensors = [x.clone(), y.clone(), h, inverse];
    formula.log_sum_exp(&tensors) * (-level.damping() * level.eps)
}

/// As [`sinkhorn`], without a look at the masses.
pub(crate) fn sinkhorn_divergence(
    a: &Measure,
    b: &Measure,
    settings: &SinkhornSettings,
) -> Transport {
    let formula = exponent(settings.cost, a.points.dims()[1]);
    let still = [a.detached(), b.detached()];
    let logs = [0, 1].map(|i| still[i].weights.clone().log());
    let rho = settings.reach.map(|reach| reach.powf(settings.cost.p()));
    let levels: Vec<Level> = schedule(&still, settings).map(|eps| Level { eps, rho }).collect();
    let mut products = 0;
    // Who is seen by whom: f of a by b, g of b by a; with debiasing each by itself.
    let pairs: &[[usize; 2]] =
        if settings.debias { &[[0, 1], [1, 0], [0, 0], [1, 1]] } else { &[[0, 1], [1, 0]] };
    let mut potentials: Vec<Option<Tensor<2>>> = vec![None; pairs.len()];
    // The potential that `[row, column]` is computed from belongs to `[column, row]`.
    let partner = [1, 0, 2, 3];
    let mut update = |potentials: &[Option<Tensor<2>>], level: Level, rows: &[&Tensor<2>; 2]| {
        let new = pairs.iter().enumerate().map(|(k, [row, col])| {
            let mut h = logs[*col].clone();
            if let Some(potential) = &potentials[partner[k]] {
                h = h + potential.clone() / level.eps;
            }
            products += 1;
            soft_minimum(&formula, level, rows[*row], &still[*col].points, h)
        });
        new.collect::<Vec<_>>()
    };
    let rows = [&still[0].points, &still[1].points];
    for (step, level) in levels.iter().enumerate() {
        let new = update(&potentials, *level, &rows);
        for (old, new) in potentials.iter_mut().zip(new) {
            *old = Some(match old.take() {
                Some(old) if step > 0 => (old + new) * 0.5,
                _ => new,
            });
        }
    }
    let last = *levels.last().expect("ends with the blur");
    let on_tape = update(&potentials, last, &[&a.points, &b.points]);
    let value = value(&on_tape, [a, b], last);
    let [f, g] = [&on_tape[0], &on_tape[1]].map(|potential| potential.clone().detach());
    Transport { value, potentials: [f, g], products }
}

/// `<a, f - f_a> + <b, g - g_b>`, or what stands for it where mass may vanish.
fn value(potentials: &[Tensor<2>], [a, b]: [&Measure; 2], Level { eps, rho }: Level) -> Tensor<1> {
    let part = |k: usize, measure: &Measure| {
        let (f, own) = (potentials[k].clone(), potentials.get(k + 2).cloned());
        let Some(rho) = rho else {
            let f = own.map_or(f.clone(), |own| f - own);
            return (f * measure.weights.clone()).sum();
        };
        let gone = |f: Tensor<2>| (-f / rho).exp();
        let difference = match own {
            Some(own) => gone(own) - gone(f),
            None => -gone(f) + 1.0,
        };
        // Where potentials are optimal, the value has another factor than its slope.
        let [factor, slope] = [rho + eps / 2.0, rho + eps];
        let still = difference.clone().detach();
        let weighted = still.clone() * factor + (difference - still) * slope;
        (weighted * measure.weights.clone()).sum()
    };
    part(0, a) + part(1, b)
}

/// `eps` from the diameter of both measures together down to the blur.
fn schedule(measures: &[Measure; 2], settings: &SinkhornSettings) -> impl Iterator<Item = f64> {
    let p = settings.cost.p();
    let all = Tensor::cat(measures.iter().map(|m| m.points.clone()).collect(), 0);
    let extent = all.clone().max_dim(0) - all.min_dim(0);
    // A diameter that cannot be read leaves the blur alone.
    let diameter = number(extent.square().sum().sqrt()).unwrap_or(settings.blur);
    let steps = (settings.blur / diameter).ln() / settings.scaling.ln();
    let steps = if steps.is_finite() && steps > 0.0 { steps.ceil() as usize } else { 0 };
    let (blur, scaling) = (settings.blur, settings.scaling);
    let on_the_way = move |step: usize| (diameter * scaling.powi(step as i32)).max(blur).powf(p);
    // The first one twice: it has no average.
    std::iter::once(on_the_way(0))
        .chain((0..steps).map(on_the_way))
        .chain(std::iter::repeat_n(blur.powf(p), settings.at_blur))
}
