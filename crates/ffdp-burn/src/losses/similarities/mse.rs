//! Mean squared difference as a similarity.

use burn::Tensor;
use burn::backend::Dispatch;

use crate::losses::similarity::scaled_features;
use crate::losses::{Pair, PairGradients, SimilarityLoss};
use crate::ops::Measure;
use crate::ops::mse::{MseOps, squared_difference_sum};
use ffdp_kit::half::computed;

/// Mean squared difference; see [`mse`](crate::ops::mse()). In intensity^2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mse;

/// Both images times the root of the weights: a weight is the square of a factor of both.
fn rooted(pair: &Pair) -> ([Tensor<5>; 2], Option<Tensor<5>>) {
    let root = pair.weights.clone().map(Tensor::sqrt);
    let times = |image: &Tensor<5>| match &root {
        None => image.clone(),
        // An image may be stored in half precision.
        Some(root) => image.clone().cast(root.dtype()) * root.clone(),
    };
    ([times(&pair.moved), times(&pair.fixed)], root)
}

impl SimilarityLoss for Mse {
    /// `sum u (moved - fixed)^2`.
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        let ([moved, fixed], _) = rooted(pair);
        squared_difference_sum(moved, fixed)
    }

    fn finish(&self, total: Tensor<1>, count: Tensor<1>) -> Tensor<1> {
        total / count
    }

    fn is_mean(&self) -> bool {
        true
    }

    fn is_least_squares(&self) -> bool {
        true
    }

    fn compares_intensities(&self) -> bool {
        true
    }

    fn usual_gain(&self) -> f64 {
        0.01
    }

    /// The channels as they are.
    fn features(&self, image: &Tensor<5>, weight: f64) -> Option<Tensor<5>> {
        let (channels, dtype) = (image.dims()[1], computed(image.dtype()));
        Some(scaled_features(image.clone().cast(dtype), weight / channels as f64))
    }

    /// `slope` is 1 everywhere.
    fn gradient(&self, pair: &Pair, slope: &Tensor<1>, needs: [bool; 2]) -> PairGradients {
        let ([moved, fixed], root) = rooted(pair);
        let one = slope.ones_like().into_dispatch();
        let (moved, fixed) = (moved.into_dispatch(), fixed.into_dispatch());
        let to_moved = <Dispatch as MseOps>::squared_difference_backward(moved, fixed, one);
        let to_moved = Tensor::<5>::from_dispatch(to_moved);
        let to_moved = match root {
            None => to_moved,
            Some(root) => to_moved * root,
        };
        let to_fixed = needs[1].then(|| to_moved.clone().neg());
        [needs[0].then_some(to_moved), to_fixed]
    }

    /// Twice the weights.
    fn curvature(&self, pair: &Pair, _total: &Tensor<1>, _count: &Tensor<1>) -> Option<Tensor<5>> {
        let weights = pair.weights.clone().unwrap_or_else(|| pair.moved.ones_like());
        Some(weights.mul_scalar(2.0))
    }

    fn measure(&self) -> Option<Measure> {
        Some(Measure::SquaredDifference)
    }
}
