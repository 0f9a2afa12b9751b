//! The step that the moments propose, composed with the displacement, in place of it.

use std::ops::Range;

use burn::Tensor;
use burn::backend::Dispatch;
use burn::tensor::TensorData;

use super::block::Neighbours;
use super::descend::Descent;
use super::seam::{Crossing, far_seams, with_ends};
use crate::hosts::Holders;
use crate::sharded::{Sharded, join, narrow};
use ffdp_burn::ops::adam::StepRule;
use ffdp_burn::ops::adam::part::AdamPartOps;
use ffdp_burn::ops::{Update, compose, gaussian};
use ffdp_image::error::Result;

/// What moves one shard: its part of everything that a step needs, the field first.
#[derive(Clone)]
struct Part(Vec<Tensor<5>>);

/// Of a shard, what is moved with planes from below and from above that lie elsewhere.
type Ends = [Option<Part>; 2];

impl Descent {
    /// Where it rests.
    fn part(&self, k: usize, field: Tensor<5>) -> Part {
        Part([vec![field], self.state(k)].concat())
    }

    /// Planes on either side that the smoothing looks at.
    fn radius(&self) -> usize {
        self.rule.smooth_field.radius(self.layout.axis().component())
    }

    /// Planes on either side that a voxel's next displacement depends on, at least one: a step of less than `n` voxels
    /// that is composed reads the `n` next planes.
    fn reach(&self) -> usize {
        let step = self.rule.step_voxels[self.layout.axis().component()];
        match self.rule.update {
            Update::Compositive => step.floor() as usize + 1 + self.radius(),
            Update::Additive => self.radius().max(1),
        }
    }

    /// The next field of what is given, a part of shard `k`, which ends where the volume does, as far as this knows.
    fn moved(&self, k: usize, Part(part): Part, longest: &Tensor<1>) -> Tensor<5> {
        let mut part = part.into_iter();
        let mut next = || part.next().expect("a part has what its step is made of");
        let (field, rate) = (next(), self.rule.step_voxels.map(|step| -step));
        let field = match self.rule.adam() {
            Some(adam) => {
                let (mean, square) = (next(), next());
                Tensor::from_dispatch(<Dispatch as AdamPartOps>::adam_step_3d(
                    field.into_dispatch(),
                    mean.into_dispatch(),
                    square.into_dispatch(),
                    self.power[k].clone().into_dispatch(),
                    longest.clone().into_dispatch(),
                    self.constants(&adam),
                    StepRule { rate, update: self.rule.update },
                ))
            }
            None => {
                let direction = next();
                let batch = direction.dims()[0];
                let length = longest.clone().clamp_min(self.rule.shortest());
                let like = (&direction.device(), direction.dtype());
                let data = TensorData::new(rate.to_vec(), [1, 3, 1, 1, 1]).convert_dtype(like.1);
                let rate = Tensor::from_data(data, like) / length.reshape([batch, 1, 1, 1, 1]);
                let step = direction * rate;
                match self.rule.update {
                    Update::Compositive => compose(field, step),
                    Update::Additive => field + step,
                }
            }
        };
        self.homes.settle(k);
        match self.rule.smooth_field.sigma_voxels {
            [0.0, 0.0, 0.0] => field,
            _ => gaussian(field, &self.rule.smooth_field),
        }
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
                self.step_in_place(displacement, longest, beyond)
            }
            _ => self.step_in_blocks(displacement, longest, holders),
        }
    }

    /// What the step of all shards is made of besides the field, where it rests.
    fn states(&self) -> Vec<Sharded> {
        let mut of_shards: Vec<_> =
            (0..self.layout.count()).map(|k| self.state(k).into_iter()).collect();
        let count = of_shards[0].len();
        let volume = |_| {
            let shards = of_shards.iter_mut().map(|state| state.next().expect("all have as many"));
            Sharded::new(shards.collect(), self.layout.clone())
        };
        (0..count).map(volume).collect()
    }

    /// What other ranks have next to the planes of this one, below and above.
    fn beyond(&self, displacement: &Sharded, holders: &Holders) -> Result<[Option<Part>; 2]> {
        if !holders.are_several() {
            return Ok([None, None]);
        }
        let volumes = [vec![displacement.clone()], self.states()].concat();
        let neighbours = volumes.iter().map(|volume| holders.neighbours(volume, self.reach()));
        let [below, above] = sides(neighbours.collect::<Result<_>>()?);
        Ok([part_of(below), part_of(above)])
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
        let volumes = [vec![displacement], self.states()].concat();
        let volumes = volumes.iter().map(surround).collect::<Result<Vec<_>>>()?;
        let next = layout.all_planes().enumerate().map(|(k, own)| {
            let all = own.start.saturating_sub(reach)..(own.end + reach).min(layout.extent());
            let device = self.homes.device(k);
            let part = volumes.iter().map(|volume| volume.window(all.clone(), device));
            let block = self.moved(k, Part(part.collect()), &longest[k]);
            let first = own.start - all.start;
            self.homes.put_away(k, narrow(block, layout.axis().dim(), first..first + own.len()))
        });
        Ok(Sharded::new(next.collect(), layout.clone()))
    }

    /// One shard after the other takes the place of what it was; the planes next to a seam come from a
    /// strip around it, see `seam.rs`. Of a seam on one device the strip is moved once, after the shard
    /// below it, when that above has come; of one between two, each device moves its own, once the other's planes have
    /// come. `beyond` are those of other ranks.
    fn step_in_place(
        &self,
        displacement: Sharded,
        longest: &[Tensor<1>],
        beyond: [Option<Part>; 2],
    ) -> Result<Sharded> {
        let (reach, count, axis) = (self.reach(), self.layout.count(), self.layout.axis());
        let (dim, outside) = (axis.dim(), beyond.each_ref().map(Option::is_some));
        let (crossing, ends) = self.send(displacement.shards(), outside)?;
        let near = |k: usize| k + 1 < count && self.homes.device(k) == self.homes.device(k + 1);
        let mut shards: Vec<Option<Tensor<5>>> =
            displacement.into_shards().into_iter().map(Some).collect();
        let bring = |k: usize| {
            let field = shards[k].take().expect("each shard is moved once");
            self.part(k, field).map(|tensor| self.homes.bring(k, tensor))
        };
        let mut first: Option<Tensor<5>> = None;
        let mut done: Option<Tensor<5>> = None;
        let mut next = Vec::with_capacity(count);
        let mut parts = self.homes.in_turn(bring);
        while let Some((k, part)) = parts.next() {
            // While the shard above this one is on its way.
            next.extend(done.take().map(|moved| self.homes.put_away(k - 1, moved)));
            let here = near(k).then(|| self.highest(part.clone()));
            let moved = self.moved(k, part, &longest[k]);
            let there = here.as_ref().and_then(|_| parts.peek()).cloned();
            let patch = here.zip(there).map(|(here, there)| {
                self.moved(k, self.strip(here, self.lowest(there)), &longest[k])
            });
            let [low, high] = match &patch {
                Some(patch) => [2 * reach..3 * reach, reach..2 * reach]
                    .map(|planes| Some(self.planes(patch, planes))),
                None => [None, None],
            };
            done = Some(with_ends(moved, axis, reach, [first.take(), high]));
            first = low;
        }
        next.extend(done.map(|moved| self.homes.put_away(count - 1, moved)));
        let next = next.into_iter().zip(ends).zip(receive(crossing, beyond)).enumerate();
        let next = next.map(|(k, ((moved, [lowest, highest]), [below, above]))| {
            let patch = |below: Option<Part>, above: Option<Part>, first: usize| {
                let patch = self.moved(k, self.strip(below?, above?), &longest[k]);
                Some(self.planes(&patch, first..first + reach))
            };
            // Another rank may have less than that, where the volume ends.
            let there = below.as_ref().map_or(0, |below| below.0[0].dims()[dim]);
            with_ends(
                moved,
                axis,
                reach,
                [patch(below, lowest, there), patch(highest, above, reach)],
            )
        });
        Ok(Sharded::new(next.collect(), self.layout.clone()))
    }

    /// Sends the `reach` planes on either side of the seams between devices; of every shard, also the
    /// planes that are moved with what comes from below and from above: from another device, or from `outside`
    /// all shards here.
    fn send(&self, shards: &[Tensor<5>], outside: [bool; 2]) -> Result<(Crossing, Vec<Ends>)> {
        let seams = far_seams(&self.homes.mesh);
        let parts = shards.iter().enumerate();
        let parts: Vec<Part> = parts.map(|(k, field)| self.part(k, field.clone())).collect();
        let of = |which: usize| parts.iter().map(|part| part.0[which].clone()).collect();
        let volumes: Vec<Vec<Tensor<5>>> = (0..parts[0].0.len()).map(of).collect();
        let crossing = Crossing::send(&volumes, seams.clone(), self.layout.axis(), self.reach())?;
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
        Ok((crossing, ends.collect()))
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
        let pairs = below.0.into_iter().zip(above.0);
        Part(pairs.map(|(a, b)| join(vec![a, b], self.layout.axis().dim())).collect())
    }
}

/// Of every tensor of a part what lies below and above: all that is below, and all above.
fn sides(neighbours: Vec<Neighbours>) -> [Vec<Option<Tensor<5>>>; 2] {
    let (below, above) = neighbours.into_iter().map(|[below, above]| (below, above)).unzip();
    [below, above]
}

/// What came from the other device of each seam, for every shard: from below and from above. What came from
/// `beyond` all of them is that of the first and of the last.
fn receive(crossing: Crossing, beyond: [Option<Part>; 2]) -> Vec<[Option<Part>; 2]> {
    let tensors = crossing.receive();
    let of_shard = |k: usize| {
        let [below, above] = sides(tensors.iter().map(|shards| shards[k].clone()).collect());
        [part_of(below), part_of(above)]
    };
    let mut came: Vec<_> = (0..tensors[0].len()).map(of_shard).collect();
    let (last, [below, above]) = (came.len() - 1, beyond);
    // Nothing lies between devices there.
    came[0][0] = below;
    came[last][1] = above;
    came
}

/// All of it, or nothing.
fn part_of(tensors: Vec<Option<Tensor<5>>>) -> Option<Part> {
    Some(Part(tensors.into_iter().collect::<Option<_>>()?))
}

impl Part {
    fn map(self, each: impl FnMut(Tensor<5>) -> Tensor<5>) -> Self {
        Self(self.0.into_iter().map(each).collect())
    }
}
