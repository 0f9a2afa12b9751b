//! From the gradients of shards to Adam's moments, and how long the step is that they propose. The step itself is
//! taken in `step.rs`.

use burn::Tensor;
use burn::backend::Dispatch;

use super::homes::Homes;
use crate::error::Result;
use crate::ops::adam::AdamConstants;
use crate::ops::adam::part::AdamPartOps;
use crate::ops::{AdamOptions, GaussianOptions, Moments};
use crate::parallel::adam::ShardedMoments;
use crate::parallel::exchange::Reduction;
use crate::parallel::hosts::Holders;
use crate::parallel::layout::Layout;
use crate::parallel::sharded::Sharded;
use crate::parallel::transfer::to_device;

/// The moments during a run, and how a step is made of them.
pub(super) struct Descent {
    adam: AdamOptions,
    /// The step along (x, y, z) for a direction of length 1, with its sign.
    pub(super) rate: [f64; 3],
    pub(super) smooth_field: GaussianOptions,
    pub(super) layout: Layout,
    pub(super) homes: Homes,
    /// `m` and `v` of every shard; `None` before the first gradient, and while they change.
    values: Vec<Option<[Tensor<5>; 2]>>,
    /// Gradients that wait for `mean v`: where a device holds one shard, whose moments are then read once
    /// less. Several gradients would take more memory than one.
    waiting: Vec<Option<Tensor<5>>>,
    /// `mean v` of the whole field, on the device of every shard.
    pub(super) power: Vec<Tensor<1>>,
    /// Gradients taken so far.
    seen: i32,
    taken: i32,
}

impl Descent {
    pub fn new(
        (adam, rate, smooth_field): (AdamOptions, [f64; 3], GaussianOptions),
        displacement: &Sharded,
        mut moments: ShardedMoments,
        homes: &Homes,
    ) -> Self {
        let layout = displacement.layout().clone();
        moments.shards.resize_with(layout.count(), Default::default);
        let shards = moments.shards.iter_mut().zip(displacement.shards());
        let (mut values, mut power, mut seen) = (Vec::new(), Vec::new(), 0);
        for (k, (moments, like)) in shards.enumerate() {
            let device = homes.device(k);
            if moments.is_fresh() {
                values.push(None);
                power.push(Tensor::zeros([like.dims()[0]], (device, like.dtype())));
                continue;
            }
            let (known, before, count) = moments.take(like, &adam);
            values.push(Some(known));
            power.push(to_device(before, device));
            seen = count;
        }
        let homes = homes.clone();
        let waiting = vec![None; layout.count()];
        let taken = 0;
        Self { adam, rate, smooth_field, layout, homes, values, waiting, power, seen, taken }
    }

    /// The moments, to keep.
    pub fn into_moments(self) -> ShardedMoments {
        let mut moments = ShardedMoments::default();
        for (values, power) in self.values.into_iter().zip(self.power) {
            let mut shard = Moments::default();
            if let Some(values) = values {
                shard.put(values, power, self.seen + self.taken, &self.adam);
            }
            moments.shards.push(shard);
        }
        moments
    }

    pub(super) fn constants(&self) -> AdamConstants {
        AdamConstants::new(&self.adam, self.seen + self.taken)
    }

    /// A new gradient begins, shard by shard. Gives the moments that [`Descent::take`] is to change, to be brought to
    /// where their shards are computed.
    pub fn begin(&mut self) -> Vec<Option<[Tensor<5>; 2]>> {
        self.taken += 1;
        let none = vec![None; self.layout.count()];
        match self.homes.mesh.is_virtual() {
            true => std::mem::replace(&mut self.values, none),
            false => none,
        }
    }

    /// The gradient of shard `k`, and its moments if there were any; returns its share of the new `mean v`, on its
    /// device.
    pub fn take(
        &mut self,
        k: usize,
        gradient: Tensor<5>,
        moments: Option<[Tensor<5>; 2]>,
    ) -> Tensor<1> {
        let before = self.power[k].clone().into_dispatch();
        let power = match self.homes.mesh.is_virtual() {
            true => {
                self.homes.settle(k);
                let moments = moments.unwrap_or_else(|| Moments::zeros(&gradient, &self.adam));
                let [mean, square] = moments.map(Tensor::into_dispatch);
                let (mean, square, power) = <Dispatch as AdamPartOps>::adam_take_3d(
                    gradient.into_dispatch(),
                    mean,
                    square,
                    before,
                    self.constants(),
                );
                let put = |values| self.homes.put_away(k, Tensor::from_dispatch(values));
                self.values[k] = Some([mean, square].map(put));
                power
            }
            false => {
                self.waiting[k] = Some(gradient.clone());
                let gradient = gradient.into_dispatch();
                <Dispatch as AdamPartOps>::adam_power_3d(gradient, before, self.constants())
            }
        };
        let share = self.layout.planes(k).len() as f64 / self.layout.extent() as f64;
        Tensor::from_dispatch(power).mul_scalar(share)
    }

    /// Once all shards have given theirs: the longest vector of the whole direction, on the device of
    /// every shard. `shares` are those of [`Descent::take`].
    pub fn longest(&mut self, shares: Vec<Tensor<1>>, holders: &Holders) -> Result<Vec<Tensor<1>>> {
        self.power = holders.all_reduce(shares, Reduction::Sum)?;
        let longest: Vec<Tensor<1>> = match self.homes.mesh.is_virtual() {
            true => {
                let bring = |k: usize| self.moments(k).map(|values| self.homes.bring(k, values));
                let moments = self.homes.in_turn(bring);
                moments.map(|(k, moments)| self.longest_of(k, moments)).collect()
            }
            false => (0..self.layout.count()).map(|k| self.advance(k)).collect(),
        };
        holders.all_reduce(longest, Reduction::Max)
    }

    /// That of shard `k`.
    fn longest_of(&self, k: usize, moments: [Tensor<5>; 2]) -> Tensor<1> {
        let power = self.power[k].clone().into_dispatch();
        let [mean, square] = moments.map(Tensor::into_dispatch);
        let constants = self.constants();
        let longest = <Dispatch as AdamPartOps>::adam_longest_3d(mean, square, power, constants);
        Tensor::from_dispatch(longest)
    }

    /// The same, once the gradient is taken that has waited.
    fn advance(&mut self, k: usize) -> Tensor<1> {
        let gradient = self.waiting[k].take().expect("gradients wait where shards are alone");
        let power = self.power[k].clone().into_dispatch();
        let [mean, square] = self.taken_out(k, &gradient);
        let (mean, square, longest) = <Dispatch as AdamPartOps>::adam_advance_3d(
            gradient.into_dispatch(),
            mean.into_dispatch(),
            square.into_dispatch(),
            power,
            self.constants(),
        );
        self.values[k] = Some([mean, square].map(Tensor::from_dispatch));
        Tensor::from_dispatch(longest)
    }

    /// The moments of shard `k` where they are computed, to be changed.
    fn taken_out(&mut self, k: usize, gradient: &Tensor<5>) -> [Tensor<5>; 2] {
        match self.values[k].take() {
            Some(values) => values.map(|values| self.homes.bring(k, values)),
            None => Moments::zeros(gradient, &self.adam),
        }
    }

    pub(super) fn moments(&self, k: usize) -> [Tensor<5>; 2] {
        self.values[k].clone().expect("no gradient is being taken")
    }
}
