//! The measures of two images that have fused kernels, with their gradients to both, off the tape. No other file of
//! the iterations knows how many there are.

use burn::Tensor;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;

use crate::ops::field_sum::FieldSumOps;
use crate::ops::information::{Information, InformationOps};
use crate::ops::joint_histogram::{Binning, HistogramOptions, JointHistogramOps};
use crate::ops::lncc::{LnccCall, LnccOps, LnccOptions};
use crate::ops::mse::MseOps;
use crate::ops::weights::NO_WEIGHT;

/// How alike two images are, times the number of their values, so that it adds up over parts of an
/// image. With weights the mean is the weighted one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// `sum n` of [`lncc`](crate::ops::lncc()): upwards.
    Lncc(LnccOptions),
    /// `sum (moved - fixed)^2`: downwards.
    SquaredDifference,
    /// The mutual information in nats, the mean of those of the channels: upwards.
    MutualInformation(HistogramOptions),
    /// The mutual information as a part of the joint entropy, the mean over the channels: upwards.
    NormalizedMutualInformation(HistogramOptions),
}

impl Measure {
    /// The loss that measures stand for, over so many values: `1 - mean n` for LNCC, the mean for squared differences,
    /// the negative information, one minus the normalised one.
    pub fn loss(&self, measures: Tensor<1>, values: usize) -> Tensor<1> {
        let mean = measures.mul_scalar(1.0 / values as f64);
        match self {
            Self::Lncc(_) | Self::NormalizedMutualInformation(_) => mean.neg().add_scalar(1.0),
            Self::SquaredDifference => mean,
            Self::MutualInformation(_) => mean.neg(),
        }
    }

    /// The measures that losses stand for, over so many values: the inverse of [`Measure::loss`].
    pub fn of_loss(&self, losses: Tensor<1>, values: usize) -> Tensor<1> {
        let mean = match self {
            Self::Lncc(_) | Self::NormalizedMutualInformation(_) => losses.neg().add_scalar(1.0),
            Self::SquaredDifference => losses,
            Self::MutualInformation(_) => losses.neg(),
        };
        mean.mul_scalar(values as f64)
    }

    /// The sign of a step along the gradient.
    pub fn sign(&self) -> f64 {
        match self {
            Self::SquaredDifference => -1.0,
            Self::Lncc(_) | Self::MutualInformation(_) | Self::NormalizedMutualInformation(_) => {
                1.0
            }
        }
    }

    /// The table of votes that it is the information of, and which information; `None` for what is a mean over voxels.
    pub fn information(&self) -> Option<(HistogramOptions, Information)> {
        match self {
            Self::MutualInformation(options) => Some((*options, Information::Mutual)),
            Self::NormalizedMutualInformation(options) => Some((*options, Information::Normalized)),
            Self::Lncc(_) | Self::SquaredDifference => None,
        }
    }

    /// # Panics
    /// For options that have no meaning.
    pub(super) fn check(&self) {
        match self {
            Self::Lncc(LnccOptions { window, epsilon, .. }) => assert!(
                window % 2 == 1
                    && (3..=21).contains(window)
                    && *epsilon > 0.0
                    && epsilon.is_finite(),
                "deform: the window of LNCC must be odd and within 3..=21 and its epsilon positive, \
                 got {window} and {epsilon}"
            ),
            Self::SquaredDifference => {}
            Self::MutualInformation(options) | Self::NormalizedMutualInformation(options) => {
                options.check();
            }
        }
    }
}

/// The backends that know every measure.
pub(super) trait Comparing:
    LnccOps + MseOps + JointHistogramOps + InformationOps + FieldSumOps
{
}
impl<B: LnccOps + MseOps + JointHistogramOps + InformationOps + FieldSumOps> Comparing for B {}

/// Two images of one grid, and how their voxels count.
pub(super) struct Compared<B: Comparing> {
    /// `[N, C, D, H, W]`.
    pub moved: FloatTensor<B>,
    pub fixed: FloatTensor<B>,
    /// `[N, 1, D, H, W]`; without, all count the same.
    pub weights: Option<FloatTensor<B>>,
}

/// How many values count.
pub(super) enum Total<B: Comparing> {
    /// So many: all of them.
    All(f64),
    /// The sum of their weights, `[1]`.
    Weights(FloatTensor<B>),
}

impl<B: Comparing> Total<B> {
    /// `[1]`, on the device of `like`.
    pub fn tensor(&self, like: &FloatTensor<B>) -> FloatTensor<B> {
        match self {
            Self::All(values) => full::<B>(*values, like),
            Self::Weights(total) => total.clone(),
        }
    }
}

/// What a comparison yields.
pub(super) struct Measured<B: Comparing> {
    /// The measure: the weighted mean times the number of values, `[1]`.
    pub value: FloatTensor<B>,
    /// How many values count.
    pub total: Total<B>,
    /// The gradients of the weighted mean times `total` to moved and fixed; placeholders where they
    /// are not needed.
    pub gradients: [FloatTensor<B>; 2],
}

impl<B: Comparing> Compared<B> {
    /// The measure, and the gradients that are needed.
    pub fn measure(self, measure: &Measure, needs: [bool; 2]) -> Measured<B> {
        let values = self.moved.shape().num_elements() as f64;
        let weights = self.weights.as_ref().map(|weights| {
            let weights = B::float_expand(weights.clone(), self.moved.shape());
            let total = B::float_add_scalar(B::part_sums(weights.clone(), 1), NO_WEIGHT.into());
            (weights, total)
        });
        let (weights, total) = weights.unzip();
        // Of sums, that which makes means, times the number of values.
        let scale =
            total.clone().map(|total| B::float_mul_scalar(B::float_recip(total), values.into()));
        let total = total.map_or(Total::All(values), Total::Weights);
        let as_mean = |sum: FloatTensor<B>| match scale {
            None => sum,
            Some(scale) => B::float_mul(sum, scale),
        };
        let images = [self.moved, self.fixed];
        let (value, gradients) = match measure {
            Measure::Lncc(options) => {
                let (sum, gradients) = lncc::<B>(images, weights, *options, needs);
                (as_mean(sum), gradients)
            }
            Measure::SquaredDifference => {
                let (sum, gradients) = squared_difference::<B>(images, weights);
                (as_mean(sum), gradients)
            }
            Measure::MutualInformation(options) => {
                let which = Information::Mutual;
                let (loss, gradients) =
                    information::<B>(images, weights, *options, which, &total, needs);
                (B::float_mul_scalar(loss, (-values).into()), gradients)
            }
            Measure::NormalizedMutualInformation(options) => {
                let which = Information::Normalized;
                let (loss, gradients) =
                    information::<B>(images, weights, *options, which, &total, needs);
                let value = B::float_mul_scalar(loss, (-values).into());
                (B::float_add_scalar(value, values.into()), gradients)
            }
        };
        Measured { value, total, gradients }
    }
}

/// A number, and the gradients to moved and fixed.
type Valued<B> = (FloatTensor<B>, [FloatTensor<B>; 2]);

fn lncc<B: Comparing>(
    [moved, fixed]: [FloatTensor<B>; 2],
    weights: Option<FloatTensor<B>>,
    options: LnccOptions,
    needs: [bool; 2],
) -> Valued<B> {
    let call = LnccCall { options, weighted: weights.is_some(), factor: 1.0 };
    // Bound, but not read where there are no weights.
    let weights = weights.unwrap_or_else(|| fixed.clone());
    let (sum, to_moved, to_fixed) = B::lncc_3d_with_gradient(moved, fixed, weights, call, needs);
    (sum, [to_moved, to_fixed])
}

/// A weight is the square of a factor of both images.
fn squared_difference<B: Comparing>(
    images: [FloatTensor<B>; 2],
    weights: Option<FloatTensor<B>>,
) -> Valued<B> {
    let root = weights.map(B::float_sqrt);
    let times_root = |image: FloatTensor<B>| match &root {
        None => image,
        // An image may be stored in half precision.
        Some(root) => B::float_mul(B::float_cast(image, root.dtype().into()), root.clone()),
    };
    let [moved, fixed] = images.map(times_root);
    let sum = B::squared_difference(moved.clone(), fixed.clone());
    let one = full::<B>(1.0, &sum);
    let to_moved = times_root(B::squared_difference_backward(moved, fixed, one));
    let to_fixed = B::float_neg(to_moved.clone());
    (sum, [to_moved, to_fixed])
}

/// The loss `-I` or `1 - I / H`, the mean over the channels, and the gradients of `total` times its
/// opposite. Every channel has a table of its own, as if it were an entry of the batch.
fn information<B: Comparing>(
    images: [FloatTensor<B>; 2],
    weights: Option<FloatTensor<B>>,
    options: HistogramOptions,
    kind: Information,
    total: &Total<B>,
    needs: [bool; 2],
) -> Valued<B> {
    let shape = images[0].shape();
    let tables = Shape::from([shape[0] * shape[1], 1, shape[2], shape[3], shape[4]]);
    let apart = |image: FloatTensor<B>| B::float_reshape(image, tables.clone());
    let binning = Binning { options, weighted: weights.is_some() };
    let [moved, fixed] = images.map(apart);
    let weights = weights.map_or_else(|| fixed.clone(), apart);
    let votes = B::joint_histogram_3d(moved.clone(), fixed.clone(), weights.clone(), binning);
    let loss = B::information_loss(votes.clone(), kind);
    let opposite = match total {
        Total::All(values) => full::<B>(-values, &votes),
        Total::Weights(total) => B::float_neg(total.clone()),
    };
    let to_votes = B::information_loss_backward(votes, opposite, kind);
    let (to_moved, to_fixed) =
        B::joint_histogram_3d_backward(moved, fixed, weights, to_votes, binning, needs);
    let together = |gradient: FloatTensor<B>, needed: bool| match needed {
        true => B::float_reshape(gradient, shape.clone()),
        false => gradient,
    };
    (loss, [together(to_moved, needs[0]), together(to_fixed, needs[1])])
}

/// One number on the device of `like`, `[1]`.
fn full<B: Comparing>(value: f64, like: &FloatTensor<B>) -> FloatTensor<B> {
    B::float_full(Shape::from([1]), value.into(), &like.device(), like.dtype().into())
}
