//! From the gradients of shards to the next displacement: Adam's moments, and the step that they
//! propose composed with the displacement, in place of it.

use std::ops::Range;

use burn::Tensor;
use burn::backend::Dispatch;

use super::homes::Homes;
use super::seam::{Beside, Crossing, assign, far_seams};
use crate::error::Result;
use crate::ops::adam::AdamConstants;
use crate::ops::adam::part::AdamPartOps;
use crate::ops::{AdamOptions, GaussianOptions, Moments, gaussian};
use crate::parallel::adam::ShardedMoments;
use crate::parallel::exchange::Reduction;
use crate::parallel::hosts::Holders;
use crate::parallel::layout::Layout;
use crate::parallel::sharded::{Sharded, join, narrow};
use crate::parallel::transfer::to_device;

/// The moments during a run, and how a step is made of them.
pub(super) struct Descent {
    adam: AdamOptions,
    /// The step along (x, y, z) for a direction of length 1, with its sign.
    rate: [f64; 3],
    smooth_field: GaussianOptions,
    layout: Layout,
    homes: Homes,
    /// `m` and `v` of every shard; `None` before the first gradient, and while they change.
    values: Vec<Option<[Tensor<5>; 2]>>,
    /// Gradients that wait for `mean v`: where a device holds one shard, whose moments are then read once
    /// less. Several gradients would take more memory than one.
    waiting: Vec<Option<Tensor<5>>>,
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

    fn constants(&self) -> AdamConstants {
        AdamConstants::new(&self.adam, self.seen + self.taken)
    }

    /// A new gradient begins, shard by shard.
    pub fn begin(&mut self) {
        self.taken += 1;
    }

    /// The gradient of shard `k`; returns its share of the new `mean v`, on its device.
    pub fn take(&mut self, k: usize, gradient: Tensor<5>) -> Tensor<1> {
        let before = self.power[k].clone().into_dispatch();
        let power = match self.homes.mesh.is_virtual() {
            true => {
                self.homes.settle(k);
                let [mean, square] = self.taken_out(k, &gradient).map(Tensor::into_dispatch);
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
        let longest: Vec<Tensor<1>> =
            (0..self.layout.count()).map(|k| self.longest_of(k)).collect();
        holders.all_reduce(longest, Reduction::Max)
    }

    /// That of shard `k`, whose gradient is taken if it has waited.
    fn longest_of(&mut self, k: usize) -> Tensor<1> {
        let power = self.power[k].clone().into_dispatch();
        let Some(gradient) = self.waiting[k].take() else {
            self.homes.settle(k);
            let moments = self.moments(k);
            let [mean, square] = moments.map(|values| self.homes.bring(k, values).into_dispatch());
            let constants = self.constants();
            let longest =
                <Dispatch as AdamPartOps>::adam_longest_3d(mean, square, power, constants);
            return Tensor::from_dispatch(longest);
        };
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

    fn moments(&self, k: usize) -> [Tensor<5>; 2] {
        self.values[k].clone().expect("no gradient is being taken")
    }

    /// Where it rests.
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

    /// The next displacement of what is given, a part of shard `k`, which ends where the volume does, as far as this knows.
    fn moved(&self, k: usize, part: Part, longest: &Tensor<1>) -> Tensor<5> {
        let part = part.map(|tensor| self.homes.bring(k, tensor));
        let field = <Dispatch as AdamPartOps>::adam_compose_3d(
            part.field.into_dispatch(),
            part.mean.into_dispatch(),
            part.square.into_dispatch(),
            self.power[k].clone().into_dispatch(),
            longest.clone().into_dispatch(),
            self.constants(),
            self.rate,
        );
        let field = Tensor::from_dispatch(field);
        self.homes.settle(k);
        gaussian(field, &self.smooth_field)
    }

    /// The displacement after the step; `longest` as [`Descent::longest`] gives it.
    pub fn step(
        &self,
        displacement: Sharded,
        longest: &[Tensor<1>],
        holders: &Holders,
    ) -> Result<Sharded> {
        let thinnest = self.layout.all_planes().map(|planes| planes.len()).min();
        match thinnest {
            Some(planes) if planes >= 2 * self.reach() => {
                let beyond = self.beyond(&displacement, holders)?;
                Ok(self.step_in_place(displacement, longest, beyond))
            }
            _ => self.step_in_blocks(displacement, longest, holders),
        }
    }

    /// One of the moments of all shards, where they rest.
    fn moment(&self, which: usize) -> Sharded {
        let shards = (0..self.layout.count()).map(|k| self.moments(k)[which].clone());
        Sharded::new(shards.collect(), self.layout.clone())
    }

    /// What other ranks have next to the planes of this one, below and above.
    fn beyond(&self, displacement: &Sharded, holders: &Holders) -> Result<[Option<Part>; 2]> {
        if !holders.are_several() {
            return Ok([None, None]);
        }
        let beside = |volume: &Sharded| holders.beside(volume, self.reach());
        let [[f0, f1], [m0, m1], [s0, s1]] =
            [beside(displacement)?, beside(&self.moment(0))?, beside(&self.moment(1))?];
        Ok([part_of(f0, m0, s0), part_of(f1, m1, s1)])
    }

    /// Each shard with its surroundings; all shards exist twice in the end.
    fn step_in_blocks(
        &self,
        displacement: Sharded,
        longest: &[Tensor<1>],
        holders: &Holders,
    ) -> Result<Sharded> {
        let (layout, reach) = (&self.layout, self.reach());
        let surround = |volume: &Sharded| holders.surround(volume, reach);
        let displacement = surround(&displacement)?;
        let [mean, square] = [surround(&self.moment(0))?, surround(&self.moment(1))?];
        let next = layout.all_planes().enumerate().map(|(k, own)| {
            let all = own.start.saturating_sub(reach)..(own.end + reach).min(layout.extent());
            let device = self.homes.device(k);
            let [field, mean, square] =
                [&displacement, &mean, &square].map(|volume| volume.window(all.clone(), device));
            let block = self.moved(k, Part { field, mean, square }, &longest[k]);
            let first = own.start - all.start;
            self.homes.put_away(k, narrow(block, layout.axis().dim(), first..first + own.len()))
        });
        Ok(Sharded::new(next.collect(), layout.clone()))
    }

    /// One shard after the other takes the place of what it was; the planes next to a seam come from a
    /// strip around it, see `seam.rs`. Of a seam on one device the strip is moved once, before the shard
    /// below it; of one between two, each device moves its own, once the other's planes have come. `beyond`
    /// are those of other ranks.
    fn step_in_place(
        &self,
        displacement: Sharded,
        longest: &[Tensor<1>],
        beyond: [Option<Part>; 2],
    ) -> Sharded {
        let (reach, count, dim) = (self.reach(), self.layout.count(), self.layout.axis().dim());
        let outside = beyond.each_ref().map(Option::is_some);
        let (crossing, ends) = self.send(displacement.shards(), outside);
        let near = |k: usize| k + 1 < count && self.homes.device(k) == self.homes.device(k + 1);
        let mut shards: Vec<Option<Tensor<5>>> =
            displacement.into_shards().into_iter().map(Some).collect();
        let mut first: Option<Tensor<5>> = None;
        let mut next = Vec::with_capacity(count);
        for k in 0..count {
            self.homes.settle(k);
            let patch = near(k).then(|| {
                let field = |k: usize| shards[k].clone().expect("it is not moved yet");
                let [here, there] = [k, k + 1].map(|k| self.part(k, field(k)));
                let here = self.highest(here).map(|tensor| self.homes.bring(k, tensor));
                let there = self.lowest(there).map(|tensor| self.homes.bring(k, tensor));
                self.moved(k, self.strip(here, there), &longest[k])
            });
            let [low, high] = match &patch {
                Some(patch) => [2 * reach..3 * reach, reach..2 * reach]
                    .map(|planes| Some(self.planes(patch, planes))),
                None => [None, None],
            };
            let field = shards[k].take().expect("each shard is moved once");
            let moved = self.moved(k, self.part(k, field), &longest[k]);
            next.push(self.homes.put_away(k, self.with_ends(moved, [first.take(), high])));
            first = low;
        }
        let next = next.into_iter().zip(ends).zip(receive(crossing, beyond)).enumerate();
        let next = next.map(|(k, ((moved, [lowest, highest]), [below, above]))| {
            let patch = |below: Option<Part>, above: Option<Part>, first: usize| {
                let patch = self.moved(k, self.strip(below?, above?), &longest[k]);
                Some(self.planes(&patch, first..first + reach))
            };
            // Another rank may have less than that, where the volume ends.
            let there = below.as_ref().map_or(0, |below| below.field.dims()[dim]);
            self.with_ends(moved, [patch(below, lowest, there), patch(highest, above, reach)])
        });
        Sharded::new(next.collect(), self.layout.clone())
    }

    /// The next displacement with other planes at its ends.
    fn with_ends(&self, moved: Tensor<5>, [first, last]: [Option<Tensor<5>>; 2]) -> Tensor<5> {
        let (axis, reach) = (self.layout.axis(), self.reach());
        let planes = moved.dims()[axis.dim()];
        let moved = match first {
            Some(first) => assign(moved, axis, 0..reach, first),
            None => moved,
        };
        match last {
            Some(last) => assign(moved, axis, planes - reach..planes, last),
            None => moved,
        }
    }

    /// Sends the `reach` planes on either side of the seams between devices; of every shard, also the
    /// planes that are moved with what comes from below and from above: from another device, or from `outside`
    /// all shards here.
    fn send(
        &self,
        shards: &[Tensor<5>],
        outside: [bool; 2],
    ) -> ([Crossing; 3], Vec<[Option<Part>; 2]>) {
        let seams = far_seams(&self.homes.mesh);
        let parts = shards.iter().enumerate();
        let parts: Vec<Part> = parts.map(|(k, field)| self.part(k, field.clone())).collect();
        let of = |which: fn(&Part) -> &Tensor<5>| {
            let shards: Vec<&Tensor<5>> = parts.iter().map(which).collect();
            Crossing::send(&shards, seams.clone(), self.layout.axis(), self.reach())
        };
        let crossing = [of(|part| &part.field), of(|part| &part.mean), of(|part| &part.square)];
        let last = parts.len() - 1;
        let ends = parts.into_iter().enumerate().map(|(k, part)| {
            let far = match k {
                0 => outside[0],
                _ => seams.contains(&(k - 1)),
            };
            let below = far.then(|| self.lowest(part.clone()));
            let far = seams.contains(&k) || k == last && outside[1];
            [below, far.then(|| self.highest(part))]
        });
        (crossing, ends.collect())
    }

    fn planes(&self, tensor: &Tensor<5>, planes: Range<usize>) -> Tensor<5> {
        narrow(tensor.clone(), self.layout.axis().dim(), planes)
    }

    /// The planes of a shard that a strip around the seam below it has.
    fn lowest(&self, part: Part) -> Part {
        let width = 2 * self.reach();
        part.map(|tensor| self.planes(&tensor, 0..width))
    }

    /// The planes of a shard that a strip around the seam above it has.
    fn highest(&self, part: Part) -> Part {
        let (dim, width) = (self.layout.axis().dim(), 2 * self.reach());
        part.map(|tensor| {
            let planes = tensor.dims()[dim];
            narrow(tensor, dim, planes - width..planes)
        })
    }

    /// What lies on either side of a seam.
    fn strip(&self, below: Part, above: Part) -> Part {
        let join = |a, b| join(vec![a, b], self.layout.axis().dim());
        Part {
            field: join(below.field, above.field),
            mean: join(below.mean, above.mean),
            square: join(below.square, above.square),
        }
    }
}

/// What came from the other device of each seam, for every shard: from below and from above. What came from
/// `beyond` all of them is that of the first and of the last.
fn receive(crossing: [Crossing; 3], beyond: [Option<Part>; 2]) -> Vec<[Option<Part>; 2]> {
    let [fields, means, squares] = crossing.map(Crossing::receive);
    let both = |((field, mean), square): ((Beside, Beside), Beside)| {
        let ([f0, f1], [m0, m1], [s0, s1]) = (field, mean, square);
        [part_of(f0, m0, s0), part_of(f1, m1, s1)]
    };
    let mut came: Vec<_> = fields.into_iter().zip(means).zip(squares).map(both).collect();
    let (last, [below, above]) = (came.len() - 1, beyond);
    // Nothing lies between devices there.
    came[0][0] = below;
    came[last][1] = above;
    came
}

/// All of it, or nothing.
fn part_of(
    field: Option<Tensor<5>>,
    mean: Option<Tensor<5>>,
    square: Option<Tensor<5>>,
) -> Option<Part> {
    Some(Part { field: field?, mean: mean?, square: square? })
}

impl Part {
    fn map(self, mut each: impl FnMut(Tensor<5>) -> Tensor<5>) -> Self {
        Self { field: each(self.field), mean: each(self.mean), square: each(self.square) }
    }
}
