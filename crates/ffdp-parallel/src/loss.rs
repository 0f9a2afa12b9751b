//! Similarity losses of sharded images: partial sums of shards, added up, finished once.

use burn::Tensor;

use super::overlap::sum_of_blocks;
use super::sharded::Sharded;
use ffdp_burn::losses::{Pair, SimilarityLoss, counted};

/// The loss of sharded images, `[1]` on the device of the first shard: the serial one, whatever the
/// cuts. Windows that reach over a seam are whole and counted once. Differentiable in both images.
///
/// # Panics
/// If shapes or cuts differ.
pub fn loss(similarity: &dyn SimilarityLoss, moved: &Sharded, fixed: &Sharded) -> Tensor<1> {
    if let ([moved], [fixed]) = (moved.shards(), fixed.shards()) {
        return similarity.loss(moved.clone(), fixed.clone());
    }
    let partial = |[moved, fixed]: [Tensor<5>; 2]| similarity.partial(&Pair::new(moved, fixed));
    let total = sum_of_blocks([moved, fixed], similarity.reach_voxels(), partial);
    let values = moved.dims().into_iter().product::<usize>() as f64;
    let count = Tensor::full([1], values, (&total.device(), total.dtype()));
    similarity.finish(total, counted(count))
}
