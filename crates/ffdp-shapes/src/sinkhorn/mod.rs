//! Optimal transport with entropy: Sinkhorn divergences in the log domain, with potentials and plans.
//!
//! ```text
//! OT(a, b) = min over plans  <plan, C> + eps KL(plan | a b^T)  [+ rho KL of both marginals]
//! S(a, b)  = OT(a, b) - OT(a, a) / 2 - OT(b, b) / 2                       C(x, y) = |x - y|^p / p
//! f_i <- - d eps log sum_j b_j exp((g_j - C_ij) / eps)                    d = 1 / (1 + eps / rho)
//! ```
//! `eps = blur^p`, `rho = reach^p`. `eps` falls from the diameter's by `scaling^p` a step, potentials are updated at
//! once and averaged; a last step without the average gives potentials whose gradients are those of the divergence
//! (envelope theorem): none of the steps before is on the tape. Read `descent.rs` (updates), then `clusters.rs` (several
//! scales). Sources: Cuturi 2013; Schmitzer 2019; Feydy et al. 2019; Sejourne et al. 2019 (the unbalanced case); Feydy
//! 2020, section 3.3 (several scales).

mod clusters;
mod descent;
mod plan;
mod settings;
#[cfg(test)]
mod tests;

use burn::tensor::Tensor;
use ffdp_image::{Error, Result};

use crate::tensors::{column, number};
use clusters::Clustering;
use descent::{Clouds, Level, levels};
pub use settings::{Multiscale, SinkhornSettings, TransportCost};

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
        let detach = |t: &Tensor<2>| t.clone().detach().set_require_grad(false);
        Self { points: detach(&self.points), weights: detach(&self.weights) }
    }
}

/// What transport costs, and how the mass goes.
#[derive(Clone, Debug)]
pub struct Transport {
    /// The divergence, `[1]`, differentiable in points and weights.
    pub value: Tensor<1>,
    /// The dual potentials `f` of the first, `g` of the second measure, `[N, 1]` and `[M, 1]`.
    pub potentials: [Tensor<2>; 2],
    /// Products with a matrix of all pairs that it took; those of clusters count for their part.
    pub products: f64,
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

/// As [`sinkhorn`], without a look at the masses.
pub(crate) fn sinkhorn_divergence(
    a: &Measure,
    b: &Measure,
    settings: &SinkhornSettings,
) -> Transport {
    let detached = [a.detached(), b.detached()];
    let clusters = settings.multiscale.as_ref().and_then(|multiscale| {
        let [points, weights] = parts(&detached);
        Clustering::new(points, weights, multiscale, settings.cost)
    });
    let Some(clusters) = clusters else {
        return descend([a, b], &detached, settings, None);
    };
    let sorted = |k: usize, measure: &Measure| Measure {
        points: clusters.sorted(k, measure.points.clone()),
        weights: clusters.sorted(k, measure.weights.clone()),
    };
    let [a, b] = [sorted(0, a), sorted(1, b)];
    let detached = [a.detached(), b.detached()];
    let transport = descend([&a, &b], &detached, settings, Some(&clusters));
    let [f, g] = transport.potentials;
    Transport { potentials: [clusters.unsorted(0, f), clusters.unsorted(1, g)], ..transport }
}

/// Points and weights.
fn parts(measures: &[Measure; 2]) -> [[&Tensor<2>; 2]; 2] {
    [measures.each_ref().map(|m| &m.points), measures.each_ref().map(|m| &m.weights)]
}

/// Potentials from the diameter down to the blur, and the value. With clusters, measures are sorted by them.
fn descend(
    [a, b]: [&Measure; 2],
    detached: &[Measure; 2],
    settings: &SinkhornSettings,
    clusters: Option<&Clustering>,
) -> Transport {
    let [points, weights] = parts(detached).map(|pair| pair.map(Clone::clone));
    let fine = Clouds::new(settings, points, weights);
    let levels = levels(fine.points(), settings);
    let last = *levels.last().expect("ends with the blur");
    let (mut potentials, mut ranges, mut products) = (Vec::new(), Vec::new(), 0.0);
    let mut descent = &levels[..];
    if let Some(clusters) = clusters {
        let smallest = clusters.side.powf(settings.cost.p());
        let blurred = levels.iter().take_while(|level| level.eps >= smallest).count();
        let (above, below) = levels.split_at(blurred.min(levels.len() - settings.at_blur));
        descent = below;
        let place = (&detached[0].points.device(), detached[0].points.dtype());
        let [[x, a], [y, b]] = [0, 1].map(|k| clusters.centres(k, place));
        let coarse = Clouds::new(settings, [x, y], [a, b]);
        for level in above {
            products += coarse.work(coarse.points(), &fine, &[]);
            potentials = coarse.step(potentials, *level, &[]);
        }
        if let Some(level) = above.last() {
            products += coarse.work(fine.points(), &fine, &[]);
            potentials = coarse.update(&potentials, *level, fine.points(), &[]);
        }
    }
    let narrowed = |potentials: &[Tensor<2>], level, ranges: Vec<_>| match clusters {
        Some(clusters) => clusters.ranges(potentials, level, &ranges).unwrap_or(ranges),
        None => ranges,
    };
    for level in descent {
        ranges = narrowed(&potentials, *level, ranges);
        products += fine.work(fine.points(), &fine, &ranges);
        potentials = fine.step(potentials, *level, &ranges);
    }
    ranges = narrowed(&potentials, last, ranges);
    products += fine.work(fine.points(), &fine, &ranges);
    let on_tape = fine.update(&potentials, last, [&a.points, &b.points], &ranges);
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
        let detached = difference.clone().detach();
        let weighted = detached.clone() * factor + (difference - detached) * slope;
        (weighted * measure.weights.clone()).sum()
    };
    part(0, a) + part(1, b)
}
