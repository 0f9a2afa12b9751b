//! Any similarity, composed.

use burn::Tensor;

use super::{BoxFilter, lncc, mse, mutual_information, normalized_mutual_information};
use crate::losses::SimilarityLoss;
use crate::ops::{GradientMode, HistogramMode, Measure};

/// The loss of a similarity; one without fused kernels is composed as it is.
///
/// # Shapes
/// moved, fixed `[N, C, D, H, W]`, of one channel for information; result `[1]`.
///
/// # Panics
/// As [`joint_histogram`](super::joint_histogram), for information.
pub fn similarity(
    similarity: &dyn SimilarityLoss,
    moved: Tensor<5>,
    fixed: Tensor<5>,
) -> Tensor<1> {
    match similarity.measure() {
        Some(measure) => loss_of(&measure, moved, fixed),
        None => similarity.loss(moved, fixed),
    }
}

/// Whether autodiff finds the gradient that the settings of a similarity ask for: not the approximation of
/// [`lncc`], and not that of votes for whole bins.
pub fn knows(similarity: &dyn SimilarityLoss) -> bool {
    match similarity.measure() {
        Some(Measure::Lncc(options)) => options.gradient == GradientMode::Exact,
        Some(
            Measure::MutualInformation(options) | Measure::NormalizedMutualInformation(options),
        ) => options.mode == HistogramMode::Exact,
        Some(Measure::SquaredDifference) | None => true,
    }
}

/// The loss of a measure.
pub(super) fn loss_of(measure: &Measure, moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1> {
    match measure {
        Measure::Lncc(options) => lncc(moved, fixed, options, BoxFilter::Separable),
        Measure::SquaredDifference => mse(moved, fixed),
        Measure::MutualInformation(options) => mutual_information(moved, fixed, options),
        Measure::NormalizedMutualInformation(options) => {
            normalized_mutual_information(moved, fixed, options)
        }
    }
}
