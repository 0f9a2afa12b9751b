//! Overlap of labels as a similarity: each channel says how much of a voxel is of a label.

use burn::Tensor;
use burn::tensor::DType;

use crate::losses::{Pair, PairGradients, SimilarityLoss};
use crate::ops::sum_of_channels;
use ffdp_kit::half::computed;

/// Keeps the overlap of labels that are nowhere finite, in voxels.
const EPSILON: f64 = 1e-5;

/// One minus the mean soft Dice overlap of the channels; see [`soft_dice`](crate::losses::soft_dice). In 0..1.
///
/// ```text
/// I_k = sum_p u a b     S_k = sum_p u (a^2 + b^2)     loss = 1 - mean_k 2 I_k / S_k = mean_k sum_p u (a - b)^2 / S_k
/// ```
/// The second form is that of least squares, each channel by its own size: a small label counts as much as a large one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dice;

/// An image in the type in which is computed.
fn wide(image: &Tensor<5>) -> Tensor<5> {
    let dtype: DType = computed(image.dtype());
    image.clone().cast(dtype)
}

/// What counts of the values of a pair.
fn weighed(values: Tensor<5>, pair: &Pair) -> Tensor<5> {
    match &pair.weights {
        None => values,
        Some(weights) => values * weights.clone(),
    }
}

/// The sums of each channel `[K]`, of all entries of a batch.
fn sums(values: Tensor<5>) -> Tensor<1> {
    sum_of_channels(values).sum_dim(0).flatten(0, 4)
}

/// Both halves of numbers for the channels.
fn halves(numbers: &Tensor<1>) -> [Tensor<1>; 2] {
    let channels = numbers.dims()[0] / 2;
    [0, channels].map(|first| numbers.clone().narrow(0, first, channels))
}

/// One number for each channel, for all of its values.
fn by_channel(numbers: Tensor<1>) -> Tensor<5> {
    let channels = numbers.dims()[0];
    numbers.reshape([1, channels, 1, 1, 1])
}

impl SimilarityLoss for Dice {
    /// `I` of all channels, then `S`.
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        let [a, b] = [&pair.moved, &pair.fixed].map(wide);
        let both = sums(weighed(a.clone() * b.clone(), pair));
        let sizes = sums(weighed(a.clone() * a + b.clone() * b, pair));
        Tensor::cat(vec![both, sizes], 0)
    }

    fn finish(&self, total: Tensor<1>, _count: Tensor<1>) -> Tensor<1> {
        let [both, sizes] = halves(&total);
        (both / sizes.add_scalar(EPSILON)).mean().mul_scalar(-2.0).add_scalar(1.0)
    }

    /// That of neighbouring structures of a brain whose Dice rises from 0.6 to 0.8.
    fn usual_gain(&self) -> f64 {
        0.2
    }

    /// To `a`: `u (slope of I b + slope of S 2 a)`.
    fn gradient(&self, pair: &Pair, slope: &Tensor<1>, needs: [bool; 2]) -> PairGradients {
        let [a, b] = [&pair.moved, &pair.fixed].map(wide);
        let [to_both, to_sizes] = halves(slope).map(by_channel);
        let to = |own: &Tensor<5>, other: &Tensor<5>| {
            let to_own = own.clone() * to_sizes.clone().mul_scalar(2.0);
            weighed(other.clone() * to_both.clone() + to_own, pair)
        };
        [needs[0].then(|| to(&a, &b)), needs[1].then(|| to(&b, &a))]
    }

    /// `count u 2 / (K S_k)`: of the second form, its sizes taken as constants.
    fn curvature(&self, pair: &Pair, total: &Tensor<1>, count: &Tensor<1>) -> Option<Tensor<5>> {
        let [_, sizes] = halves(total);
        let channels = sizes.dims()[0] as f64;
        let each = count.clone().mul_scalar(2.0 / channels) / sizes.add_scalar(EPSILON);
        Some(weighed(pair.moved.ones_like().cast(each.dtype()) * by_channel(each), pair))
    }
}
