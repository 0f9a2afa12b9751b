//! A measure of two sharded images with its gradient to the moved one, off the tape: what
//! [`ops::greedy`](crate::ops::greedy()) minimises, whatever the cuts.

use burn::Tensor;

use crate::ops::joint_histogram::joint_votes;
use crate::ops::lncc::lncc_sum;
use crate::ops::mse::squared_difference_sum;
use crate::ops::{HistogramOptions, Information, LnccOptions, Measure, information_loss};
use crate::parallel::collective::{Reduction, broadcast, reduce};
use crate::parallel::halo::{Beyond, Haloed};
use crate::parallel::overlap::strips;
use crate::parallel::sharded::Sharded;

/// The fixed image as the iterations compare with it.
pub(super) struct Comparison {
    measure: Measure,
    /// With the halo of [`lncc_halo`].
    blocks: Option<Haloed>,
}

/// The gradient at a voxel comes from windows centred at most `r` away, which hold voxels at most
/// `2 r` away: with so wide a halo it is complete, and nothing needs to be sent back.
fn lncc_halo(options: &LnccOptions) -> usize {
    2 * (options.window / 2)
}

impl Comparison {
    pub fn new(fixed: &Sharded, measure: Measure) -> Self {
        let blocks = match measure {
            Measure::Lncc(options) => Some(fixed.with_halo(lncc_halo(&options), Beyond::Nothing)),
            Measure::SquaredDifference | Measure::MutualInformation(_) => None,
        };
        Self { measure, blocks }
    }

    /// The measure, `[1]` on the device of the first shard, and its gradient up to a constant.
    pub fn compare(&self, moved: &Sharded, fixed: &Sharded) -> (Tensor<1>, Sharded) {
        match (self.measure, &self.blocks) {
            (Measure::Lncc(options), Some(blocks)) => lncc(moved, fixed, blocks, &options),
            (Measure::MutualInformation(options), _) => mutual_information(moved, fixed, &options),
            _ => squared_difference(moved, fixed),
        }
    }
}

fn squared_difference(moved: &Sharded, fixed: &Sharded) -> (Tensor<1>, Sharded) {
    let pairs = moved.shards().iter().cloned().zip(fixed.shards().iter().cloned());
    let sums = pairs.map(|(moved, fixed)| squared_difference_sum(moved, fixed));
    (reduce(sums, Reduction::Sum), moved.clone().zip_map(fixed, Tensor::sub))
}

fn lncc(
    moved: &Sharded,
    fixed: &Sharded,
    fixed_blocks: &Haloed,
    options: &LnccOptions,
) -> (Tensor<1>, Sharded) {
    let halo = lncc_halo(options);
    let mut sums = Vec::new();
    let mut fixed_blocks = fixed_blocks.blocks().iter();
    let gradient = moved.through_halo(halo, |moved| {
        let fixed = fixed_blocks.next().expect("one for each shard").clone();
        let (sum, gradient) =
            value_and_gradient(moved, |moved| lncc_sum(moved, fixed.autodiff(), options));
        sums.push(sum);
        gradient
    });
    let twice = strips([moved, fixed], halo);
    sums.extend(twice.map(|[moved, fixed]| lncc_sum(moved, fixed, options).neg()));
    (reduce(sums, Reduction::Sum), gradient)
}

/// `V I` of the `V` voxels of each image of a batch, summed over it.
fn mutual_information(
    moved: &Sharded,
    fixed: &Sharded,
    options: &HistogramOptions,
) -> (Tensor<1>, Sharded) {
    let tracked = moved.clone().map(|shard| shard.autodiff().require_grad());
    let pairs = tracked.shards().iter().zip(fixed.shards());
    let votes: Vec<Tensor<3>> = pairs
        .map(|(moved, fixed)| joint_votes(moved.clone(), fixed.clone().autodiff(), None, options))
        .collect();
    let total = reduce(votes.iter().map(|votes| votes.clone().inner()), Reduction::Sum);
    // The loss is `-I`, averaged over the batch.
    let scale = -(moved.dims().into_iter().product::<usize>() as f64);
    let (value, slope) = {
        let total = total.autodiff().require_grad();
        let value = information_loss(total.clone(), Information::Mutual).mul_scalar(scale);
        let slope = total.grad(&value.backward()).expect("the loss depends on the votes");
        (value.inner(), slope)
    };
    let slopes = broadcast(&slope, moved.mesh().devices());
    let gradients =
        tracked.shards().iter().zip(votes).zip(slopes).map(|((moved, votes), slope)| {
            let gradients = (votes * slope.autodiff()).sum().backward();
            moved.grad(&gradients).expect("votes depend on the moved image")
        });
    (value, Sharded::new(gradients.collect(), moved.layout().clone()))
}

/// A number `[1]` made of a block, and its gradient.
fn value_and_gradient(
    block: Tensor<5>,
    number: impl FnOnce(Tensor<5>) -> Tensor<1>,
) -> (Tensor<1>, Tensor<5>) {
    let block = block.autodiff().require_grad();
    let number = number(block.clone());
    let gradient = block.grad(&number.backward()).expect("the number depends on the block");
    (number.inner(), gradient)
}
