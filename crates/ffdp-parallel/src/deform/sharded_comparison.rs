//! How alike two volumes of one grid are, whatever their cuts: for methods that show the moving image themselves, by
//! transport for example.

use std::sync::Arc;

use burn::Tensor;

use super::block::Block;
use super::compare::{Comparison, Sums};
use crate::device_mesh::DeviceMesh;
use crate::exchange::Reduction;
use crate::hosts::Holders;
use crate::numbers::read_together;
use crate::sharded::Sharded;
use ffdp_burn::losses::{Pair, SimilarityLoss};
use ffdp_burn::ops::sum_of_all;
use ffdp_image::error::Result;

/// A fixed image that others of its grid and cuts are compared with.
pub struct ShardedComparison {
    comparison: Comparison,
    /// On the block of every shard, with its mask as last channel where it has one.
    fixed: Vec<Tensor<5>>,
    blocks: Vec<Block>,
    /// `count d loss / d sums` of a mean, on the device of every shard.
    mean_slopes: Vec<Tensor<1>>,
    mesh: DeviceMesh,
    holders: Holders,
}

/// What a comparison has come to.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The loss.
    pub loss: f64,
    /// How many values counted.
    pub count: f64,
    /// `count d loss / d moved`, without a mask's channel.
    pub gradient: Sharded,
}

impl ShardedComparison {
    /// Of `fixed`, whose shards are compared on the places of `mesh`; of several ranks, each has its planes. Images that
    /// are `masked`, the fixed and the moved, have their mask as last channel.
    ///
    /// # Errors
    /// [`Error::LostRank`](ffdp_image::Error::LostRank), and [`Error::Device`](ffdp_image::Error::Device) when planes
    /// cannot be read.
    pub fn new(
        similarity: Arc<dyn SimilarityLoss>,
        fixed: &Sharded,
        masked: [bool; 2],
        mesh: &DeviceMesh,
        holders: &Holders,
    ) -> Result<Self> {
        let comparison = Comparison { similarity, masked };
        let width = comparison.reach();
        let around = holders.surround(fixed, width)?;
        let layout = fixed.layout();
        let blocks: Vec<Block> =
            (0..layout.count()).map(|k| Block::new(layout, k, width)).collect();
        let places = blocks.iter().zip(mesh.devices());
        let fixed =
            places.map(|(block, device)| around.window(block.all.clone(), device)).collect();
        let mean_slopes = comparison.mean_slopes(mesh, around.shards()[0].dtype());
        let (mesh, holders) = (mesh.clone(), holders.clone());
        Ok(Self { comparison, fixed, blocks, mean_slopes, mesh, holders })
    }

    /// The loss of `moved`, with its mask as last channel where it has one, and its gradient. Waits for the devices.
    ///
    /// # Errors
    /// As [`ShardedComparison::new`].
    pub fn compare(&self, moved: &Sharded) -> Result<Compared> {
        let comparison = &self.comparison;
        let pairs = self.pairs(moved)?;
        // Of a mean they come with the gradients.
        let sums = match comparison.similarity.is_mean() {
            true => None,
            false => Some(self.sums(&pairs)?),
        };
        let slopes = match &sums {
            None => self.mean_slopes.clone(),
            Some(sums) => sums.iter().map(|sums| comparison.slope(sums)).collect(),
        };
        let mut parts = Vec::new();
        let gradient = |((pair, block), slope): ((&Pair, &Block), &Tensor<1>)| {
            let (of_block, [to_moved, _]) = comparison.compare(block, pair, slope, [true, false]);
            parts.push(of_block);
            block.narrow(&to_moved.expect("it was asked for"), &block.own)
        };
        let gradients = pairs.iter().zip(&self.blocks).zip(&slopes).map(gradient).collect();
        let sums = match sums {
            Some(sums) => sums,
            None => self.added(parts)?,
        };
        let numbers = vec![comparison.loss(&sums[0]), sums[0].count.clone()];
        let numbers = read_together("a loss", numbers)?;
        let gradient = Sharded::new(gradients, moved.layout().clone());
        Ok(Compared { loss: numbers[0], count: numbers[1], gradient })
    }

    /// `count d^2 loss / d moved^2` about, of each value alone, at `moved`: not negative. Each similarity's own, or one
    /// number for all values: the Fisher information of the loss as a log-likelihood, the mean square of its slope.
    ///
    /// # Errors
    /// As [`ShardedComparison::new`].
    pub fn curvature(&self, moved: &Sharded) -> Result<Sharded> {
        let (comparison, layout) = (&self.comparison, moved.layout().clone());
        let similarity = &comparison.similarity;
        let pairs = self.pairs(moved)?;
        let sums = self.sums(&pairs)?;
        let places = || pairs.iter().zip(&self.blocks).zip(&sums);
        let own = places().map(|((pair, block), Sums { count, total })| {
            Some(block.narrow(&similarity.curvature(pair, total, count)?, &block.own))
        });
        if let Some(own) = own.collect::<Option<Vec<_>>>() {
            return Ok(Sharded::new(own, layout));
        }
        let gradient = |((pair, block), sums): ((&Pair, &Block), &Sums)| {
            let [to_moved, _] = similarity.gradient(pair, &comparison.slope(sums), [true, false]);
            block.narrow(&to_moved.expect("it was asked for"), &block.own)
        };
        let gradients: Vec<Tensor<5>> = places().map(gradient).collect();
        let squares =
            gradients.iter().map(|gradient| sum_of_all(gradient.clone() * gradient.clone()));
        let squares = self.holders.all_reduce(squares.collect(), Reduction::Sum)?;
        let of = |k: usize| {
            let Sums { count, total } = &sums[k];
            let mean = squares[k].clone() / count.clone() * similarity.nats(total, count);
            let mean = mean.reshape([1, 1, 1, 1, 1]);
            match &pairs[k].weights {
                Some(weights) => self.blocks[k].narrow(weights, &self.blocks[k].own) * mean,
                None => mean.expand(gradients[k].dims()),
            }
        };
        Ok(Sharded::new((0..pairs.len()).map(of).collect(), layout))
    }

    /// What the loss of these is made of, on every shard's device.
    fn sums(&self, pairs: &[Pair]) -> Result<Vec<Sums>> {
        let places = pairs.iter().zip(&self.blocks);
        self.added(places.map(|(pair, block)| self.comparison.parts(block, pair)).collect())
    }

    /// The parts of all blocks, added up, on every shard's device.
    fn added(&self, parts: Vec<Vec<Tensor<1>>>) -> Result<Vec<Sums>> {
        let parts = parts.into_iter().map(|parts| Tensor::cat(parts, 0)).collect();
        let sums = self.holders.all_reduce(parts, Reduction::Sum)?;
        Ok(sums.iter().map(|parts| Sums::of(parts, 0)).collect())
    }

    /// Both images on the block of every shard.
    fn pairs(&self, moved: &Sharded) -> Result<Vec<Pair>> {
        let around = self.holders.surround(moved, self.comparison.reach())?;
        let pair = |((block, fixed), device): ((&Block, &Tensor<5>), _)| {
            let moved = around.window(block.all.clone(), device);
            self.comparison.pair([moved, fixed.clone()], None)
        };
        let places = self.blocks.iter().zip(&self.fixed).zip(self.mesh.devices());
        Ok(places.map(pair).collect())
    }
}
