//! The kernels, and where a voxel's vote goes.
//!
//! # One more kernel
//! It is even, falls from 0 outwards, is continuous and is 0 from `radius` on. [`ParzenKernel::Linear`]
//! is the shortest example; its name shows every line to write:
//! 1. here, a variant of [`ParzenKernel`], its `radius`, the kernel (`value`) and its derivative
//!    (`slope`), in f64; and `sums_to_one`, if it does so wherever the intensity lies;
//! 2. for GPUs, in `cube/parzen.rs`: a variant of `Kernel`, `value` and `slope` once more, in f32
//!    (numbers such as a width are members of `Shape`), and `sums_to_one`; the variants are paired in
//!    `Call::plan`;
//! 3. in `tests/mod.rs`: the kernel by another formula (`kernel_at`), and its place in `KERNELS`. All
//!    suites, finite differences and GPUs included, then run with it.
//!
//! Everything else, the scaling to sum 1 and the padding of the table among it, follows.

use serde::{Deserialize, Serialize};

/// How a vote is spread over the bins, by the distance `t` from a bin's centre, in bins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ParzenKernel {
    /// All to the bin that the intensity lies in. No gradient.
    Delta,
    /// `1 - |t|`, over 2 bins: linear interpolation of votes. Its slope jumps at the bins' centres; 4
    /// cells a voxel. Sums to 1 wherever the intensity lies.
    Linear,
    /// Cubic B-spline, over 4 bins (Mattes). Twice continuously differentiable; sums to 1 wherever
    /// the intensity lies.
    #[default]
    BSpline3,
    /// `exp(-t^2 / 2 sigma^2)` over `2R` bins, `R = ceil(3 sigma)`, lowered to meet 0 at `R` and
    /// scaled so that every vote sums to 1. The slope jumps at `R`, by at most 6 % of its largest.
    Gaussian {
        /// Standard deviation in bins, 0.25 to 2. 0.5 is common (Guo 2019).
        sigma_bins: f64,
    },
}

/// Bins that a vote reaches along one axis, at most: a Gaussian of 2 bins.
pub(super) const MOST_TAPS: usize = 12;

impl ParzenKernel {
    /// `R`: half the support, in bins.
    pub(crate) fn radius(self) -> usize {
        match self {
            Self::Delta => 0,
            Self::Linear => 1,
            Self::BSpline3 => 2,
            Self::Gaussian { sigma_bins } => (3.0 * sigma_bins).ceil() as usize,
        }
    }

    /// `k(t)`, up to a factor.
    pub(super) fn value(self, t: f64) -> f64 {
        let t = t.abs();
        match self {
            Self::Delta => f64::from(t <= 0.5),
            Self::Linear => (1.0 - t).max(0.0),
            Self::BSpline3 if t < 1.0 => 2.0 / 3.0 - t * t + t.powi(3) / 2.0,
            Self::BSpline3 => (2.0 - t).max(0.0).powi(3) / 6.0,
            Self::Gaussian { sigma_bins } => {
                let [rate, edge] = self.gaussian(sigma_bins);
                ((-rate * t * t).exp() - edge).max(0.0)
            }
        }
    }

    /// `k'(t)`, up to the same factor.
    pub(super) fn slope(self, t: f64) -> f64 {
        // At 0 a kernel with a kink there has the slope of the side below, as its other taps do.
        let (sign, t) = (if t > 0.0 { 1.0 } else { -1.0 }, t.abs());
        match self {
            Self::Delta => 0.0,
            Self::Linear => -sign,
            Self::BSpline3 if t < 1.0 => sign * (1.5 * t * t - 2.0 * t),
            Self::BSpline3 => sign * (2.0 - t).max(0.0).powi(2) / -2.0,
            Self::Gaussian { .. } if t >= self.radius() as f64 => 0.0,
            Self::Gaussian { sigma_bins } => {
                let [rate, _] = self.gaussian(sigma_bins);
                sign * -2.0 * rate * t * (-rate * t * t).exp()
            }
        }
    }

    /// Whether the values over the bins sum to 1 as they are.
    pub(super) fn sums_to_one(self) -> bool {
        matches!(self, Self::Linear | Self::BSpline3)
    }

    /// `1 / 2 sigma^2`, and the value at `R`, by which the kernel is lowered.
    pub(super) fn gaussian(self, sigma_bins: f64) -> [f64; 2] {
        let rate = 0.5 / (sigma_bins * sigma_bins);
        [rate, (-rate * (self.radius() as f64).powi(2)).exp()]
    }

    /// The kernel at whole bins `1 - R ..= R - 1`, sum 1: what a table of single votes is convolved
    /// with.
    pub(super) fn at_whole_bins(self) -> Vec<f64> {
        let reach = self.radius().saturating_sub(1) as i64;
        let values: Vec<f64> = (-reach..=reach).map(|t| self.value(t as f64)).collect();
        let sum: f64 = values.iter().sum();
        values.into_iter().map(|value| value / sum).collect()
    }
}

/// The bins that an intensity votes for along one axis, `N` at most.
pub(super) struct Taps<const N: usize> {
    /// The first of them.
    pub first: usize,
    /// How many.
    pub count: usize,
    /// Their shares of the vote; sum 1.
    pub weight: [f64; N],
    /// The derivatives of the shares by the intensity.
    pub slope: [f64; N],
}

/// Calls a function with as many taps as a kernel has, where they are few: most kernels have two or four.
macro_rules! with_taps {
    ($kernel:expr, $function:ident::<$t:ty>($($argument:expr),*)) => {
        match $kernel.radius() {
            0 | 1 => $function::<$t, 2>($($argument),*),
            2 => $function::<$t, 4>($($argument),*),
            _ => $function::<$t, { MOST_TAPS }>($($argument),*),
        }
    };
}
pub(super) use with_taps;

/// An intensity within the table: NaN counts as 0.
pub(super) fn clamped(intensity: f64) -> f64 {
    if intensity > 0.0 { intensity.min(1.0) } else { 0.0 }
}

/// The bin of an intensity, of `inner` bins after a padding of `radius`.
pub(super) fn bin(intensity: f64, radius: usize, inner: usize) -> usize {
    radius + ((clamped(intensity) * inner as f64) as usize).min(inner - 1)
}

impl<const N: usize> Taps<N> {
    #[inline]
    pub(super) fn new(intensity: f64, kernel: ParzenKernel, inner: usize) -> Self {
        let (mut weight, mut slope) = ([0.0; N], [0.0; N]);
        let radius = kernel.radius();
        if radius == 0 {
            weight[0] = 1.0;
            return Self { first: bin(intensity, 0, inner), count: 1, weight, slope };
        }
        let y = clamped(intensity) * inner as f64;
        // Not negative: the whole part, without a call.
        let whole = (y + 0.5) as usize;
        let first = whole as f64;
        // The fraction of x beyond the bin below it, which is tap number R - 1.
        let fraction = y - first + 0.5;
        let moves = f64::from((0.0..=1.0).contains(&intensity)) * inner as f64;
        let count = if N < MOST_TAPS { N } else { 2 * radius };
        for tap in 0..count {
            let t = tap as f64 + 1.0 - radius as f64 - fraction;
            weight[tap] = kernel.value(t);
            slope[tap] = -kernel.slope(t) * moves;
        }
        if !kernel.sums_to_one() {
            let sum: f64 = weight.iter().sum();
            let drift: f64 = slope.iter().sum::<f64>() / sum;
            for tap in 0..count {
                weight[tap] /= sum;
                slope[tap] = slope[tap] / sum - weight[tap] * drift;
            }
        }
        Self { first: whole, count, weight, slope }
    }
}
