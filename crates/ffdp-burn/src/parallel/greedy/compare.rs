//! A measure of two sharded images with its gradient to the moved one, off the tape: what
//! [`ops::deform`](crate::ops::deform()) improves, whatever the cuts.

use burn::Tensor;
use burn::backend::Dispatch;

use crate::ops::information::InformationOps;
use crate::ops::joint_histogram::{Binning, JointHistogramOps};
use crate::ops::lncc::{LnccCall, LnccOps, lncc_sum};
use crate::ops::mse::squared_difference_sum;
use crate::ops::{HistogramOptions, Information, LnccOptions, Measure, information_loss};
use crate::parallel::collective::{Reduction, broadcast, reduce};
use crate::parallel::halo::{Beyond, Haloed};
use crate::parallel::overlap::strips;
use crate::parallel::reductions::joint_histogram_votes;
use crate::parallel::sharded::Sharded;

/// Of the gradients to the moved and the fixed image.
const TO_MOVED: [bool; 2] = [true, false];

/// The fixed image as the iterations compare with it.
pub(super) enum Comparison {
    /// `sum n`; the fixed image in blocks with the halo of [`lncc_halo`].
    Lncc(LnccOptions, Haloed),
    /// `sum (moved - fixed)^2`.
    SquaredDifference,
    /// `V I` or `V I / H`.
    Information(HistogramOptions, Information),
}

/// The gradient at a voxel comes from windows centred at most `r` away, which hold voxels at most
/// `2 r` away: with so wide a halo it is complete, and nothing needs to be sent back.
fn lncc_halo(options: &LnccOptions) -> usize {
    2 * (options.window / 2)
}

impl Comparison {
    pub fn new(fixed: &Sharded, measure: Measure) -> Self {
        match measure {
            Measure::Lncc(options) => {
                Self::Lncc(options, fixed.with_halo(lncc_halo(&options), Beyond::Nothing))
            }
            Measure::SquaredDifference => Self::SquaredDifference,
            Measure::MutualInformation(options) => Self::Information(options, Information::Mutual),
            Measure::NormalizedMutualInformation(options) => {
                Self::Information(options, Information::Normalized)
            }
        }
    }

    /// The measure, `[1]` on the device of the first shard, and its gradient up to a constant.
    pub fn compare(&self, moved: &Sharded, fixed: &Sharded) -> (Tensor<1>, Sharded) {
        match self {
            Self::Lncc(options, blocks) => lncc(moved, fixed, blocks, options),
            Self::SquaredDifference => squared_difference(moved, fixed),
            Self::Information(options, which) => information(moved, fixed, options, *which),
        }
    }
}

fn squared_difference(moved: &Sharded, fixed: &Sharded) -> (Tensor<1>, Sharded) {
    let pairs = moved.shards().iter().cloned().zip(fixed.shards().iter().cloned());
    let sums = pairs.map(|(moved, fixed)| squared_difference_sum(moved, fixed));
    (reduce(sums, Reduction::Sum), moved.clone().zip_map(fixed, Tensor::sub))
}

/// The sums of blocks less those of the strips in which they overlap, see `overlap.rs`; gradients
/// from the blocks alone.
fn lncc(
    moved: &Sharded,
    fixed: &Sharded,
    blocks: &Haloed,
    options: &LnccOptions,
) -> (Tensor<1>, Sharded) {
    let halo = lncc_halo(options);
    let call = LnccCall { options: *options, weighted: false };
    let (mut sums, mut blocks) = (Vec::new(), blocks.blocks().iter());
    let gradient = moved.through_halo(halo, |moved| {
        let fixed = blocks.next().expect("one for each shard").clone().into_dispatch();
        // Bound, but not read where there are no weights.
        let weights = fixed.clone();
        let (sum, gradient, _) = <Dispatch as LnccOps>::lncc_3d_with_gradient(
            moved.into_dispatch(),
            fixed,
            weights,
            call,
            TO_MOVED,
        );
        sums.push(Tensor::from_dispatch(sum));
        Tensor::from_dispatch(gradient)
    });
    let twice = strips([moved, fixed], halo);
    sums.extend(twice.map(|[moved, fixed]| lncc_sum(moved, fixed, options).neg()));
    (reduce(sums, Reduction::Sum), gradient)
}

/// `V I` (or `V I / H`) of the `V` voxels of each image of a batch, summed over it. The table is that of all
/// shards, and so is its gradient, from which each takes that of its voxels.
fn information(
    moved: &Sharded,
    fixed: &Sharded,
    options: &HistogramOptions,
    which: Information,
) -> (Tensor<1>, Sharded) {
    let votes = joint_histogram_votes(moved, fixed, options);
    // The loss is `-I` or `1 - I / H`, averaged over the batch.
    let offset = match which {
        Information::Mutual => 0.0,
        Information::Normalized => -1.0,
    };
    let scale = -(moved.dims().into_iter().product::<usize>() as f64);
    let slope = Tensor::<1>::full([1], scale, (&votes.device(), votes.dtype()));
    let value = information_loss(votes.clone(), which).add_scalar(offset).mul_scalar(scale);
    let slope =
        Tensor::<3>::from_dispatch(<Dispatch as InformationOps>::information_loss_backward(
            votes.into_dispatch(),
            slope.into_dispatch(),
            which,
        ));
    let mut slopes = broadcast(&slope, moved.mesh().devices()).into_iter();
    let binning = Binning { options: *options, weighted: false };
    let gradient = moved.clone().zip_map(fixed, |moved, fixed| {
        let fixed = fixed.into_dispatch();
        // Bound, but not read where there are no weights.
        let weights = fixed.clone();
        let slope = slopes.next().expect("one for each shard").into_dispatch();
        let (gradient, _) = <Dispatch as JointHistogramOps>::joint_histogram_3d_backward(
            moved.into_dispatch(),
            fixed,
            weights,
            slope,
            binning,
            TO_MOVED,
        );
        Tensor::from_dispatch(gradient)
    });
    (value, gradient)
}
