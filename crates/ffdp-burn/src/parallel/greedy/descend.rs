//! From the gradients of shards to the next displacement: Adam's moments, and the step that they
//! propose composed with the displacement, in place of it.

use burn::Tensor;
use burn::backend::Dispatch;

use super::seam::assign;
use crate::ops::adam::AdamConstants;
use crate::ops::adam::part::AdamPartOps;
use crate::ops::{AdamOptions, GaussianOptions, gaussian};
use crate::parallel::adam::ShardedMoments;
use crate::parallel::collective::{Reduction, all_reduce, broadcast, reduce};
use crate::parallel::layout::Layout;
use crate::parallel::mesh::Mesh;
use crate::parallel::sharded::{Sharded, join, narrow};
use crate::parallel::transfer::to_device;

/// The moments during a run, and how a step is made of them.
pub(super) struct Descent {
    adam: AdamOptions,
    /// The step along (x, y, z) for a direction of length 1, with its sign.
    rate: [f64; 3],
    smooth_field: GaussianOptions,
    layout: Layout,
    mesh: Mesh,
    /// `m` and `v` of every shard; `None` only while they change.
    values: Vec<Option<[Tensor<5>; 2]>>,
    /// `mean v` of the whole field, on the device of every shard.
    power: Vec<Tensor<1>>,
    /// Gradients taken so far.
    seen: i32,
    taken: i32,
}

/// What moves one shard: its part of everything that a step needs.
#[derive(Clone)]
struct Part {
    field: Tensor<5>,
    mean: Tensor<5>,
    square: Tensor<5>,
}

impl Descent {
    pub fn new(
        (adam, rate, smooth_field): (AdamOptions, [f64; 3], GaussianOptions),
        displacement: &Sharded,
        mut moments: ShardedMoments,
    ) -> Self {
        let layout = displacement.layout().clone();
        moments.shards.resize_with(layout.count(), Default::default);
        let shards = moments.shards.iter_mut().zip(displacement.shards());
        let taken: Vec<_> = shards.map(|(moments, like)| moments.take(like, &adam)).collect();
        let seen = taken[0].2;
        let power = taken.iter().map(|(_, power, _)| power.clone()).collect();
        let values = taken.into_iter().map(|(values, ..)| Some(values)).collect();
        let mesh = displacement.mesh();
        Self { adam, rate, smooth_field, layout, mesh, values, power, seen, taken: 0 }
    }

    /// The moments, to keep.
    pub fn into_moments(self) -> ShardedMoments {
        let mut moments = ShardedMoments::default();
        for (values, power) in self.values.into_iter().zip(self.power) {
            let mut shard = crate::ops::Moments::default();
            let values = values.expect("no gradient is being taken");
            shard.put(values, power, self.seen + self.taken, &self.adam);
            moments.shards.push(shard);
        }
        moments
    }

    fn constants(&self) -> AdamConstants {
        AdamConstants::new(&self.adam, self.seen + self.taken)
    }

    /// A new gradient begins, shard by shard.
    pub fn begin(&mut self) {
        self.taken += 1;
    }

    /// Takes the gradient of shard `k`; returns its share of the new `mean v`, on its device.
    pub fn take(&mut self, k: usize, gradient: Tensor<5>) -> Tensor<1> {
        let [mean, square] = self.values[k].take().expect("no gradient is being taken");
        let (mean, square, power) = <Dispatch as AdamPartOps>::adam_take_3d(
            gradient.into_dispatch(),
            mean.into_dispatch(),
            square.into_dispatch(),
            self.power[k].clone().into_dispatch(),
            self.constants(),
        );
        self.values[k] = Some([mean, square].map(Tensor::from_dispatch));
        let share = self.layout.planes(k).len() as f64 / self.layout.extent() as f64;
        Tensor::from_dispatch(power).mul_scalar(share)
    }

    /// Once all shards have taken theirs: the longest vector of the whole direction, on the device of
    /// every shard. `shares` are those of [`Descent::take`].
    pub fn longest(&mut self, shares: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
        let power = reduce(shares, Reduction::Sum);
        self.power = broadcast(&power, self.mesh.devices());
        let longest = (0..self.layout.count()).map(|k| {
            let [mean, square] = self.moments(k).map(Tensor::into_dispatch);
            let power = self.power[k].clone().into_dispatch();
            Tensor::from_dispatch(<Dispatch as AdamPartOps>::adam_longest_3d(
                mean,
                square,
                power,
                self.constants(),
            ))
        });
        all_reduce(longest.collect(), Reduction::Max)
    }

    fn moments(&self, k: usize) -> [Tensor<5>; 2] {
        self.values[k].clone().expect("no gradient is being taken")
    }

    fn part(&self, k: usize, field: Tensor<5>) -> Part {
        let [mean, square] = self.moments(k);
        Part { field, mean, square }
    }

    /// Planes on either side that the smoothing looks at.
    fn radius(&self) -> usize {
        self.smooth_field.radius(self.layout.axis().component())
    }

    /// Planes on either side that a voxel's next displacement depends on: a step of less than `n` voxels
    /// reads the `n` next planes.
    fn reach(&self) -> usize {
        let step = self.rate[self.layout.axis().component()].abs();
        step.floor() as usize + 1 + self.radius()
    }

    /// The next displacement of what is given, which ends where the volume does, as far as this knows.
    fn moved(&self, k: usize, part: Part, longest: &Tensor<1>) -> Tensor<5> {
        let field = <Dispatch as AdamPartOps>::adam_compose_3d(
            part.field.into_dispatch(),
            part.mean.into_dispatch(),
            part.square.into_dispatch(),
            self.power[k].clone().into_dispatch(),
            longest.clone().into_dispatch(),
            self.constants(),
            self.rate,
        );
        gaussian(Tensor::from_dispatch(field), &self.smooth_field)
    }

    /// The displacement after the step; `longest` as [`Descent::longest`] gives it.
    pub fn step(&self, displacement: Sharded, longest: &[Tensor<1>]) -> Sharded {
        let thinnest = self.layout.all_planes().map(|planes| planes.len()).min();
        match thinnest {
            Some(planes) if planes >= 2 * self.reach() => self.step_in_place(displacement, longest),
            _ => self.step_in_blocks(displacement, longest),
        }
    }

    /// Each shard with its surroundings; all shards exist twice in the end.
    fn step_in_blocks(&self, displacement: Sharded, longest: &[Tensor<1>]) -> Sharded {
        let (layout, reach) = (&self.layout, self.reach());
        let part = |which: usize| {
            let shards = (0..layout.count()).map(|k| self.moments(k)[which].clone());
            Sharded::new(shards.collect(), layout.clone())
        };
        let [mean, square] = [0, 1].map(part);
        let next = layout.all_planes().enumerate().map(|(k, own)| {
            let all = own.start.saturating_sub(reach)..(own.end + reach).min(layout.extent());
            let device = self.mesh.device(k);
            let [field, mean, square] =
                [&displacement, &mean, &square].map(|volume| volume.window(all.clone(), device));
            let block = self.moved(k, Part { field, mean, square }, &longest[k]);
            let first = own.start - all.start;
            narrow(block, layout.axis().dim(), first..first + own.len())
        });
        Sharded::new(next.collect(), layout.clone())
    }

    /// One shard after the other takes the place of what it was; the planes next to a seam come from a
    /// strip around it, see `seam.rs`.
    fn step_in_place(&self, displacement: Sharded, longest: &[Tensor<1>]) -> Sharded {
        let axis = self.layout.axis();
        let (dim, reach, count) = (axis.dim(), self.reach(), self.layout.count());
        let mut shards: Vec<Option<Tensor<5>>> =
            displacement.into_shards().into_iter().map(Some).collect();
        // Between devices at once: no device is then waited for that has much to do already.
        let mut strips: Vec<Option<Part>> = (0..count.saturating_sub(1))
            .map(|k| {
                let far = self.mesh.device(k) != self.mesh.device(k + 1);
                far.then(|| self.strip(k, &shards))
            })
            .collect();
        let mut low: Option<Tensor<5>> = None;
        let mut next = Vec::with_capacity(count);
        for k in 0..count {
            let patch = (k + 1 < count).then(|| {
                let strip = strips[k].take().unwrap_or_else(|| self.strip(k, &shards));
                self.moved(k, strip, &longest[k])
            });
            let field = shards[k].take().expect("each shard is moved once");
            let mut moved = self.moved(k, self.part(k, field), &longest[k]);
            let planes = moved.dims()[dim];
            if let Some(low) = low.take() {
                // Only now, so that this device has begun before it waits for the one below.
                moved = assign(moved, axis, 0..reach, to_device(low, self.mesh.device(k)));
            }
            if let Some(patch) = patch {
                let high = narrow(patch.clone(), dim, reach..2 * reach);
                moved = assign(moved, axis, planes - reach..planes, high);
                low = Some(narrow(patch, dim, 2 * reach..3 * reach));
            }
            next.push(moved);
        }
        Sharded::new(next, self.layout.clone())
    }

    /// The `2 reach` planes on either side of the seam above shard `k`, on its device.
    fn strip(&self, k: usize, shards: &[Option<Tensor<5>>]) -> Part {
        let (axis, width, device) = (self.layout.axis(), 2 * self.reach(), self.mesh.device(k));
        let field = |k: usize| shards[k].clone().expect("it is not moved yet");
        let [here, there] = [k, k + 1].map(|k| self.part(k, field(k)));
        let strip = |here: Tensor<5>, there: Tensor<5>| {
            let planes = here.dims()[axis.dim()];
            let below = narrow(here, axis.dim(), planes - width..planes);
            join(vec![below, to_device(narrow(there, axis.dim(), 0..width), device)], axis.dim())
        };
        Part {
            field: strip(here.field, there.field),
            mean: strip(here.mean, there.mean),
            square: strip(here.square, there.square),
        }
    }
}
