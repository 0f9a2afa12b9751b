//! How unlike two shapes are, with a gradient to the points of the first: what a matching minimises.
//!
//! ```text
//! landmarks    sum_i |x_i - y_i|^2 / N                        points correspond one to one
//! currents     |mu_x - mu_y|^2,  <mu, nu> = sum_ij k(c_i - d_j) n_i . m_j                 oriented
//! varifolds    the same with     k(c_i - d_j) h(n_i, m_j) |n_i| |m_j|
//!              h = (cos)^2, or exp(2 cos) where orientation counts                       (h = 1 for clouds)
//! transport    the debiased Sinkhorn divergence of the cells' centres, weighted by their area or length
//! ```
//! `c` centres of cells · `n` their normals (directions), as long as the area (length) · `k` a sum of gaussians.
//! Sources: Vaillant and Glaunes 2005; Charon and Trouve 2013; Kaltenmark, Charlier and Charon 2017; Feydy 2019.
//! A cell is seen as one point: widths below the length of edges see noise.

mod cells;
#[cfg(test)]
mod tests;

use burn::tensor::Tensor;
use ffdp_image::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::kernel::{Directions, Kernel};
use crate::product::{directed_product, kernel_product};
use crate::shape::{Cells, Shape};
use crate::sinkhorn::{Measure, SinkhornSettings, sinkhorn_divergence};
use crate::tensors::{TensorOptions, to_tensor};
use cells::CellTensors;

/// How shapes are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Attachment {
    /// Point for point.
    Landmarks,
    /// Normals or directions through kernels; opposite ones cancel.
    Currents {
        /// Standard deviations of the gaussians that are added, in mm.
        sigmas_mm: Vec<f64>,
    },
    /// Positions and directions through kernels; nothing cancels.
    Varifolds {
        /// Standard deviations of the gaussians that are added, in mm.
        sigmas_mm: Vec<f64>,
        /// Whether inside and outside, to and fro, are distinguished.
        oriented: bool,
    },
    /// Optimal transport of area or length.
    Transport(SinkhornSettings),
}

/// Iterations of transport at its final blur: with one, the gradient misses the slope by some percent, and the search
/// for a deformation ends early.
const AT_BLUR: usize = 3;

/// How far directions may differ in an oriented varifold: `exp(2 cos)`.
const SPREAD: f64 = 0.5;

/// A comparison with one target.
#[derive(Clone, Debug)]
pub struct Comparison {
    attachment: Attachment,
    kernel: Option<Kernel>,
    source: CellTensors,
    target: Target,
}

#[derive(Clone, Debug)]
struct Target {
    points: Tensor<2>,
    parts: Parts,
    /// `<nu, nu>`; transport: a factor that gives both shapes the mass 1.
    own: Tensor<1>,
}

impl Attachment {
    /// Transport that sees what gaussians of these widths see: blurred at half of the narrowest.
    pub fn transport(sigmas_mm: &[f64]) -> Self {
        let blur = sigmas_mm.iter().copied().fold(f64::INFINITY, f64::min) / 2.0;
        Self::transport_blurred(blur)
    }

    /// Transport with a blur in mm, iterated there until a search for a deformation can trust its gradient.
    pub fn transport_blurred(blur: f64) -> Self {
        Self::Transport(SinkhornSettings { blur, at_blur: AT_BLUR, ..SinkhornSettings::default() })
    }

    /// The weight of the comparison relative to the energy, with which structures of brains of 1 mm come nearer to each
    /// other than 0.3 mm on average, and the space around them hardly folds. Landmarks are taken at their word.
    pub fn advised_fidelity(&self) -> f64 {
        match self {
            Self::Landmarks => 100.0,
            Self::Currents { .. } | Self::Transport(_) => 10.0,
            Self::Varifolds { .. } => 4.0,
        }
    }

    /// The comparison of shapes with the cells of `source` to `target`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes cannot be compared so: landmarks of different numbers, currents of clouds,
    /// curves with surfaces, widths that are not positive, cells without any area.
    pub fn between(
        &self,
        source: &Shape,
        target: &Shape,
        place: TensorOptions,
    ) -> Result<Comparison> {
        self.check(source, target)?;
        let kernel = match self {
            Self::Currents { sigmas_mm } | Self::Varifolds { sigmas_mm, .. } => {
                Some(Kernel::gaussians(sigmas_mm))
            }
            _ => None,
        };
        let cells = CellTensors::new(target, place);
        let points = to_tensor(&target.points, place);
        let (centres, directions) = (cells.centres(&points), cells.directions(&points));
        let measures = cells.measures(&points, directions.as_ref());
        let own = measures.clone().sum();
        let parts = Parts { centres, directions, measures };
        let target = Target { points, parts, own };
        let source = CellTensors::new(source, place);
        let mut comparison = Comparison { attachment: self.clone(), kernel, source, target };
        if comparison.kernel.is_some() {
            let own = comparison.product(&comparison.target.parts, &comparison.target.parts);
            comparison.target.own = own;
        }
        Ok(comparison)
    }

    /// Refuses shapes that cannot be compared so.
    ///
    /// # Errors
    /// As [`between`](Self::between).
    pub fn check(&self, source: &Shape, target: &Shape) -> Result<()> {
        let kind = |shape: &Shape| std::mem::discriminant(&shape.cells);
        let counts = [source, target].map(|shape| shape.points.len());
        match self {
            Self::Landmarks if counts[0] != counts[1] => {
                let fix = "compare by varifolds or transport, which need no correspondence";
                return Err(Error::invalid("landmarks must correspond one to one", counts, fix));
            }
            Self::Landmarks => return Ok(()),
            _ if kind(source) != kind(target) => {
                let fix = "compare clouds with clouds, curves with curves, surfaces with surfaces";
                return Err(Error::invalid("shapes must be of one kind", "two kinds", fix));
            }
            Self::Currents { .. } if matches!(source.cells, Cells::None) => {
                let fix = "compare clouds by landmarks, varifolds or transport";
                return Err(Error::invalid("currents need curves or surfaces", "a cloud", fix));
            }
            _ => {}
        }
        if let Self::Currents { sigmas_mm } | Self::Varifolds { sigmas_mm, .. } = self {
            let right =
                !sigmas_mm.is_empty() && sigmas_mm.iter().all(|s| *s > 0.0 && s.is_finite());
            if !right {
                let fix = "give at least one positive width in mm";
                return Err(Error::invalid("widths must be positive", sigmas_mm, fix));
            }
        }
        match [source, target].map(Shape::measure) {
            [a, b] if a > 0.0 && b > 0.0 => Ok(()),
            measures => {
                let fix = "repair the mesh";
                Err(Error::invalid("shapes must have area or length", measures, fix))
            }
        }
    }
}

/// What is compared of a shape: a row for each cell.
#[derive(Clone, Debug)]
struct Parts {
    centres: Tensor<2>,
    directions: Option<Tensor<2>>,
    measures: Tensor<2>,
}

impl Comparison {
    /// How unlike the shape is whose points `[N, 3]` are these: a number with a gradient, `[1]`.
    pub fn loss(&self, points: Tensor<2>) -> Tensor<1> {
        let (source, target) = (&self.source, &self.target);
        if self.attachment == Attachment::Landmarks {
            let count = points.dims()[0] as f64;
            return (points - target.points.clone()).square().sum() / count;
        }
        let centres = source.centres(&points);
        let directions = source.directions(&points);
        let measures = source.measures(&points, directions.as_ref());
        if let Attachment::Transport(settings) = &self.attachment {
            let mass = measures.clone().sum().unsqueeze::<2>();
            let (a, b) = (
                Measure { points: centres, weights: measures / mass },
                Measure {
                    points: target.parts.centres.clone(),
                    weights: target.parts.measures.clone() / target.own.clone().unsqueeze::<2>(),
                },
            );
            return sinkhorn_divergence(&a, &b, settings).value;
        }
        let parts = Parts { centres, directions, measures };
        self.product(&parts, &parts) + target.own.clone()
            - self.product(&parts, &target.parts) * 2.0
    }

    /// `<mu, nu>`.
    fn product(&self, mu: &Parts, nu: &Parts) -> Tensor<1> {
        let Parts { centres: x, directions: n, measures: a } = mu;
        let Parts { centres: y, directions: m, measures: b } = nu;
        let kernel = self.kernel.as_ref().expect("made for currents and varifolds");
        let (x, y) = (x.clone(), y.clone());
        let directed = |directions| {
            let (Some(n), Some(m)) = (n, m) else {
                return (kernel_product(kernel, x.clone(), y.clone(), b.clone()) * a.clone()).sum();
            };
            let unit = |n: &Tensor<2>, a: &Tensor<2>| n.clone() / a.clone();
            let (u, v) = (unit(n, a), unit(m, b));
            let sums =
                directed_product(kernel, directions, [x.clone(), u], [y.clone(), v], b.clone());
            (sums * a.clone()).sum()
        };
        match (&self.attachment, n, m) {
            (Attachment::Currents { .. }, Some(n), Some(m)) => {
                (kernel_product(kernel, x, y, m.clone()) * n.clone()).sum()
            }
            (Attachment::Varifolds { oriented: true, .. }, ..) => {
                directed(Directions::Exponential { spread: SPREAD })
            }
            _ => directed(Directions::Squared),
        }
    }
}

/// Widths that lead from the size of an object down to its details: from an eighth of its diameter, halved down to the
/// length of its edges; one at least.
pub fn advised_sigmas(shape: &Shape) -> Vec<f64> {
    let edge = match shape.cells.is_empty() {
        true => crate::shape::spacing(&shape.points).median,
        false => shape.mean_edge(),
    };
    let mut sigmas = vec![shape.diameter() / 8.0];
    while let Some(last) = sigmas.last().filter(|last| **last >= 2.0 * edge && sigmas.len() < 4) {
        sigmas.push(last / 2.0);
    }
    sigmas
}
