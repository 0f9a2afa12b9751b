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
    /// `count d^2 loss / d moved^2` about, of each value alone: not negative.
    pub curvature: Option<Sharded>,
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
        (fixed, masked): (&Sharded, [bool; 2]),
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
        Ok(Self { comparison, fixed, blocks, mesh: mesh.clone(), holders: holders.clone() })
    }

    /// The loss of `moved`, with its mask as last channel where it has one, and its gradient; with `curved`, the
    /// curvature. Waits for the devices.
    ///
    /// # Errors
    /// As [`ShardedComparison::new`].
    pub fn compare(&self, moved: &Sharded, curved: bool) -> Result<Compared> {
        let comparison = &self.comparison;
        let pairs = self.pairs(moved)?;
        let places = || pairs.iter().zip(&self.blocks);
        let parts = places().map(|(pair, block)| Tensor::cat(comparison.parts(block, pair), 0));
        // On every shard's device.
        let sums = self.holders.all_reduce(parts.collect(), Reduction::Sum)?;
        let sums: Vec<Sums> = sums.iter().map(|parts| Sums::of(parts, 0)).collect();
        let layout = moved.layout();
        let gradient = |((pair, block), sums): ((&Pair, &Block), &Sums)| {
            let slope = comparison.slope(sums);
            let [to_moved, _] = comparison.similarity.gradient(pair, &slope, [true, false]);
            block.narrow(&to_moved.expect("it was asked for"), &block.own)
        };
        let gradients: Vec<Tensor<5>> = places().zip(&sums).map(gradient).collect();
        let curvature = match curved {
            false => None,
            true => Some(self.curvature(&pairs, &gradients, &sums, layout)?),
        };
        let numbers = vec![comparison.loss(&sums[0]), sums[0].count.clone()];
        let numbers = read_together("a loss", numbers)?;
        let gradient = Sharded::new(gradients, layout.clone());
        Ok(Compared { loss: numbers[0], count: numbers[1], gradient, curvature })
    }

    /// Each similarity's own, or one number for all values: the Fisher information of the loss as a log-likelihood, the
    /// mean square of its slope.
    fn curvature(
        &self,
        pairs: &[Pair],
        gradients: &[Tensor<5>],
        sums: &[Sums],
        layout: &crate::layout::Layout,
    ) -> Result<Sharded> {
        let similarity = &self.comparison.similarity;
        let places = pairs.iter().zip(&self.blocks).zip(sums);
        let own = places.map(|((pair, block), Sums { count, total })| {
            Some(block.narrow(&similarity.curvature(pair, total, count)?, &block.own))
        });
        if let Some(own) = own.collect::<Option<Vec<_>>>() {
            return Ok(Sharded::new(own, layout.clone()));
        }
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
        Ok(Sharded::new((0..pairs.len()).map(of).collect(), layout.clone()))
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
