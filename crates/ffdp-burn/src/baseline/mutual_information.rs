//! Mutual information with every Parzen block stored, as MONAI and others compute it.

use burn::Tensor;
use burn::tensor::Int;

use crate::losses;
use crate::ops::{HistogramMode, HistogramOptions, ParzenKernel};

/// Shares of every voxel over the bins, `[N, B, D H W]`.
fn shares(image: Tensor<5>, options: &HistogramOptions) -> Tensor<3> {
    let [n, _, d, h, w] = image.dims();
    let (device, dtype) = (image.device(), image.dtype());
    let radius = options.kernel.radius();
    let inner = (options.bins - 2 * radius) as f64;
    let x = image.reshape([n, 1, d * h * w]).clamp(0.0, 1.0);
    let x = x.mul_scalar(inner).add_scalar(radius as f64 - 0.5);
    let bins = Tensor::<1, Int>::arange(0..options.bins as i64, &device).float().cast(dtype);
    let t = (bins.reshape([1, options.bins as i32, 1]) - x).abs();
    match options.kernel {
        ParzenKernel::Linear => t.neg().add_scalar(1.0).clamp_min(0.0),
        ParzenKernel::BSpline3 => {
            // Truncated powers: (2 - t)^3 / 6 less 4 (1 - t)^3 / 6 where t < 1.
            let cube = |t: Tensor<3>| t.clone() * t.clone() * t;
            let outer = cube(t.clone().neg().add_scalar(2.0).clamp_min(0.0));
            let inner = cube(t.neg().add_scalar(1.0).clamp_min(0.0));
            (outer - inner.mul_scalar(4.0)).mul_scalar(1.0 / 6.0)
        }
        ParzenKernel::Gaussian { sigma_bins } => {
            let rate = -0.5 / (sigma_bins * sigma_bins);
            let edge = (rate * (radius * radius) as f64).exp();
            let bell = (t.clone() * t).mul_scalar(rate).exp().add_scalar(-edge).clamp_min(0.0);
            bell.clone() / bell.sum_dim(1)
        }
        ParzenKernel::Delta => panic!("baseline joint_histogram: single votes have no derivative"),
    }
}

/// Joint distribution of the intensities; see [`crate::ops::joint_histogram()`].
///
/// Two Parzen blocks of `B` values a voxel and a dozen steps to each are stored for the backward
/// pass.
///
/// # Shapes
/// a, b `[N, 1, D, H, W]`; result `[N, B, B]`.
///
/// # Panics
/// For the approximate mode and single votes, which autodiff cannot differentiate.
pub fn joint_histogram(a: Tensor<5>, b: Tensor<5>, options: &HistogramOptions) -> Tensor<3> {
    assert!(
        options.mode == HistogramMode::Exact,
        "baseline joint_histogram: autodiff differentiates the exact mode, not {:?}",
        options.mode
    );
    let voxels: usize = a.dims()[2..].iter().product();
    let votes = shares(a, options).matmul(shares(b, options).swap_dims(1, 2));
    votes.mul_scalar(1.0 / voxels as f64)
}

/// Negative mutual information in nats; see [`losses::MutualInformation`].
///
/// # Shapes
/// moved, fixed `[N, 1, D, H, W]`; result `[1]`.
///
/// # Panics
/// As [`joint_histogram`].
pub fn mutual_information(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    options: &HistogramOptions,
) -> Tensor<1> {
    losses::mutual_information(joint_histogram(moved, fixed, options)).mean().neg()
}

/// One minus the normalised mutual information; see [`losses::NormalizedMutualInformation`].
///
/// # Shapes
/// As [`mutual_information`].
///
/// # Panics
/// As [`joint_histogram`].
pub fn normalized_mutual_information(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    options: &HistogramOptions,
) -> Tensor<1> {
    let joint = joint_histogram(moved, fixed, options);
    losses::normalized_mutual_information(joint).mean().neg().add_scalar(1.0)
}
