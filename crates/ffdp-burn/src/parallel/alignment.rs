//! How alike an affine map makes two sharded images, and in which direction of its twelve numbers they become
//! more alike: [`ops::alignment`](crate::ops::alignment()) of images that no device holds.
//!
//! ```text
//! for each shard     moved = M(A p + t)                                             ring/
//! a table, if need   joint votes of all shards, and the slope of the measure to them
//! for each shard     sum_p d measure/d moved(p) grad M [p 1]^T                      ring/backward.rs
//! thirteen numbers   added up on the host
//! ```
//! What is moved waits where its shard of the fixed image rests, so that a device holds one shard at work.

use burn::Tensor;
use burn::backend::Dispatch;
use burn::tensor::TensorData;

use super::collective::{broadcast, reduce};
use super::exchange::Reduction;
use super::greedy::{Block, Comparison};
use super::mesh::Mesh;
use super::rest::put_away;
use super::ring::{DisplacementBounds, IndexMap, RingInputs, RingSampler};
use super::sharded::Sharded;
use super::transfer::to_device;
use crate::error::{Error, Result};
use crate::ops::information::InformationOps;
use crate::ops::joint_histogram::{Binning, JointHistogramOps, joint_votes};
use crate::ops::{
    AlignmentLoss, GridSampleOptions, HistogramOptions, Information, Measure, Outside, Padding,
    information_loss,
};

/// Two sharded images, and how they are compared.
pub struct ShardedAlignment {
    fixed: Sharded,
    moving: Sharded,
    loss: AlignmentLoss,
    outside: Outside,
    mesh: Mesh,
}

/// The loss of an affine map, and its gradient to the rows `[A|t]`.
pub type Aligned = (f64, [[f64; 4]; 3]);

impl ShardedAlignment {
    /// `[1, C, D, H, W]` and `[1, C, Di, Hi, Wi]`, computed on `mesh`, wherever the shards rest; one channel for
    /// information.
    ///
    /// # Panics
    /// If `mesh` has another number of places than the fixed image has shards, for several channels of
    /// information, or where only information can ignore what lies outside.
    pub fn new(
        [fixed, moving]: [Sharded; 2],
        (loss, outside): (AlignmentLoss, Outside),
        mesh: &Mesh,
    ) -> Self {
        let (shards, places) = (fixed.layout().count(), mesh.count());
        assert!(shards == places, "alignment: {shards} shards for a mesh of {places}");
        let is_information = matches!(loss, AlignmentLoss::Information(..));
        let channels = fixed.dims()[1];
        assert!(
            !is_information || channels == 1,
            "alignment on shards: information takes one channel, got {channels}"
        );
        assert!(
            is_information || outside == Outside::Background,
            "alignment on shards: {loss:?} counts what lies outside, got {outside:?}"
        );
        Self { fixed, moving, loss, outside, mesh: mesh.clone() }
    }

    /// The loss under a map from fixed to moving voxels (x, y, z), and its gradient, as
    /// [`ops::alignment`](crate::ops::alignment()) gives them. Waits for the devices.
    ///
    /// # Errors
    /// [`Error::Device`] when the numbers cannot be read.
    pub fn gradient(&self, rows: &[[f64; 4]; 3]) -> Result<Aligned> {
        let padding = match self.outside {
            Outside::Background => Padding::Zeros,
            Outside::Ignored => Padding::Border,
        };
        let options = GridSampleOptions { padding, ..GridSampleOptions::default() };
        let map = IndexMap { affine: vec![*rows], scale: options.displacement_scale };
        let (layout, moving) = (self.fixed.layout(), self.moving.layout());
        let still = [DisplacementBounds::NONE];
        let sampler = RingSampler::new((layout, &self.mesh), moving, &map, &still, &options);
        let like = (self.mesh.device(0), self.moving.shards()[0].dtype());
        let data = TensorData::new(rows.concat(), [1, 3, 4]).convert_dtype(like.1);
        let affine = Tensor::from_data(data, like);
        let inputs = RingInputs { moving: &self.moving, affine: Some(&affine), displacement: None };
        let sum = match self.loss {
            AlignmentLoss::Information(which, options) => {
                self.information(&sampler, &inputs, which, options)?
            }
            AlignmentLoss::Lncc(options) => {
                self.additive(&sampler, &inputs, Measure::Lncc(options))?
            }
            AlignmentLoss::SquaredDifference => {
                self.additive(&sampler, &inputs, Measure::SquaredDifference)?
            }
        };
        Ok(self.finished(&sum))
    }

    /// Shard `k` of the moved image, which goes to where that of the fixed one rests.
    fn moved(&self, k: usize, sampler: &RingSampler, inputs: &RingInputs) -> Tensor<5> {
        put_away(sampler.sample_shard(k, inputs), &self.fixed.shards()[k].device())
    }

    /// A part of shard `k` to where it is computed.
    fn bring(&self, k: usize, tensor: &Tensor<5>) -> Tensor<5> {
        to_device(tensor.clone(), self.mesh.device(k))
    }

    /// A sum over voxels and its gradient; `measure` has one.
    fn additive(
        &self,
        sampler: &RingSampler,
        inputs: &RingInputs,
        measure: Measure,
    ) -> Result<[f64; 13]> {
        let (layout, comparison) = (self.fixed.layout(), Comparison::new(measure, [false; 2]));
        let shards = (0..layout.count()).map(|k| self.moved(k, sampler, inputs));
        let moved = Sharded::new(shards.collect(), layout.clone());
        let mut sum = [0.0; 13];
        for k in 0..layout.count() {
            // Windows around the own planes are whole in it.
            let block = Block::new(layout, k, comparison.reach());
            let device = self.mesh.device(k);
            let pair = [&moved, &self.fixed].map(|image| image.window(block.all.clone(), device));
            let (value, to_moved) = comparison.compare((k, &block), pair, None);
            let to_moved = block.narrow(&to_moved, &block.own);
            let value = value.expect("sums have a part of every shard");
            add(&mut sum, value, sampler.affine_gradient(k, inputs, &to_moved))?;
        }
        Ok(sum)
    }

    /// The loss of the joint histogram of all shards, and its gradient.
    fn information(
        &self,
        sampler: &RingSampler,
        inputs: &RingInputs,
        which: Information,
        options: HistogramOptions,
    ) -> Result<[f64; 13]> {
        let count = self.fixed.layout().count();
        let weights = |k: usize| match self.outside {
            Outside::Background => None,
            Outside::Ignored => Some(sampler.inside(k, inputs)),
        };
        let (mut moved, mut votes) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for k in 0..count {
            let shard = sampler.sample_shard(k, inputs);
            let fixed = self.bring(k, &self.fixed.shards()[k]);
            votes.push(joint_votes(shard.clone(), fixed, weights(k), &options));
            moved.push(put_away(shard, &self.fixed.shards()[k].device()));
        }
        let votes = reduce(votes, Reduction::Sum);
        let loss = information_loss(votes.clone(), which);
        let one = loss.ones_like();
        let slope = <Dispatch as InformationOps>::information_loss_backward(
            votes.into_dispatch(),
            one.into_dispatch(),
            which,
        );
        let slopes = broadcast(&Tensor::<3>::from_dispatch(slope), self.mesh.devices());
        let mut sum = [0.0; 13];
        sum[0] = read(loss)?[0];
        for (k, (moved, slope)) in moved.into_iter().zip(slopes).enumerate() {
            let fixed = self.bring(k, &self.fixed.shards()[k]);
            let weights = weights(k);
            let binning = Binning { options, weighted: weights.is_some() };
            // Bound, but not read where there are no weights.
            let weights = weights.unwrap_or_else(|| fixed.clone());
            let (to_moved, _) = <Dispatch as JointHistogramOps>::joint_histogram_3d_backward(
                self.bring(k, &moved).into_dispatch(),
                fixed.into_dispatch(),
                weights.into_dispatch(),
                slope.into_dispatch(),
                binning,
                [true, false],
            );
            let to_moved = Tensor::from_dispatch(to_moved);
            let map = sampler.affine_gradient(k, inputs, &to_moved);
            let nothing = Tensor::zeros([1], (&map.device(), map.dtype()));
            add(&mut sum, nothing, map)?;
        }
        Ok(sum)
    }

    /// From the measure and its gradient to the loss.
    fn finished(&self, sum: &[f64; 13]) -> Aligned {
        let values = self.fixed.dims().into_iter().product::<usize>() as f64;
        let (loss, factor) = match self.loss {
            AlignmentLoss::Information(..) => (sum[0], 1.0),
            AlignmentLoss::Lncc(_) => (1.0 - sum[0] / values, -1.0 / values),
            // The gradient of half the square.
            AlignmentLoss::SquaredDifference => (sum[0] / values, 2.0 / values),
        };
        let rows = std::array::from_fn(|i| std::array::from_fn(|j| factor * sum[1 + 4 * i + j]));
        (loss, rows)
    }
}

/// Adds the value `[1]` and the gradient `[1, 3, 4]` of a shard. Waits for its device, so that the next
/// shard finds its memory free.
fn add(sum: &mut [f64; 13], value: Tensor<1>, map: Tensor<3>) -> Result<()> {
    let part = read(Tensor::cat(vec![value, map.flatten(0, 2)], 0))?;
    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    Ok(())
}

fn read(values: Tensor<1>) -> Result<Vec<f64>> {
    let unread = |reason| Error::device("reading the loss of an affine map", reason);
    values.try_into_vec_as::<f64>().map_err(unread)
}
