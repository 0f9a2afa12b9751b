//! Adam's direction of a sharded gradient: the serial one, with the root mean square and the longest
//! vector of the whole field.

use burn::Tensor;
use burn::backend::Dispatch;

use super::collective::{all_reduce, broadcast, reduce};
use super::exchange::Reduction;
use super::sharded::Sharded;
use ffdp_burn::ops::adam::{AdamConstants, AdamOps};
use ffdp_burn::ops::{AdamOptions, Moments, sum_of_fields};

/// The running moments of a sharded gradient; by default they have seen nothing.
#[derive(Clone, Debug, Default)]
pub struct ShardedMoments {
    /// Of each shard, all with the same count and mean square of the whole field; empty before the
    /// first gradient.
    pub(super) shards: Vec<Moments>,
}

/// What [`adam`] proposes.
#[derive(Clone, Debug)]
pub struct ShardedStep {
    /// The direction, cut as the gradient; a step goes against it.
    pub direction: Sharded,
    /// The length of the longest vector of each field of the batch, over all shards, `[N]` on
    /// every shard's device.
    pub longest: Vec<Tensor<1>>,
}

/// [`ops::adam`](ffdp_burn::ops::adam()) of a sharded gradient. Not differentiable.
///
/// # Panics
/// As the serial operation; if the moments are cut differently; or if there is a gradient floor and
/// the second decay is 0.
pub fn adam(gradient: Sharded, moments: &mut ShardedMoments, options: &AdamOptions) -> ShardedStep {
    let count = gradient.layout().count();
    if moments.shards.is_empty() {
        moments.shards = vec![Moments::default(); count];
    }
    let known = moments.shards.len();
    assert!(known == count, "adam: moments of {known} shards for a gradient of {count}");
    let pairs = moments.shards.iter_mut().zip(gradient.shards());
    let taken: Vec<_> = pairs.map(|(moments, shard)| moments.take(shard, options)).collect();
    let before: Vec<Tensor<1>> = taken.iter().map(|(_, power, _)| power.clone()).collect();
    let powers = match count > 1 && options.gradient_floor > 0.0 {
        true => Powers::new(&gradient, before, options),
        false => Powers { corrected: before, after: None },
    };
    let (mut directions, mut longest) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let layout = gradient.layout().clone();
    let shards = gradient.into_shards().into_iter().zip(taken).zip(powers.corrected);
    for (k, ((shard, (values, _, seen)), corrected)) in shards.enumerate() {
        let [mean, square] = values.map(Tensor::into_dispatch);
        let (direction, length, mean, square, power) = <Dispatch as AdamOps>::adam_3d(
            shard.into_dispatch(),
            mean,
            square,
            corrected.into_dispatch(),
            AdamConstants::new(options, seen + 1),
        );
        let power = match &powers.after {
            Some(after) => after[k].clone(),
            None => Tensor::from_dispatch(power),
        };
        let values = [mean, square].map(Tensor::from_dispatch);
        moments.shards[k].put(values, power, 1, options);
        directions.push(Tensor::from_dispatch(direction));
        longest.push(Tensor::from_dispatch(length));
    }
    let direction = Sharded::new(directions, layout);
    ShardedStep { direction, longest: all_reduce(longest, Reduction::Max) }
}

/// The mean of `v` over the field, of which the direction's floor is made.
///
/// The operation on a shard computes it as `b2 before + (1 - b2) mean g^2` with the mean of its own
/// `g`. To make it arrive at the mean of the whole field, it is given
/// ```text
/// before = (after - (1 - b2) mean_shard g^2) / b2,      after = mean_field v
/// ```
struct Powers {
    /// What each shard is given, `[N]`.
    corrected: Vec<Tensor<1>>,
    /// The mean after the gradient, on every shard's device; `None`: that of the shard.
    after: Option<Vec<Tensor<1>>>,
}

impl Powers {
    fn new(gradient: &Sharded, before: Vec<Tensor<1>>, options: &AdamOptions) -> Self {
        let [_, b2] = options.beta;
        assert!(
            b2 > 0.0,
            "adam: with a gradient floor shards need a positive second decay, got {b2}"
        );
        let layout = gradient.layout();
        let fresh: Vec<Tensor<1>> =
            gradient.shards().iter().map(|g| mean_square(g).mul_scalar(1.0 - b2)).collect();
        let part = |k: usize| layout.planes(k).len() as f64 / layout.extent() as f64;
        let shares = before.into_iter().zip(&fresh).enumerate();
        let shares = shares.map(|(k, (before, fresh))| {
            (before.mul_scalar(b2) + fresh.clone()).mul_scalar(part(k))
        });
        let after = broadcast(&reduce(shares, Reduction::Sum), gradient.mesh().devices());
        let corrected = after.iter().zip(fresh);
        let corrected =
            corrected.map(|(after, fresh)| (after.clone() - fresh).mul_scalar(1.0 / b2));
        Self { corrected: corrected.collect(), after: Some(after) }
    }
}

/// `mean g^2` of each field of a batch, `[N]`.
fn mean_square(g: &Tensor<5>) -> Tensor<1> {
    let values = g.shape().num_elements() / g.dims()[0];
    sum_of_fields(g.clone() * g.clone()).div_scalar(values as f64)
}
