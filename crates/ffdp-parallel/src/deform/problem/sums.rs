//! Sums over all voxels: those that gradients need before they are computed, and the losses that come of all parts.

use burn::Tensor;

use super::{Problem, Sight};
use crate::collective::reduce;
use crate::deform::compare::Sums;
use crate::deform::landmarks::Pull;
use crate::exchange::Reduction;
use crate::sharded::Sharded;
use ffdp_burn::ops::sum_of_fields;
use ffdp_image::error::Result;

/// Sums over all voxels, and what follows from them, that the gradient of each voxel needs.
pub(super) struct GlobalSums {
    /// `count d loss / d sums`, on the device of every shard.
    pub slopes: Vec<Tensor<1>>,
    /// How many values count, likewise, where penalties are weighed against them.
    pub counts: Option<Vec<Tensor<1>>>,
    /// The mean squared slope of the images `[N]`, likewise, where gradients are divided by it.
    pub slope: Option<Vec<Tensor<1>>>,
    /// The loss without penalties, where it is no mean.
    pub loss: Option<Tensor<1>>,
    /// That of landmarks, where there are any.
    pub pull: Option<Pull>,
}

impl GlobalSums {
    pub fn counts_of(&self, k: usize) -> Option<&Tensor<1>> {
        Some(&self.counts.as_ref()?[k])
    }

    pub fn slope_of(&self, k: usize) -> Option<&Tensor<1>> {
        Some(&self.slope.as_ref()?[k])
    }
}

impl Problem {
    /// The sums over all voxels: in a pass of its own, if the similarity or the optimiser needs one.
    pub(super) fn global_pass(&self, sight: &Sight, fields: &[Sharded]) -> Result<GlobalSums> {
        let (is_mean, costs) = (self.comparison.similarity.is_mean(), self.has_costs());
        let counts = costs || !is_mean;
        let slopes = self.options.optimizer.slope_damping().is_some();
        let first = &fields[0].shards()[0];
        let (batch, dtype) = (first.dims()[0], first.dtype());
        let homes = &self.grid.homes;
        let voxels = self.grid.layout.voxels() as f64;
        let one = |k: usize| Tensor::<1>::ones([1], (homes.device(k), dtype));
        let places = || 0..self.grid.layout.count();
        if is_mean && !slopes && !(costs && self.comparison.is_weighted()) {
            let counts = costs.then(|| {
                let values = self.values(batch);
                places().map(|k| one(k).mul_scalar(values)).collect()
            });
            let slopes = self.mean_slopes.clone();
            return Ok(GlobalSums { slopes, counts, slope: None, loss: None, pull: None });
        }
        let all = self.sums_of_shards(sight, slopes);
        let all = self.grid.holders.all_reduce(all, Reduction::Sum)?;
        // They come after those of the loss.
        let others = if slopes { batch } else { 0 };
        let slope = slopes.then(|| {
            let steep = |all: &Tensor<1>| all.clone().narrow(0, all.dims()[0] - batch, batch);
            all.iter().map(|all| steep(all).mul_scalar(1.0 / voxels)).collect()
        });
        let (slopes, found, loss) = match is_mean {
            true => (self.mean_slopes.clone(), all.iter().map(Sums::count).collect(), None),
            false => {
                let sums: Vec<Sums> = all.iter().map(|all| Sums::of(all, others)).collect();
                let loss = self.comparison.loss(&sums[0]);
                let share = 1.0 / self.grid.holders.count() as f64;
                // What all ranks have computed, said once.
                let loss = if share < 1.0 { loss.mul_scalar(share) } else { loss };
                let slopes = sums.iter().map(|sums| self.comparison.slope(sums)).collect();
                (slopes, sums.into_iter().map(|sums| sums.count).collect(), Some(loss))
            }
        };
        Ok(GlobalSums { slopes, counts: counts.then_some(found), slope, loss, pull: None })
    }

    /// Of each shard how many values count, the sums of a similarity that is no mean, and the squared slopes of the images
    /// where they are asked for.
    fn sums_of_shards(&self, sight: &Sight, slopes: bool) -> Vec<Tensor<1>> {
        let homes = &self.grid.homes;
        // Without windows there is nothing to see around a shard.
        let is_mean = self.comparison.similarity.is_mean();
        let width = if is_mean || self.comparison.reach() == 0 { 0 } else { self.grid.width };
        let mut all = Vec::new();
        let bring = |k: usize| self.visit(k, width, sight, Vec::new());
        for (k, visit) in homes.in_turn(bring) {
            let own = || {
                let (whole, shown) = (self.grid.block(k), sight.shown[k].as_ref()?);
                Some(whole.narrow(shown, &whole.own))
            };
            let pair = visit.pair(&self.comparison, if width == 0 { own() } else { None });
            let mut parts = match is_mean {
                true => vec![self.comparison.count(&visit.block, &pair)],
                false => self.comparison.parts(&visit.block, &pair),
            };
            if slopes {
                let inner = visit.block.within(0);
                parts.push(sum_of_fields(self.steepness(&visit, &inner, &pair.weights).own));
            }
            all.push(Tensor::cat(parts, 0));
        }
        all
    }

    /// Values of the whole fixed image, without its mask.
    fn values(&self, batch: usize) -> f64 {
        let channels = self.moving.channels - usize::from(self.comparison.masked[1]);
        (batch * channels * self.grid.layout.voxels()) as f64
    }

    /// The loss `[1]` of what these fields show, without penalties, on the device of the first shard.
    pub fn loss(&mut self, fields: &[Sharded]) -> Result<Tensor<1>> {
        let rows = self.evaluate(fields, None)?;
        self.losses(reduce(rows, Reduction::Sum), 1, false)
    }

    /// The losses, one after the other, from the parts of all shards here, which were added up; with their penalties
    /// or without.
    pub fn losses(&self, rows: Tensor<1>, iterations: usize, penalised: bool) -> Result<Tensor<1>> {
        let rows = self.grid.holders.combine(rows, Reduction::Sum)?;
        Ok(self.losses_of(rows, iterations, penalised))
    }

    /// The loss with penalties, of the parts of all shards here, and how many values counted: by that many gradients
    /// are larger than those of the loss.
    pub fn loss_and_count(&self, rows: Tensor<1>) -> Result<[Tensor<1>; 2]> {
        let rows = self.grid.holders.combine(rows, Reduction::Sum)?;
        let count = self.counted.clone().unwrap_or_else(|| Sums::count(&rows));
        Ok([self.losses_of(rows, 1, true), count])
    }

    fn losses_of(&self, rows: Tensor<1>, iterations: usize, penalised: bool) -> Tensor<1> {
        let (is_mean, costs) = (self.comparison.similarity.is_mean(), self.has_costs());
        if !is_mean && !costs {
            return rows;
        }
        let width = rows.dims()[0] / iterations;
        let rows = (0..iterations).map(|i| rows.clone().narrow(0, i * width, width));
        let losses = rows.map(|row| {
            let loss = match is_mean {
                true => self.comparison.loss(&Sums::of(&row, usize::from(costs))),
                false => row.clone().narrow(0, 0, 1),
            };
            if costs && penalised { loss + row.narrow(0, width - 1, 1) } else { loss }
        });
        Tensor::cat(losses.collect(), 0)
    }
}
