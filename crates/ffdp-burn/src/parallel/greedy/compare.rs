//! The measure of two images in blocks with its gradient to the moved one, off the tape: what
//! [`ops::deform`](crate::ops::deform()) improves, whatever the cuts.

use burn::Tensor;
use burn::backend::Dispatch;

use super::block::Block;
use crate::error::Result;
use crate::ops::information::InformationOps;
use crate::ops::joint_histogram::{Binning, JointHistogramOps, joint_votes};
use crate::ops::lncc::{LnccCall, LnccOps, lncc_sum};
use crate::ops::mse::squared_difference_sum;
use crate::ops::{HistogramOptions, Information, LnccOptions, Measure, information_loss};

/// Of the gradients to the moved and the fixed image.
const TO_MOVED: [bool; 2] = [true, false];

/// How blocks are compared.
pub(in crate::parallel) enum Comparison {
    /// `sum n`.
    Lncc(LnccOptions),
    /// `sum (moved - fixed)^2`.
    SquaredDifference,
    /// `V I` or `V I / H`.
    Information(HistogramOptions, Information),
}

/// What is known of all voxels before the gradient of any.
pub(in crate::parallel) struct Whole {
    /// The measure, `[1]` on the device of the first shard.
    pub value: Tensor<1>,
    /// Its gradient to the joint histogram, on the device of every shard.
    slopes: Vec<Tensor<3>>,
}

impl Comparison {
    pub fn new(measure: Measure) -> Self {
        match measure {
            Measure::Lncc(options) => Self::Lncc(options),
            Measure::SquaredDifference => Self::SquaredDifference,
            Measure::MutualInformation(options) => Self::Information(options, Information::Mutual),
            Measure::NormalizedMutualInformation(options) => {
                Self::Information(options, Information::Normalized)
            }
        }
    }

    /// How far around a voxel its gradient looks. That of LNCC comes from windows centred at most `r`
    /// away, which hold voxels at most `2 r` away.
    pub fn reach(&self) -> usize {
        match self {
            Self::Lncc(options) => 2 * (options.window / 2),
            Self::SquaredDifference | Self::Information(..) => 0,
        }
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
        match self {
            Self::Lncc(_) | Self::SquaredDifference => Ok(None),
            Self::Information(options, which) => {
                let votes =
                    pairs.map(|[moved, fixed]| joint_votes(moved, fixed, None, options)).collect();
                Ok(Some(information(sum(votes)?, voxels, *which)))
            }
        }
    }

    /// The part of shard `k` in the measure, `[1]` on its device, unless `whole` has it; and the gradient
    /// to the moved image on the block, right at least `reach` planes within its ends.
    pub fn compare(
        &self,
        (k, block): (usize, &Block),
        [moved, fixed]: [Tensor<5>; 2],
        whole: Option<&Whole>,
    ) -> (Option<Tensor<1>>, Tensor<5>) {
        match (self, whole) {
            (Self::Lncc(options), _) => {
                let (value, gradient) = lncc(block, moved, fixed, options);
                (Some(value), gradient)
            }
            (Self::SquaredDifference, _) => {
                let [a, b] = [&moved, &fixed].map(|image| block.narrow(image, &block.own));
                (Some(squared_difference_sum(a, b)), moved - fixed)
            }
            (Self::Information(options, _), Some(whole)) => {
                (None, to_moved(moved, fixed, whole.slopes[k].clone(), options))
            }
            (Self::Information(..), None) => {
                unreachable!("information is known of the whole first")
            }
        }
    }
}

/// The sum over the block less that over the planes that the block below has as well: every voxel
/// once over all blocks, see `overlap.rs`.
fn lncc(
    block: &Block,
    moved: Tensor<5>,
    fixed: Tensor<5>,
    options: &LnccOptions,
) -> (Tensor<1>, Tensor<5>) {
    let call = LnccCall { options: *options, weighted: false, factor: 1.0 };
    let twice = block.shared().map(|planes| {
        let [moved, fixed] = [&moved, &fixed].map(|image| block.narrow(image, &planes));
        lncc_sum(moved, fixed, options)
    });
    let fixed = fixed.into_dispatch();
    // Bound, but not read where there are no weights.
    let weights = fixed.clone();
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

/// `V I` (or `V I / H`) of the `V` voxels of each image of a batch, summed over it, and the gradient to
/// the table, which is that of all shards.
fn information(votes: Vec<Tensor<3>>, voxels: usize, which: Information) -> Whole {
    // The loss is `-I` or `1 - I / H`, averaged over the batch.
    let offset = match which {
        Information::Mutual => 0.0,
        Information::Normalized => -1.0,
    };
    let scale = -((votes[0].dims()[0] * voxels) as f64);
    let value = information_loss(votes[0].clone(), which).add_scalar(offset).mul_scalar(scale);
    let slope = |votes: Tensor<3>| {
        let scale = Tensor::<1>::full([1], scale, (&votes.device(), votes.dtype()));
        let (votes, scale) = (votes.into_dispatch(), scale.into_dispatch());
        <Dispatch as InformationOps>::information_loss_backward(votes, scale, which)
    };
    let slopes = votes.into_iter().map(|votes| Tensor::from_dispatch(slope(votes)));
    Whole { value, slopes: slopes.collect() }
}

/// The gradient of the information to the voxels of a block.
fn to_moved(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    slope: Tensor<3>,
    options: &HistogramOptions,
) -> Tensor<5> {
    let fixed = fixed.into_dispatch();
    // Bound, but not read where there are no weights.
    let weights = fixed.clone();
    let binning = Binning { options: *options, weighted: false };
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
