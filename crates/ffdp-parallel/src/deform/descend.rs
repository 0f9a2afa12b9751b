//! From the gradients of shards to Adam's moments, and how long the step is that they propose. The step itself is
//! taken in `step.rs`.

use burn::Tensor;
use burn::backend::Dispatch;

use super::homes::Homes;
use crate::adam::ShardedMoments;
use crate::exchange::Reduction;
use crate::hosts::Holders;
use crate::layout::Layout;
use crate::sharded::Sharded;
use crate::transfer::to_device;
use ffdp_burn::ops::adam::AdamConstants;
use ffdp_burn::ops::adam::part::AdamPartOps;
use ffdp_burn::ops::{AdamOptions, GaussianOptions, Moments, Optimizer, Update, longest_squared};
use ffdp_image::error::Result;

/// What of a shard a gradient changes: its moments, if there were any.
pub(super) type Carried = Option<[Tensor<5>; 2]>;

/// How a gradient becomes a step.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub optimizer: Optimizer,
    pub update: Update,
    /// The step along (x, y, z) for a direction of length 1; a step goes against it.
    pub step_voxels: [f64; 3],
    pub smooth_field: GaussianOptions,
    /// Whether a gradient over the slope of the image has a length of its own.
    pub is_least_squares: bool,
}

impl Rule {
    pub fn adam(&self) -> Option<AdamOptions> {
        self.optimizer.adam()
    }

    /// Lengths of directions below this make full steps.
    pub fn shortest(&self) -> f64 {
        self.optimizer.shortest(self.is_least_squares)
    }
}

/// The optimiser's state during a run, and how a step is made of it.
pub(super) struct Descent {
    pub(super) rule: Rule,
    pub(super) layout: Layout,
    pub(super) homes: Homes,
    /// `m` and `v` of every shard; `None` before the first gradient, and while they change.
    values: Vec<Carried>,
    /// Of an optimiser without moments the gradients, until the step is made. With them those that wait for `mean v`:
    /// where a device holds one shard, whose moments are then read once less. Several gradients would take more memory
    /// than one.
    waiting: Vec<Option<Tensor<5>>>,
    /// `mean v` of the whole field, on the device of every shard.
    pub(super) power: Vec<Tensor<1>>,
    /// Gradients taken so far.
    seen: i32,
    taken: i32,
}

impl Descent {
    pub fn new(rule: Rule, field: &Sharded, mut moments: ShardedMoments, homes: &Homes) -> Self {
        let layout = field.layout().clone();
        moments.shards.resize_with(layout.count(), Default::default);
        let shards = moments.shards.iter_mut().zip(field.shards());
        let (mut values, mut power, mut seen) = (Vec::new(), Vec::new(), 0);
        for (k, (moments, like)) in shards.enumerate() {
            let device = homes.device(k);
            let (false, Some(adam)) = (moments.is_fresh(), rule.adam()) else {
                values.push(None);
                power.push(Tensor::zeros([like.dims()[0]], (device, like.dtype())));
                continue;
            };
            let (known, before, count) = moments.take(like, &adam);
            values.push(Some(known));
            power.push(to_device(before, device));
            seen = count;
        }
        let homes = homes.clone();
        let waiting = vec![None; layout.count()];
        Self { rule, layout, homes, values, waiting, power, seen, taken: 0 }
    }

    /// The moments, to keep.
    pub fn into_moments(self) -> ShardedMoments {
        let mut moments = ShardedMoments::default();
        for (values, power) in self.values.into_iter().zip(self.power) {
            let mut shard = Moments::default();
            if let (Some(values), Some(adam)) = (values, self.rule.adam()) {
                shard.put(values, power, self.seen + self.taken, &adam);
            }
            moments.shards.push(shard);
        }
        moments
    }

    pub(super) fn constants(&self, adam: &AdamOptions) -> AdamConstants {
        AdamConstants::new(adam, self.seen + self.taken)
    }

    /// A new gradient begins, shard by shard. Gives the moments that [`Descent::take`] is to change, to be brought to
    /// where their shards are computed.
    pub fn begin(&mut self) -> Vec<Carried> {
        self.taken += 1;
        let count = self.layout.count();
        self.waiting = vec![None; count];
        match self.homes.mesh.is_virtual() {
            true => std::mem::replace(&mut self.values, vec![None; count]),
            false => vec![None; count],
        }
    }

    /// The gradient of shard `k`, and its moments if there were any; returns its share of the new `mean v`, on its
    /// device.
    pub fn take(&mut self, k: usize, gradient: Tensor<5>, moments: Carried) -> Tensor<1> {
        let Some(adam) = self.rule.adam() else {
            self.waiting[k] = Some(self.homes.put_away(k, gradient));
            return self.power[k].clone();
        };
        let before = self.power[k].clone().into_dispatch();
        let power = match self.homes.mesh.is_virtual() {
            true => {
                self.homes.settle(k);
                let moments = moments.unwrap_or_else(|| Moments::zeros(&gradient, &adam));
                let [mean, square] = moments.map(Tensor::into_dispatch);
                let (mean, square, power) = <Dispatch as AdamPartOps>::adam_take_3d(
                    gradient.into_dispatch(),
                    mean,
                    square,
                    before,
                    self.constants(&adam),
                );
                let put = |values| self.homes.put_away(k, Tensor::from_dispatch(values));
                self.values[k] = Some([mean, square].map(put));
                power
            }
            false => {
                self.waiting[k] = Some(gradient.clone());
                let gradient = gradient.into_dispatch();
                <Dispatch as AdamPartOps>::adam_power_3d(gradient, before, self.constants(&adam))
            }
        };
        let share = self.layout.planes(k).len() as f64 / self.layout.extent() as f64;
        Tensor::from_dispatch(power).mul_scalar(share)
    }

    /// Once all shards have given theirs: the longest vector of the whole direction, on the device of
    /// every shard. `shares` are those of [`Descent::take`].
    pub fn longest(&mut self, shares: Vec<Tensor<1>>, holders: &Holders) -> Result<Vec<Tensor<1>>> {
        let count = self.layout.count();
        let longest: Vec<Tensor<1>> = match self.rule.adam() {
            None => {
                let bring = |k: usize| self.homes.bring(k, self.direction(k));
                self.homes.in_turn(bring).map(|(_, direction)| longest_vector(direction)).collect()
            }
            Some(adam) => {
                self.power = holders.all_reduce(shares, Reduction::Sum)?;
                match self.homes.mesh.is_virtual() {
                    true => {
                        let bring =
                            |k: usize| self.moments(k).map(|values| self.homes.bring(k, values));
                        let moments = self.homes.in_turn(bring);
                        moments.map(|(k, moments)| self.longest_of(k, moments, &adam)).collect()
                    }
                    false => (0..count).map(|k| self.advance(k, &adam)).collect(),
                }
            }
        };
        holders.all_reduce(longest, Reduction::Max)
    }

    /// That of shard `k`.
    fn longest_of(&self, k: usize, moments: [Tensor<5>; 2], adam: &AdamOptions) -> Tensor<1> {
        let power = self.power[k].clone().into_dispatch();
        let [mean, square] = moments.map(Tensor::into_dispatch);
        let constants = self.constants(adam);
        let longest = <Dispatch as AdamPartOps>::adam_longest_3d(mean, square, power, constants);
        Tensor::from_dispatch(longest)
    }

    /// The same, once the gradient is taken that has waited.
    fn advance(&mut self, k: usize, adam: &AdamOptions) -> Tensor<1> {
        let gradient = self.direction(k);
        self.waiting[k] = None;
        let power = self.power[k].clone().into_dispatch();
        let [mean, square] = match self.values[k].take() {
            Some(values) => values.map(|values| self.homes.bring(k, values)),
            None => Moments::zeros(&gradient, adam),
        };
        let (mean, square, longest) = <Dispatch as AdamPartOps>::adam_advance_3d(
            gradient.into_dispatch(),
            mean.into_dispatch(),
            square.into_dispatch(),
            power,
            self.constants(adam),
        );
        self.values[k] = Some([mean, square].map(Tensor::from_dispatch));
        Tensor::from_dispatch(longest)
    }

    /// The gradient of shard `k` that waits.
    fn direction(&self, k: usize) -> Tensor<5> {
        self.waiting[k].clone().expect("a gradient waits until its step is made")
    }

    fn moments(&self, k: usize) -> [Tensor<5>; 2] {
        self.values[k].clone().expect("no gradient is being taken")
    }

    /// What the step of shard `k` is made of: its moments, or its direction.
    pub(super) fn state(&self, k: usize) -> Vec<Tensor<5>> {
        match self.rule.adam() {
            Some(_) => self.moments(k).to_vec(),
            None => vec![self.direction(k)],
        }
    }
}

/// The length of the longest vector of each field of a batch, `[N]`.
fn longest_vector(field: Tensor<5>) -> Tensor<1> {
    let batch = field.dims()[0];
    let entries = (0..batch).map(|n| longest_squared(field.clone().narrow(0, n, 1)));
    let squared = match batch {
        1 => longest_squared(field),
        _ => Tensor::cat(entries.collect(), 0),
    };
    squared.sqrt()
}
