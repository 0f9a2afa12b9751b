//! Joint histogram of two images by Parzen windows, value and gradient: what mutual information is
//! made of (FFDP paper, sections 3.2 and G; Mattes et al. 2001; Thevenaz and Unser 2000).
//!
//! ```text
//! h[m, n] = sum_p w(p) k(m - x(a(p))) k(n - x(b(p)))              p = h / sum h
//! x(v) = R - 1/2 + (B - 2R) clamp(v, 0, 1)
//! ```
//! `B` bins, bin `m` centred at `x = m` and one wide · `k` the kernel, `R` half its support in bins ·
//! `w` an optional weight of the voxel. The `B - 2R` inner bins share [0, 1] equally; the `R` at
//! either end are Mattes' padding, so that no support leaves the table and every voxel has one vote.
//!
//! Backward, with `g = dL/dh`:
//! ```text
//! dL/da(p) = -(B - 2R) w(p) sum_(m, n) g[m, n] k'(m - x(a)) k(n - x(b))
//! ```
//! local, over the `2R x 2R` cells of the voxel's support; 0 where `a` was clamped.
//!
//! A voxel touches `(2R)^2` cells, 16 with the B-spline. A GPU adds integers (one vote is `2^23`
//! units or more, split so that nothing is lost) into totals of two words: the sum depends on no order
//! and overflows at no size. Extra memory: `O(B^2)`. Read `kernel.rs` next, to add a kernel.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::Shape;
use serde::{Deserialize, Serialize};

use super::field_sum::sum_of_fields;

mod autodiff;
#[cfg(feature = "cube")]
pub(in crate::ops) mod cube;
mod flex;
mod kernel;
#[cfg(test)]
mod tests;

pub use kernel::ParzenKernel;

/// How the votes are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HistogramMode {
    /// Every voxel spreads its vote over the support of the kernel.
    #[default]
    Exact,
    /// Every voxel votes for one cell, and the finished table is convolved with the kernel, sampled
    /// at whole bins and scaled to sum 1 (paper, G.1.2): a voxel counts as if it had the intensity
    /// at the centre of its bins. Faster. The value is piecewise constant, so its derivative is of
    /// no use; the gradient is that of [`HistogramMode::Exact`] for the same `dL/dh`.
    Approximate,
}

/// Options of [`joint_histogram`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistogramOptions {
    /// Bins along each axis of the table, padding included, 8 to 256. 32 by default (Mattes: 50;
    /// FFDP: 32). A table that exceeds a GPU's shared memory (more than 143 bins on an H200, more
    /// than 64 where there are 32 kB) is counted in global memory: the same result, but slower.
    pub bins: usize,
    /// How a vote is spread; the cubic B-spline by default.
    pub kernel: ParzenKernel,
    /// How the votes are counted; exactly by default.
    pub mode: HistogramMode,
}

impl Default for HistogramOptions {
    fn default() -> Self {
        Self { bins: 32, kernel: ParzenKernel::BSpline3, mode: HistogramMode::Exact }
    }
}

impl HistogramOptions {
    /// Whether every voxel votes for one cell.
    pub(crate) fn is_hard(&self) -> bool {
        self.mode == HistogramMode::Approximate || self.kernel == ParzenKernel::Delta
    }

    /// Bins that share the intensities [0, 1]: `B - 2R`.
    pub(crate) fn inner_bins(&self) -> usize {
        self.bins - 2 * self.kernel.radius()
    }

    /// Fewest bins, of which one vote's reach on either side is padding.
    pub(crate) fn least_bins(&self) -> usize {
        (2 * self.kernel.radius() + 4).max(8)
    }

    pub(crate) fn check(&self) {
        let Self { bins, kernel, .. } = *self;
        assert!(
            (8..=256).contains(&bins),
            "joint_histogram: the bins must lie in 8..=256, got {bins}"
        );
        if let ParzenKernel::Gaussian { sigma_bins } = kernel {
            assert!(
                (0.25..=2.0).contains(&sigma_bins),
                "joint_histogram: sigma must lie in 0.25..=2 bins, got {sigma_bins}"
            );
        }
        let least = self.least_bins();
        assert!(
            bins >= least,
            "joint_histogram: {kernel:?} needs at least {least} bins, of which {} are padding, got \
             {bins}",
            2 * kernel.radius()
        );
    }
}

/// The resolved options that a backend receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binning {
    /// Bins, kernel and mode.
    pub options: HistogramOptions,
    /// Whether the weights are an image or an ignored placeholder.
    pub weighted: bool,
}

impl Binning {
    fn table(&self, image: &Shape) -> Shape {
        Shape::from([image[0], self.options.bins, self.options.bins])
    }
}

/// Backend operations of the joint histogram.
///
/// Shapes: images and weights `[N, 1, D, H, W]` (unweighted: any placeholder), table and its
/// gradient `[N, B, B]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait JointHistogramOps: Backend {
    /// `h`, the sums of the votes.
    #[fusion(dtype = computed(a), shape = binning.table(a))]
    fn joint_histogram_3d(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        binning: Binning,
    ) -> FloatTensor<Self>;

    /// The gradients of the two images; `[1]` without a meaning where `needs` is false.
    #[fusion(meta = gradient_specs)]
    fn joint_histogram_3d_backward(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        binning: Binning,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
use ffdp_kit::half::computed;

#[cfg(feature = "cube")]
fn gradient_specs(
    a: &TensorSpec,
    b: &TensorSpec,
    _weights: &TensorSpec,
    _grad: &TensorSpec,
    _binning: &Binning,
    needs: &[bool; 2],
) -> (TensorSpec, TensorSpec) {
    let spec = |input: &TensorSpec, needed: bool| match needed {
        true => TensorSpec::new(input.shape.clone(), computed(input.dtype)),
        false => TensorSpec::new(Shape::from([1]), computed(input.dtype)),
    };
    (spec(a, needs[0]), spec(b, needs[1]))
}

/// Joint distribution of the intensities of two images: `p[n, i, j]` is the part of the voxels with
/// `a` in bin `i` and `b` in bin `j`. Sums to 1 for every batch entry.
///
/// Intensities are meant to lie in [0, 1] (scale by percentiles first, so that a few hot voxels do
/// not empty the table); others are clamped, NaN counts as 0. Differentiable in both images (first
/// order); with [`ParzenKernel::Delta`] the gradient is 0. Images may be f16 or bf16; the result is then
/// f32.
///
/// # Shapes
/// a, b `[N, 1, D, H, W]`; result `[N, B, B]`, rows `a`, columns `b`.
///
/// # Errors of the result
/// Bit by bit reproducible on every device. Against the f64 oracle: see `docs/gradients.md`.
///
/// # Panics
/// If the shapes differ, there is not one channel, or an option has no meaning.
pub fn joint_histogram(a: Tensor<5>, b: Tensor<5>, options: &HistogramOptions) -> Tensor<3> {
    let voxels: usize = a.dims()[2..].iter().product();
    joint_votes(a, b, None, options).mul_scalar(1.0 / voxels as f64)
}

/// [`joint_histogram`] with a weight for every voxel, such as a mask.
///
/// Weights lie in [0, 1]; others are clamped, NaN counts as 0. They are constants: no gradient
/// reaches them. Without any weight the table is 0.
///
/// # Shapes
/// a, b, weights `[N, 1, D, H, W]`; result `[N, B, B]`.
///
/// # Panics
/// As [`joint_histogram`].
pub fn weighted_joint_histogram(
    a: Tensor<5>,
    b: Tensor<5>,
    weights: Tensor<5>,
    options: &HistogramOptions,
) -> Tensor<3> {
    let votes = joint_votes(a, b, Some(weights), options);
    let [batch, bins, _] = votes.dims();
    let total = sum_of_fields(votes.clone().reshape([batch, 1, 1, bins, bins]));
    votes / total.reshape([batch, 1, 1]).clamp_min(f64::from(f32::MIN_POSITIVE))
}

/// The votes in each cell, in voxels: the additive part of [`joint_histogram`], for losses that are
/// summed over shards.
///
/// # Shapes
/// a, b, weights `[N, 1, D, H, W]`; result `[N, B, B]`.
///
/// # Panics
/// As [`joint_histogram`].
pub fn joint_votes(
    a: Tensor<5>,
    b: Tensor<5>,
    weights: Option<Tensor<5>>,
    options: &HistogramOptions,
) -> Tensor<3> {
    options.check();
    let (first, second) = (a.dims(), b.dims());
    assert!(
        first == second && first[1] == 1,
        "joint_histogram: images {first:?} and {second:?} must have one shape and one channel"
    );
    if let Some(weights) = &weights {
        let dims = weights.dims();
        assert!(
            dims == first,
            "joint_histogram: weights {dims:?} must have the shape {first:?} of the images"
        );
    }
    let weighted = weights.is_some();
    // Not read if there are none.
    let weights = weights.unwrap_or_else(|| b.clone());
    Tensor::from_dispatch(<Dispatch as JointHistogramOps>::joint_histogram_3d(
        a.into_dispatch(),
        b.into_dispatch(),
        weights.into_dispatch(),
        Binning { options: *options, weighted },
    ))
}
