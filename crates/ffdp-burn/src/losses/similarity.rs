//! What every similarity is: sums over voxels that parts of an image share, and a loss made of them.
//!
//! ```text
//! loss = finish(sum over parts of partial(part), number of values)
//! ```
//! A part may be a whole image, a shard, a slab of a file or what another process holds: the same code
//! compares all of them, in linear stages, deformable ones and training. The number of values is the sum of
//! their weights where there are any, and no gradient reaches it.
//!
//! A similarity of one's own states `partial` and `finish` by tensor operations; Burn's tape then gives its
//! gradient. Those of this crate override [`SimilarityLoss::gradient`] by fused kernels.

use std::fmt::Debug;

use burn::Tensor;

use crate::ops::weights::NO_WEIGHT;
use crate::ops::{Measure, sum_of_all};

/// Two images of one grid, or the same part of both.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The moving image as a transform shows it, `[N, C, D, H, W]`.
    pub moved: Tensor<5>,
    /// The fixed image, of the same shape.
    pub fixed: Tensor<5>,
    /// How much each value counts, in 0..1, of the same shape; without, all count 1.
    pub weights: Option<Tensor<5>>,
}

impl Pair {
    /// Two images whose values all count the same.
    pub fn new(moved: Tensor<5>, fixed: Tensor<5>) -> Self {
        Self { moved, fixed, weights: None }
    }

    /// Two images whose values count as much as `weights` `[N or 1, C or 1, D, H, W]` say.
    ///
    /// # Panics
    /// If the weights do not fit the images.
    pub fn weighted(moved: Tensor<5>, fixed: Tensor<5>, weights: Option<Tensor<5>>) -> Self {
        let weights = weights.map(|weights| weights.detach().expand(moved.dims()));
        Self { moved, fixed, weights }
    }

    /// How many values count, `[1]`: all of them, or the sum of their weights.
    pub fn count(&self) -> Tensor<1> {
        match &self.weights {
            Some(weights) => sum_of_all(weights.clone()),
            None => {
                let values = self.moved.shape().num_elements() as f64;
                Tensor::full([1], values, (&self.moved.device(), self.moved.dtype()))
            }
        }
    }
}

/// The gradients to the moved and to the fixed image, where they were asked for.
pub type PairGradients = [Option<Tensor<5>>; 2];

/// A similarity loss of two images of one grid; smaller is more alike.
///
/// ```text
/// loss = finish(sum over parts of partial(part), number of values)
/// ```
/// A part may be a whole image, a shard, a slab of a file or what another process holds. The first two methods are
/// enough; the others say what makes it faster.
pub trait SimilarityLoss: Debug + Send + Sync {
    /// The sums that add up over the parts of an image, `[K]`. Differentiable in both images (first order).
    ///
    /// # Panics
    /// If the shapes differ.
    fn partial(&self, pair: &Pair) -> Tensor<1>;

    /// The loss `[1]` of the sums of all parts, `[K]`, over `count` values, `[1]`: the same for twice the sums over twice
    /// as many values. Differentiable.
    fn finish(&self, total: Tensor<1>, count: Tensor<1>) -> Tensor<1>;

    /// How far a voxel's term of the sums looks along each axis, in voxels; 0 by default.
    fn reach_voxels(&self) -> usize {
        0
    }

    /// Whether [`finish`](Self::finish) is linear in the sums. Their slope is then known before they are, so that
    /// one pass over the parts gives sums and gradients. No by default, which is always right.
    fn is_mean(&self) -> bool {
        false
    }

    /// Whether the loss is a mean of squared differences: half the gradient over the slope of the image is then a
    /// step of Gauss and Newton in voxels, not a direction alone. No by default.
    fn is_least_squares(&self) -> bool {
        false
    }

    /// Whether voxels that see nothing of the moving image may be left out, where a linear stage asks for it. No by
    /// default: otherwise shifting the image out of view would lower the squared difference.
    fn may_ignore_outside(&self) -> bool {
        false
    }

    /// Whether equal tissue is expected to have equal intensities, or intensities that are linear in each other within
    /// a window: no two modalities have. No by default.
    fn compares_intensities(&self) -> bool {
        false
    }

    /// About by how much the loss falls when two images in 0..1 are registered: penalties that have no weight of their
    /// own are weighed by it. 0.5 by default.
    fn usual_gain(&self) -> f64 {
        0.5
    }

    /// Channels `[N, K, D, H, W]` of an image `[N, C, D, H, W]` whose squared difference from those of another, summed, is
    /// `weight` times what a voxel adds to the loss: what a search compares that cannot ask for the loss of each of its
    /// displacements ([`discrete`](crate::ops::discrete())). `None` by default: the loss is no difference of features.
    fn features(&self, _image: &Tensor<5>, _weight: f64) -> Option<Tensor<5>> {
        None
    }

    /// The fewest channels that it can compare: one more than the last one that it names. One by default.
    fn least_channels(&self) -> usize {
        1
    }

    /// `count d loss / d total`, `[K]`. By default by Burn's tape.
    fn slope(&self, total: &Tensor<1>, count: &Tensor<1>) -> Tensor<1> {
        let tracked = total.clone().autodiff().require_grad();
        let loss = self.finish(tracked.clone(), count.clone().autodiff());
        let slope = tracked.grad(&loss.backward());
        slope.map_or_else(|| total.zeros_like(), |slope| slope * count.clone())
    }

    /// The gradients of the product of the [`partial`](Self::partial) sums with `slope` `[K]`, off the tape: with that
    /// of [`slope`](Self::slope) `count` times those of the loss. By default by Burn's tape.
    ///
    /// # Panics
    /// If the shapes differ or a tensor is on the tape.
    fn gradient(&self, pair: &Pair, slope: &Tensor<1>, needs: [bool; 2]) -> PairGradients {
        let track = |image: &Tensor<5>, needed| {
            let image = image.clone().autodiff();
            if needed { image.require_grad() } else { image }
        };
        let pair = Pair {
            moved: track(&pair.moved, needs[0]),
            fixed: track(&pair.fixed, needs[1]),
            weights: pair.weights.clone().map(Tensor::autodiff),
        };
        let tape = (self.partial(&pair) * slope.clone().autodiff()).backward();
        let gradient = |image: &Tensor<5>, needed: bool| {
            let found = || image.grad(&tape).unwrap_or_else(|| image.clone().inner().zeros_like());
            needed.then(found)
        };
        [gradient(&pair.moved, needs[0]), gradient(&pair.fixed, needs[1])]
    }

    /// [`partial`](Self::partial) and [`gradient`](Self::gradient), for a kernel that gives both at once.
    ///
    /// # Panics
    /// As [`SimilarityLoss::gradient`].
    fn partial_and_gradient(
        &self,
        pair: &Pair,
        slope: &Tensor<1>,
        needs: [bool; 2],
    ) -> (Tensor<1>, PairGradients) {
        (self.partial(pair), self.gradient(pair, slope, needs))
    }

    /// About `count d^2 loss / d moved^2` of each value alone, not negative, with the weights: what Gauss and Newton's
    /// method takes for the second derivative; right at least twice [`reach_voxels`](Self::reach_voxels) within the
    /// ends of a part. `total` and `count` are those of all parts. `None` by default: the loss then counts as a log-likelihood, whose second derivative is
    /// expected to be the mean square of its slope (Fisher's information), see [`nats`](Self::nats).
    fn curvature(&self, _pair: &Pair, _total: &Tensor<1>, _count: &Tensor<1>) -> Option<Tensor<5>> {
        None
    }

    /// How many nats of a log-likelihood a unit of the loss is, `[1]`. One by default.
    fn nats(&self, _total: &Tensor<1>, count: &Tensor<1>) -> Tensor<1> {
        count.ones_like()
    }

    /// The same loss as the fused iterations of [`deform`](crate::ops::deform()) know it, if they do. `None` by
    /// default: the iterations then call the methods above.
    fn measure(&self) -> Option<Measure> {
        None
    }

    /// The loss of whole images, `[1]`. Differentiable.
    ///
    /// # Panics
    /// As [`SimilarityLoss::partial`].
    fn loss_of(&self, pair: &Pair) -> Tensor<1> {
        self.finish(self.partial(pair), counted(pair.count()))
    }

    /// [`loss_of`](Self::loss_of) each entry of a batch by itself, `[N]`. By default one after the other; not
    /// differentiable unless a loss says so.
    ///
    /// # Panics
    /// As [`SimilarityLoss::partial`].
    fn losses_of(&self, pair: &Pair) -> Tensor<1> {
        let entry = |k: usize| {
            let at = |image: &Tensor<5>| image.clone().narrow(0, k, 1);
            let weights = pair.weights.as_ref().map(at);
            self.loss_of(&Pair { moved: at(&pair.moved), fixed: at(&pair.fixed), weights })
        };
        Tensor::cat((0..pair.moved.dims()[0]).map(entry).collect(), 0)
    }

    /// [`losses_of`](Self::losses_of) a batch and the gradient of each to its moved image, `[N, C, D, H, W]`, by as many
    /// launches as for one entry. `None` by default: they are then asked for one after the other.
    ///
    /// # Panics
    /// As [`SimilarityLoss::gradient`].
    fn losses_and_gradients_of(&self, _pair: &Pair) -> Option<(Tensor<1>, Tensor<5>)> {
        None
    }

    /// [`loss_of`](Self::loss_of) images `[N, C, D, H, W]` whose values all count the same.
    ///
    /// # Panics
    /// As [`SimilarityLoss::partial`].
    fn loss(&self, moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1> {
        self.loss_of(&Pair::new(moved, fixed))
    }
}

/// Features whose squares count `weight` times.
pub(super) fn scaled_features(features: Tensor<5>, weight: f64) -> Tensor<5> {
    // Nothing to do for the usual descriptors of one channel.
    if (weight - 1.0).abs() < 1e-9 { features } else { features.mul_scalar(weight.sqrt()) }
}

/// The number of values that count, as losses are divided by it: finite where nothing counts.
pub fn counted(count: Tensor<1>) -> Tensor<1> {
    count.add_scalar(NO_WEIGHT)
}
