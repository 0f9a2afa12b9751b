//! A similarity of two images in blocks, with its gradient to them, off the tape: whatever the cuts.

use std::sync::Arc;

use burn::Tensor;
use burn::tensor::{DType, Device};

use super::block::Block;
use crate::device_mesh::DeviceMesh;
use ffdp_burn::losses::{Pair, PairGradients, SimilarityLoss, counted};
use ffdp_burn::ops::sum_of_all;
use ffdp_burn::ops::weights::joint_weights;

/// What a loss is made of, added up over all blocks.
pub(crate) struct Sums {
    /// How many values count.
    pub count: Tensor<1>,
    /// Those of the [similarity](SimilarityLoss::partial).
    pub total: Tensor<1>,
}

impl Sums {
    /// Of the [parts](Comparison::parts) of all blocks, added up; so many `others` come after them.
    pub fn of(parts: &Tensor<1>, others: usize) -> Self {
        let total = parts.clone().narrow(0, 1, parts.dims()[0] - 1 - others);
        Self { count: Self::count(parts), total }
    }

    /// The same without those of the similarity, which may be missing.
    pub fn count(parts: &Tensor<1>) -> Tensor<1> {
        counted(parts.clone().narrow(0, 0, 1))
    }
}

/// How blocks are compared:
/// ```text
/// for each block      its parts in the sums            parts
/// over all blocks     the loss and its slope           Sums, loss, slope
/// for each block      the gradients to both images     compare
/// ```
/// Of a mean the slope is known before the sums are: one pass over the blocks gives parts and gradients.
///
/// A mask is the last channel of its image, so that whatever sends, shows or keeps the one does so with the
/// other. A voxel counts as much as both masks say, and the gradient takes that as a constant.
#[derive(Clone)]
pub(crate) struct Comparison {
    pub similarity: Arc<dyn SimilarityLoss>,
    /// Whether the fixed and the moving image have one.
    pub masked: [bool; 2],
}

impl Comparison {
    /// How far around a voxel its gradient looks: it comes from terms at most a reach away, which look at voxels
    /// as far again.
    pub fn reach(&self) -> usize {
        2 * self.similarity.reach_voxels()
    }

    /// `count d loss / d sums` of a mean, which is the same whatever the sums, on the device of every place of a mesh;
    /// none of other losses.
    pub fn mean_slopes(&self, mesh: &DeviceMesh, dtype: DType) -> Vec<Tensor<1>> {
        if !self.similarity.is_mean() {
            return Vec::new();
        }
        // As large as a term looks.
        let n = 2 * self.similarity.reach_voxels() + 2;
        let channels = self.similarity.least_channels();
        let slope = |device: &Device| {
            let none = Tensor::<5>::zeros([1, channels, n, n, n], (device, dtype));
            let sums = self.similarity.partial(&Pair::new(none.clone(), none));
            self.similarity.slope(&sums.zeros_like(), &Tensor::ones([1], (device, dtype)))
        };
        mesh.devices().iter().map(slope).collect()
    }

    pub fn is_weighted(&self) -> bool {
        self.masked.contains(&true)
    }

    /// Images without their masks, and how much their values count; all the same without. `inside` are more weights.
    pub fn pair(&self, [moved, fixed]: [Tensor<5>; 2], inside: Option<Tensor<5>>) -> Pair {
        let (fixed, fixed_mask) = without_mask(fixed, self.masked[0]);
        let (moved, moving_mask) = without_mask(moved, self.masked[1]);
        let weights = joint_weights(fixed_mask, moving_mask);
        Pair::weighted(moved, fixed, joint_weights(weights, inside))
    }

    /// How many values of a block's own planes count.
    pub fn count(&self, block: &Block, pair: &Pair) -> Tensor<1> {
        match &pair.weights {
            Some(weights) => sum_of_all(block.narrow(weights, &block.own)),
            None => {
                let [batch, channels, d, h, w] = pair.moved.dims();
                let values = batch * channels * d * h * w / block.all.len() * block.own.len();
                Tensor::full([1], values as f64, (&pair.moved.device(), pair.moved.dtype()))
            }
        }
    }

    /// What a block adds to the sums: first how many values count.
    pub fn parts(&self, block: &Block, pair: &Pair) -> Vec<Tensor<1>> {
        vec![self.count(block, pair), self.partial(block, pair)]
    }

    /// The loss of the sums over all blocks.
    pub fn loss(&self, Sums { count, total }: &Sums) -> Tensor<1> {
        self.similarity.finish(total.clone(), count.clone())
    }

    /// `count d loss / d sums`.
    pub fn slope(&self, Sums { count, total }: &Sums) -> Tensor<1> {
        self.similarity.slope(total, count)
    }

    /// The part of a block in the sums: those of all its planes less those of the planes that the block below has as
    /// well: every voxel once over all blocks, see `overlap.rs`.
    fn partial(&self, block: &Block, pair: &Pair) -> Tensor<1> {
        self.once(block, pair, self.similarity.partial(pair))
    }

    /// The gradients that are needed, right at least `reach` planes within the block's ends, and of a
    /// [mean](SimilarityLoss::is_mean) the block's [parts](Self::parts).
    pub fn compare(
        &self,
        block: &Block,
        pair: &Pair,
        slope: &Tensor<1>,
        needs: [bool; 2],
    ) -> (Vec<Tensor<1>>, PairGradients) {
        if !self.similarity.is_mean() {
            return (Vec::new(), self.similarity.gradient(pair, slope, needs));
        }
        if needs == [false; 2] {
            return (self.parts(block, pair), [None, None]);
        }
        let (sums, gradients) = self.similarity.partial_and_gradient(pair, slope, needs);
        (vec![self.count(block, pair), self.once(block, pair, sums)], gradients)
    }

    fn once(&self, block: &Block, pair: &Pair, sums: Tensor<1>) -> Tensor<1> {
        let Some(planes) = block.shared() else { return sums };
        let strip = |image: &Tensor<5>| block.narrow(image, &planes);
        let strip = Pair {
            moved: strip(&pair.moved),
            fixed: strip(&pair.fixed),
            weights: pair.weights.as_ref().map(strip),
        };
        sums - self.similarity.partial(&strip)
    }

    /// A gradient to an image as one to what was shown, which may have a mask; `image` 0 is the fixed one.
    pub fn with_mask(&self, image: usize, gradient: Tensor<5>) -> Tensor<5> {
        if !self.masked[image] {
            return gradient;
        }
        let none = gradient.clone().narrow(1, 0, 1).zeros_like();
        Tensor::cat(vec![gradient, none], 1)
    }
}

/// An image whose last channel may be its mask, and that.
pub fn without_mask(image: Tensor<5>, is_masked: bool) -> (Tensor<5>, Option<Tensor<5>>) {
    if !is_masked {
        return (image, None);
    }
    let channels = image.dims()[1] - 1;
    let mask = image.clone().narrow(1, channels, 1);
    (image.narrow(1, 0, channels), Some(mask))
}
