//! The measure of two images in blocks with its gradient to the moved one, off the tape: what
//! [`ops::deform`](crate::ops::deform()) improves, whatever the cuts.

use burn::Tensor;
use burn::backend::Dispatch;

use super::block::Block;
use crate::error::Result;
use crate::ops::deform::NO_WEIGHT;
use crate::ops::information::InformationOps;
use crate::ops::joint_histogram::{Binning, JointHistogramOps, joint_votes};
use crate::ops::lncc::{LnccCall, LnccOps, lncc_sum, weighted_lncc_sum};
use crate::ops::mse::squared_difference_sum;
use crate::ops::weights::{joint_weights, total};
use crate::ops::{HistogramOptions, Information, LnccOptions, Measure, information_loss};

/// Of the gradients to the moved and the fixed image.
const TO_MOVED: [bool; 2] = [true, false];

/// How blocks are compared.
///
/// A mask is the last channel of its image, so that whatever sends, shows or keeps the one does so with the
/// other. A voxel counts as much as both masks say, and the gradient takes that as a constant.
pub(in crate::parallel) struct Comparison {
    measure: Measure,
    /// Whether the fixed and the moving image have one.
    masked: [bool; 2],
}

/// The images of a block without their masks, and how much their values count; all the same without.
struct Apart {
    moved: Tensor<5>,
    fixed: Tensor<5>,
    weights: Option<Tensor<5>>,
}

/// What is known of all voxels before the gradient of any.
pub(in crate::parallel) struct Whole {
    /// The measure, `[1]` on the device of the first shard.
    pub value: Tensor<1>,
    /// Its gradient to the joint histogram, on the device of every shard.
    slopes: Vec<Tensor<3>>,
}

impl Comparison {
    pub fn new(measure: Measure, masked: [bool; 2]) -> Self {
        Self { measure, masked }
    }

    /// How far around a voxel its gradient looks. That of LNCC comes from windows centred at most `r`
    /// away, which hold voxels at most `2 r` away.
    pub fn reach(&self) -> usize {
        match self.measure {
            Measure::Lncc(options) => 2 * (options.window / 2),
            Measure::SquaredDifference
            | Measure::MutualInformation(_)
            | Measure::NormalizedMutualInformation(_) => 0,
        }
    }

    fn is_weighted(&self) -> bool {
        self.masked.contains(&true)
    }

    fn apart(&self, [moved, fixed]: [Tensor<5>; 2]) -> Apart {
        let (fixed, fixed_mask) = without_mask(fixed, self.masked[0]);
        let (moved, moving_mask) = without_mask(moved, self.masked[1]);
        let weights = joint_weights(fixed_mask, moving_mask);
        let weights = weights.map(|weights| weights.expand(moved.dims()));
        Apart { moved, fixed, weights }
    }

    /// What must be known of all voxels, so many; `pairs` gives the own planes of the moved and the
    /// fixed image, shard after shard, and `sum` adds the tables of all shards.
    ///
    /// # Errors
    /// Those of `sum`.
    pub fn whole(
        &self,
        pairs: impl Iterator<Item = [Tensor<5>; 2]>,
        voxels: usize,
        sum: impl FnOnce(Vec<Tensor<3>>) -> Result<Vec<Tensor<3>>>,
    ) -> Result<Option<Whole>> {
        let Some((options, which)) = told(&self.measure) else { return Ok(None) };
        let votes = |pair| {
            let Apart { moved, fixed, weights } = self.apart(pair);
            joint_votes(moved, fixed, weights, options)
        };
        let votes = sum(pairs.map(votes).collect())?;
        Ok(Some(information(votes, voxels, which, self.is_weighted())))
    }

    /// The part of shard `k` in the measure, on its device, unless `whole` has it: numbers that
    /// [`Comparison::finished`] takes the sums of. And the gradient to the moved image on the block, right at least
    /// `reach` planes within its ends, 0 for its mask.
    pub fn compare(
        &self,
        (k, block): (usize, &Block),
        pair: [Tensor<5>; 2],
        whole: Option<&Whole>,
    ) -> (Option<Tensor<1>>, Tensor<5>) {
        let apart = self.apart(pair);
        let counted =
            apart.weights.as_ref().map(|weights| total(block.narrow(weights, &block.own)));
        let (value, gradient) = match (&self.measure, whole) {
            (Measure::Lncc(options), _) => {
                let (value, gradient) = lncc(block, apart, options);
                (Some(value), gradient)
            }
            (Measure::SquaredDifference, _) => {
                let (value, gradient) = squared_difference(block, apart);
                (Some(value), gradient)
            }
            (
                Measure::MutualInformation(options) | Measure::NormalizedMutualInformation(options),
                Some(whole),
            ) => (None, to_moved(apart, whole.slopes[k].clone(), options)),
            (Measure::MutualInformation(_) | Measure::NormalizedMutualInformation(_), None) => {
                unreachable!("information is known of the whole first")
            }
        };
        let value = match (value, counted) {
            (Some(value), Some(counted)) => Some(Tensor::cat(vec![value, counted], 0)),
            (value, _) => value,
        };
        (value, self.with_mask(gradient))
    }

    /// The measures of so many values from the sums over all shards, one after the other.
    pub fn finished(&self, sums: Tensor<1>, values: usize) -> Tensor<1> {
        if !self.is_weighted() || told(&self.measure).is_some() {
            return sums;
        }
        // Of sums, that which makes weighted means, times the number of values.
        let sums = sums.reshape([-1, 2]);
        let [sum, counted] = [0, 1].map(|column| sums.clone().narrow(1, column, 1).flatten(0, 1));
        sum.mul_scalar(values as f64) / counted.add_scalar(NO_WEIGHT)
    }

    /// A gradient to the images as one to what was shown.
    fn with_mask(&self, gradient: Tensor<5>) -> Tensor<5> {
        if !self.masked[1] {
            return gradient;
        }
        let none = gradient.clone().narrow(1, 0, 1).zeros_like();
        Tensor::cat(vec![gradient, none], 1)
    }
}

/// An image whose last channel may be its mask, and that.
pub(crate) fn without_mask(image: Tensor<5>, is_masked: bool) -> (Tensor<5>, Option<Tensor<5>>) {
    if !is_masked {
        return (image, None);
    }
    let channels = image.dims()[1] - 1;
    let mask = image.clone().narrow(1, channels, 1);
    (image.narrow(1, 0, channels), Some(mask))
}

/// The tables of information, and which it is; nothing for what is a sum.
fn told(measure: &Measure) -> Option<(&HistogramOptions, Information)> {
    match measure {
        Measure::Lncc(_) | Measure::SquaredDifference => None,
        Measure::MutualInformation(options) => Some((options, Information::Mutual)),
        Measure::NormalizedMutualInformation(options) => Some((options, Information::Normalized)),
    }
}

/// The sum over the block less that over the planes that the block below has as well: every voxel
/// once over all blocks, see `overlap.rs`.
fn lncc(block: &Block, pair: Apart, options: &LnccOptions) -> (Tensor<1>, Tensor<5>) {
    let Apart { moved, fixed, weights } = pair;
    let twice = block.shared().map(|planes| {
        let [moved, fixed] = [&moved, &fixed].map(|image| block.narrow(image, &planes));
        match &weights {
            None => lncc_sum(moved, fixed, options),
            Some(weights) => {
                weighted_lncc_sum(moved, fixed, block.narrow(weights, &planes), options)
            }
        }
    });
    let call = LnccCall { options: *options, weighted: weights.is_some(), factor: 1.0 };
    let fixed = fixed.into_dispatch();
    // Bound, but not read where there are no weights.
    let weights = weights.map_or_else(|| fixed.clone(), Tensor::into_dispatch);
    let (sum, gradient, _) = <Dispatch as LnccOps>::lncc_3d_with_gradient(
        moved.into_dispatch(),
        fixed,
        weights,
        call,
        TO_MOVED,
    );
    let sum = Tensor::from_dispatch(sum);
    let value = match twice {
        Some(twice) => sum - twice,
        None => sum,
    };
    (value, Tensor::from_dispatch(gradient))
}

/// The sum over the own planes, and half the gradient on the block; a weight is the square of a factor of both images.
fn squared_difference(block: &Block, pair: Apart) -> (Tensor<1>, Tensor<5>) {
    let Apart { moved, fixed, weights } = pair;
    let [mut a, mut b] = [&moved, &fixed].map(|image| block.narrow(image, &block.own));
    if let Some(weights) = &weights {
        let root = block.narrow(weights, &block.own).sqrt();
        (a, b) = (a * root.clone(), b * root);
    }
    let difference = moved - fixed;
    let gradient = match weights {
        None => difference,
        Some(weights) => difference * weights,
    };
    (squared_difference_sum(a, b), gradient)
}

/// `V I` (or `V I / H`) of the `V` voxels of each image of a batch, summed over it, and the gradient to
/// the table, which is that of all shards: times `V`, or the sum of the weights.
fn information(
    votes: Vec<Tensor<3>>,
    voxels: usize,
    which: Information,
    is_weighted: bool,
) -> Whole {
    // The loss is `-I` or `1 - I / H`, averaged over the batch.
    let offset = match which {
        Information::Mutual => 0.0,
        Information::Normalized => -1.0,
    };
    let scale = -((votes[0].dims()[0] * voxels) as f64);
    let value = information_loss(votes[0].clone(), which).add_scalar(offset).mul_scalar(scale);
    let slope = |votes: Tensor<3>| {
        let scale = match is_weighted {
            // Every voxel votes as much as it counts.
            true => votes.clone().sum().add_scalar(NO_WEIGHT).neg(),
            false => Tensor::<1>::full([1], scale, (&votes.device(), votes.dtype())),
        };
        let (votes, scale) = (votes.into_dispatch(), scale.into_dispatch());
        <Dispatch as InformationOps>::information_loss_backward(votes, scale, which)
    };
    let slopes = votes.into_iter().map(|votes| Tensor::from_dispatch(slope(votes)));
    Whole { value, slopes: slopes.collect() }
}

/// The gradient of the information to the voxels of a block.
fn to_moved(pair: Apart, slope: Tensor<3>, options: &HistogramOptions) -> Tensor<5> {
    let Apart { moved, fixed, weights } = pair;
    let binning = Binning { options: *options, weighted: weights.is_some() };
    let fixed = fixed.into_dispatch();
    // Bound, but not read where there are no weights.
    let weights = weights.map_or_else(|| fixed.clone(), Tensor::into_dispatch);
    let (gradient, _) = <Dispatch as JointHistogramOps>::joint_histogram_3d_backward(
        moved.into_dispatch(),
        fixed,
        weights,
        slope.into_dispatch(),
        binning,
        TO_MOVED,
    );
    Tensor::from_dispatch(gradient)
}
