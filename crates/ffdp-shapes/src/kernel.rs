//! The kernels of the field, as formulas.

use std::f64::consts::{LOG2_E, SQRT_2};

use serde::{Deserialize, Serialize};

use crate::formula::{Expr, Formula, Variables, Vector};

/// A radial kernel `k(r)`, `r = |x - y|`. Every width is named by its formula.
#[derive(Clone, Debug, PartialEq)]
pub enum Kernel {
    /// `exp(-r^2 / (2 sigma^2))`; see [`Kernel::gaussian_of_width`] for the other convention.
    Gaussian {
        /// The standard deviation, in units of the points.
        sigma: f64,
    },
    /// `exp(-r / scale)`.
    Laplacian {
        /// Where the kernel has fallen to `1 / e`, in units of the points.
        scale: f64,
    },
    /// `1 / (1 + r^2 / scale^2)`.
    Cauchy {
        /// Where the kernel has fallen to a half, in units of the points.
        scale: f64,
    },
    /// `-r`: conditionally positive, for measures of equal mass.
    Energy,
    /// A sum of kernels with their weights.
    Sum(Vec<(f64, Kernel)>),
}

/// How a kernel of deformations decays. Geodesics follow its slope, which is continuous; that of [`Kernel::Laplacian`] jumps
/// where two points meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// [`Kernel::Gaussian`], its width the standard deviation.
    #[default]
    Gaussian,
    /// [`Kernel::Cauchy`], its width where it has fallen to a half: distant points are taken along as well.
    Cauchy,
}

/// How directions `a`, `b` enter a product `k(x - y) h(a, b)`; for unit normals or tangents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Directions {
    /// `a . b`: currents.
    Linear,
    /// `(a . b)^2`: varifolds without orientation.
    Squared,
    /// `exp(a . b / spread)`: varifolds with orientation; unit vectors: `exp((2 - |a - b|^2) / (2 spread))`.
    Exponential {
        /// How far directions may differ.
        spread: f64,
    },
}

impl Kernel {
    /// `exp(-r^2 / (2 sigma^2))`.
    pub fn gaussian(sigma: f64) -> Self {
        Self::Gaussian { sigma }
    }

    /// `exp(-r^2 / width^2)`, the convention of the paper: a [`Kernel::Gaussian`] of `sigma = width / sqrt(2)`.
    pub fn gaussian_of_width(width: f64) -> Self {
        Self::Gaussian { sigma: width / SQRT_2 }
    }

    /// A sum of gaussians of equal weight.
    pub fn gaussians(sigmas: &[f64]) -> Self {
        Self::sum_of(Decay::Gaussian, sigmas)
    }

    /// A sum of kernels of equal weight that decay in the same way.
    pub fn sum_of(decay: Decay, widths: &[f64]) -> Self {
        let kernel = |&width: &f64| match decay {
            Decay::Gaussian => Self::gaussian(width),
            Decay::Cauchy => Self::Cauchy { scale: width },
        };
        Self::Sum(widths.iter().map(|width| (1.0, kernel(width))).collect())
    }

    /// The sigmas and scales, in the order in which the kernel holds them.
    pub fn widths(&self) -> Vec<f64> {
        match self {
            Self::Gaussian { sigma } => vec![*sigma],
            Self::Laplacian { scale } | Self::Cauchy { scale } => vec![*scale],
            Self::Energy => vec![],
            Self::Sum(parts) => parts.iter().flat_map(|(_, part)| part.widths()).collect(),
        }
    }

    /// Refuses widths that are not positive.
    ///
    /// # Panics
    /// For those, and for an empty sum.
    pub(crate) fn check(&self) {
        let widths = self.widths();
        let right = widths.iter().all(|width| *width > 0.0 && width.is_finite());
        assert!(right, "kernel: widths must be positive and finite, got {widths:?}");
        if let Self::Sum(parts) = self {
            assert!(!parts.is_empty(), "kernel: a sum of kernels needs one");
            parts.iter().for_each(|(_, part)| part.check());
        }
    }

    /// The kernel of points `x` and `y`; `widths` are taken from the front.
    ///
    /// # Panics
    /// If `widths` has fewer entries than [`Kernel::widths`].
    pub fn of(&self, x: &Vector, y: &Vector, widths: &mut &[Expr]) -> Expr {
        let mut next = || {
            let (width, rest) = widths.split_first().expect("a width for every part of the kernel");
            *widths = rest;
            width.clone()
        };
        // Differences of scaled points: the scaling is done once a point, not once a pair.
        let scaled = |factor: Expr| x * &factor - y * &factor;
        match self {
            Self::Gaussian { .. } => (-scaled((LOG2_E / 2.0).sqrt() / next()).norm2()).exp2(),
            Self::Laplacian { .. } => (-scaled(LOG2_E / next()).norm()).exp2(),
            Self::Cauchy { .. } => (1.0 + scaled(next().recip()).norm2()).recip(),
            Self::Energy => -(x - y).norm(),
            Self::Sum(parts) => {
                let terms = parts.iter().map(|(weight, part)| *weight * part.of(x, y, widths));
                terms.reduce(|sum, term| sum + term).expect("a sum of kernels needs one")
            }
        }
    }

    /// The parameters of the widths; none for a kernel without.
    fn parameters(&self, v: &mut Variables) -> Vec<Expr> {
        match self.widths().len() {
            0 => Vec::new(),
            count => v.parameters(count).components().to_vec(),
        }
    }

    /// `k(x_i - y_j) b_j`, of variables `x` (rows, `dim`), `y` (columns, `dim`), `b` (columns, `channels`) and the
    /// widths (parameters; not for a kernel without).
    pub fn formula(&self, dim: usize, channels: usize) -> Formula {
        Formula::new(|v| {
            let (x, y, b) = (v.rows(dim), v.columns(dim), v.columns(channels));
            let widths = self.parameters(v);
            self.of(&x, &y, &mut &widths[..]) * b
        })
    }

    /// `k(x_i - y_j) h(a_i, b_j) w_j`, of variables `x`, `a` (rows, `dim`), `y`, `b` (columns, `dim`), `w` (columns,
    /// `channels`) and the widths.
    pub fn directed_formula(&self, directions: Directions, dim: usize, channels: usize) -> Formula {
        Formula::new(|v| {
            let (x, a) = (v.rows(dim), v.rows(dim));
            let (y, b, w) = (v.columns(dim), v.columns(dim), v.columns(channels));
            let widths = self.parameters(v);
            let cosine = a.dot(&b);
            let h = match directions {
                Directions::Linear => cosine,
                Directions::Squared => cosine.square(),
                Directions::Exponential { spread } => (cosine * (LOG2_E / spread)).exp2(),
            };
            self.of(&x, &y, &mut &widths[..]) * h * w
        })
    }
}
