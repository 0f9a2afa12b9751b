//! Numbers of a whole sharded volume, on the device of the first shard: nothing waits.

use burn::Tensor;

use super::collective::reduce;
use super::exchange::Reduction;
use super::sharded::Sharded;
use ffdp_burn::ops::joint_histogram::joint_votes;
use ffdp_burn::ops::{HistogramOptions, longest_squared};

/// The smallest and the largest value, `[1]` each.
pub fn min_max(x: &Sharded) -> [Tensor<1>; 2] {
    let shards = || x.shards().iter().cloned();
    [
        reduce(shards().map(Tensor::min), Reduction::Min),
        reduce(shards().map(Tensor::max), Reduction::Max),
    ]
}

/// The length of the longest vector of a field `[N, 3, D, H, W]`, over the batch, `[1]`.
pub fn max_norm(field: &Sharded) -> Tensor<1> {
    let longest = |u: &Tensor<5>| longest_squared(u.clone()).sqrt();
    reduce(field.shards().iter().map(longest), Reduction::Max)
}

/// [`joint_votes`] of sharded images `[N, 1, D, H, W]`: the table `[N, B, B]` of the whole.
/// Differentiable in both.
///
/// # Panics
/// If the cuts differ, or as [`joint_votes`].
pub fn joint_histogram_votes(a: &Sharded, b: &Sharded, options: &HistogramOptions) -> Tensor<3> {
    a.check_layout(b);
    let pairs = a.shards().iter().zip(b.shards());
    let votes = pairs.map(|(a, b)| joint_votes(a.clone(), b.clone(), None, options));
    reduce(votes, Reduction::Sum)
}
