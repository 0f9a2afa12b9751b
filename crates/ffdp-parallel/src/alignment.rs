//! The similarity of two sharded images under an affine map, and its gradient to the twelve numbers of the map.
//! Images in one piece are one shard.
//!
//! ```text
//! for each shard     moved = M(A p + t)                                             ring/
//! if needed          the sums of all shards, and the slope of the loss to them
//! for each shard     dL/d[A|t] = sum_p dL/dmoved(p) grad M [p 1]^T                  ring/backward.rs
//! thirteen numbers   added up on the host
//! ```
//! What is moved waits where its shard of the fixed image rests, so that a device holds one shard at work. The
//! factors that do not depend on the voxel are applied to the twelve numbers, not to the volume.

use std::sync::Arc;

use burn::Tensor;
use burn::tensor::{Device, TensorData};
use serde::{Deserialize, Serialize};

use super::collective::{broadcast, reduce};
use super::deform::{Block, Comparison, Sums};
use super::device_mesh::{DeviceMesh, ShardPlaces};
use super::exchange::Reduction;
use super::numbers::read_together;
use super::rest::put_away;
use super::ring::{DisplacementBounds, IndexMap, RingInputs, RingSampler};
use super::sharded::Sharded;
use super::transfer::to_device;
use ffdp_burn::losses::{Pair, SimilarityLoss};
use ffdp_burn::ops::{GridSampleOptions, Padding};
use ffdp_image::error::Result;

/// What a voxel counts that the map sends outside the moving image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outside {
    /// Like any other; it sees 0 there. Right where images fade into an empty background.
    #[default]
    Background,
    /// Nothing: it votes as much as it lies inside (trilinearly, within a voxel of the border), as
    /// Mattes et al. have it. For images that end inside the object. The gradient takes these
    /// weights as constants.
    Ignored,
}

/// Two sharded images, and how they are compared.
pub struct ShardedAlignment {
    fixed: Sharded,
    moving: Sharded,
    comparison: Comparison,
    outside: Outside,
    mesh: DeviceMesh,
    /// Of a mean, whatever its sums; on every device.
    mean_slopes: Vec<Tensor<1>>,
}

/// Values that are moved at once where many maps are compared: 16 MB, 128 maps of an image of 32^3 voxels.
pub(crate) const BATCH_VALUES: usize = 1 << 22;

/// The loss of an affine map, and its gradient to the rows `[A|t]`.
pub type Aligned = (f64, [[f64; 4]; 3]);

impl ShardedAlignment {
    /// `[1, C, D, H, W]` and `[1, C, Di, Hi, Wi]`, computed on `mesh`, wherever the shards rest. Where an image is
    /// `masked`, its last channel is its mask.
    ///
    /// # Panics
    /// If `mesh` has another number of places than the fixed image has shards.
    pub fn new(
        [fixed, moving]: [Sharded; 2],
        masked: [bool; 2],
        similarity: Arc<dyn SimilarityLoss>,
        outside: Outside,
        mesh: &DeviceMesh,
    ) -> Self {
        let (shards, places) = (fixed.layout().count(), mesh.count());
        assert!(shards == places, "alignment: {shards} shards for a mesh of {places}");
        let comparison = Comparison { similarity, masked };
        let mean_slopes = comparison.mean_slopes(mesh, moving.shards()[0].dtype());
        Self { fixed, moving, comparison, outside, mesh: mesh.clone(), mean_slopes }
    }

    /// The loss under a map from fixed to moving voxels (x, y, z), and its gradient. Waits for the devices.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) when the numbers cannot be read.
    pub fn gradient(&self, rows: &[[f64; 4]; 3]) -> Result<Aligned> {
        let Evaluated { loss, rows, .. } = self.evaluate(rows, true)?;
        Ok((loss, rows))
    }

    /// The loss alone.
    ///
    /// # Errors
    /// As [`ShardedAlignment::gradient`].
    pub fn loss(&self, rows: &[[f64; 4]; 3]) -> Result<f64> {
        Ok(self.evaluate(rows, false)?.loss)
    }

    /// Losses and gradients under several maps: in batches where both images are in one piece, one after the other
    /// elsewhere.
    ///
    /// # Errors
    /// As [`ShardedAlignment::gradient`].
    pub fn gradients(&self, maps: &[[[f64; 4]; 3]]) -> Result<Vec<Aligned>> {
        let Some(at_once) = self.at_once().filter(|_| maps.len() > 1) else {
            return maps.iter().map(|rows| self.gradient(rows)).collect();
        };
        let batch = |maps| self.gradients_of_batch(maps);
        Ok(maps.chunks(at_once).map(batch).collect::<Result<Vec<_>>>()?.concat())
    }

    /// The losses under several maps, likewise.
    ///
    /// # Errors
    /// As [`ShardedAlignment::gradient`].
    pub fn losses(&self, maps: &[[[f64; 4]; 3]]) -> Result<Vec<f64>> {
        let Some(at_once) = self.at_once() else {
            return maps.iter().map(|rows| self.loss(rows)).collect();
        };
        let batch = |maps: &[[[f64; 4]; 3]]| {
            self.repeated(maps.len()).mapped(maps, |seen, moved| {
                read(self.comparison.similarity.losses_of(&seen.whole(moved)))
            })
        };
        Ok(maps.chunks(at_once).map(batch).collect::<Result<Vec<_>>>()?.concat())
    }

    /// By as many launches as for one map where the similarity can, else by those of all maps before the first is waited
    /// for.
    fn gradients_of_batch(&self, maps: &[[[f64; 4]; 3]]) -> Result<Vec<Aligned>> {
        let similarity = &self.comparison.similarity;
        let together = self.repeated(maps.len()).mapped(maps, |seen, moved| {
            let (losses, to_moved) = similarity.losses_and_gradients_of(&seen.whole(moved))?;
            let to_moved = self.comparison.with_mask(1, to_moved);
            let to_maps = seen.sampler.affine_gradient(0, &seen.inputs, &to_moved);
            Some(Tensor::cat(vec![losses, to_maps.flatten(0, 2)], 0))
        });
        if let Some(numbers) = together {
            let numbers = read(numbers)?;
            let (losses, to_maps) = numbers.split_at(maps.len());
            let row = |to_map: &[f64], i: usize| std::array::from_fn(|j| to_map[4 * i + j]);
            let rows = to_maps.chunks_exact(12).map(|map| std::array::from_fn(|i| row(map, i)));
            return Ok(losses.iter().copied().zip(rows).collect());
        }
        let launched = |rows| {
            self.mapped(std::slice::from_ref(rows), |seen, moved| {
                let numbers = seen.begin(moved, true).numbers(0);
                numbers.expect("the only shard has the loss")
            })
        };
        let numbers = read(Tensor::cat(maps.iter().map(launched).collect(), 0))?;
        let of_map = numbers.chunks_exact(numbers.len() / maps.len()).map(Evaluated::of);
        Ok(of_map.map(|Evaluated { loss, rows, .. }| (loss, rows)).collect())
    }

    /// The same, so many times in a batch; both images are in one piece.
    fn repeated(&self, entries: usize) -> Self {
        let device = self.mesh.device(0);
        let [fixed, moving] = [&self.fixed, &self.moving].map(|image| {
            let image = to_device(image.shards()[0].clone(), device);
            let [_, channels, d, h, w] = image.dims();
            Sharded::whole(image.expand([entries, channels, d, h, w]))
        });
        Self {
            fixed,
            moving,
            comparison: self.comparison.clone(),
            outside: self.outside,
            mesh: self.mesh.clone(),
            mean_slopes: self.mean_slopes.clone(),
        }
    }

    /// How many maps are compared at once; `None` unless both images are in one piece.
    fn at_once(&self) -> Option<usize> {
        let (fixed, moving) = (self.fixed.layout(), self.moving.layout());
        let whole = fixed.count() == 1 && moving.count() == 1;
        let values = |image: &Sharded| image.dims().into_iter().product::<usize>();
        whole.then(|| (BATCH_VALUES / values(&self.fixed).max(values(&self.moving))).max(1))
    }

    fn padding(&self) -> Padding {
        match self.outside {
            Outside::Background => Padding::Zeros,
            Outside::Ignored => Padding::Border,
        }
    }

    /// How many values count, as [`Pair::count`] has them.
    ///
    /// # Errors
    /// As [`ShardedAlignment::gradient`].
    pub fn count(&self, rows: &[[f64; 4]; 3]) -> Result<f64> {
        Ok(self.evaluate(rows, false)?.count)
    }

    fn evaluate(&self, rows: &[[f64; 4]; 3], with_gradient: bool) -> Result<Evaluated> {
        self.mapped(std::slice::from_ref(rows), |seen, moved| seen.compare(moved, with_gradient))
    }

    /// What is made of the images under a map for each entry, and of the shards that are sampled of the moving one.
    fn mapped<T>(
        &self,
        maps: &[[[f64; 4]; 3]],
        then: impl FnOnce(&MappedImages, &Sharded) -> T,
    ) -> T {
        let options = GridSampleOptions { padding: self.padding(), ..GridSampleOptions::default() };
        let map = IndexMap { affine: maps.to_vec(), scale: options.displacement_scale };
        let (layout, moving) = (self.fixed.layout(), self.moving.layout());
        let bounds = [DisplacementBounds::NONE];
        let sampler = RingSampler::new(
            ShardPlaces { layout, mesh: &self.mesh },
            moving,
            &map,
            &bounds,
            &options,
        );
        let like = (self.mesh.device(0), self.moving.shards()[0].dtype());
        let rows = maps.as_flattened().concat();
        let data = TensorData::new(rows, [maps.len(), 3, 4]).convert_dtype(like.1);
        let affine = Tensor::from_data(data, like);
        let inputs = RingInputs { moving: &self.moving, affine: Some(&affine), displacement: None };
        let seen = MappedImages { alignment: self, sampler, inputs };
        let moved = (0..layout.count()).map(|k| {
            let shard = seen.sampler.sample_shard(k, &seen.inputs);
            put_away(shard, &self.fixed.shards()[k].device())
        });
        then(&seen, &Sharded::new(moved.collect(), layout.clone()))
    }
}

/// What a map gives; rows of zeros where no gradient was asked for.
struct Evaluated {
    loss: f64,
    count: f64,
    rows: [[f64; 4]; 3],
}

impl Evaluated {
    /// Of the sums of all shards: of the gradient to the map, if there is one, then the loss and how many values count.
    fn of(numbers: &[f64]) -> Self {
        let [to_map @ .., loss, count] = numbers else {
            unreachable!("the last shard has the loss")
        };
        let row = |i: usize| {
            std::array::from_fn(|j| to_map.get(4 * i + j).map_or(0.0, |sum| sum / count))
        };
        Self { loss: *loss, count: *count, rows: std::array::from_fn(row) }
    }
}

/// The images under a map for each entry.
struct MappedImages<'a> {
    alignment: &'a ShardedAlignment,
    sampler: RingSampler,
    inputs: RingInputs<'a>,
}

impl MappedImages<'_> {
    /// What is compared on the block of shard `k`.
    fn pair(&self, k: usize, block: &Block, moved: &Sharded) -> Pair {
        let ShardedAlignment { fixed, comparison, outside, mesh, .. } = self.alignment;
        let device = mesh.device(k);
        let images = [moved, fixed].map(|image| image.window(block.all.clone(), device));
        let inside = match outside {
            Outside::Background => None,
            Outside::Ignored => Some(self.inside(block, device)),
        };
        comparison.pair(images, inside)
    }

    /// What is compared where both images are in one piece.
    fn whole(&self, moved: &Sharded) -> Pair {
        self.pair(0, &self.block(0), moved)
    }

    /// How much the positions of a block lie inside the moving image.
    fn inside(&self, block: &Block, device: &Device) -> Tensor<5> {
        let inside = block.all_shards(self.alignment.fixed.layout()).map(|(k, planes)| {
            let shard = to_device(self.sampler.inside(k, &self.inputs), device);
            super::sharded::narrow(shard, block.axis.dim(), planes)
        });
        super::sharded::join(inside.collect(), block.axis.dim())
    }

    /// The loss of all shards; what is sampled of the moving image is `moved`.
    fn compare(&self, moved: &Sharded, with_gradient: bool) -> Result<Evaluated> {
        let mut parts = self.begin(moved, with_gradient);
        let mut numbers = vec![0.0; if with_gradient { 12 } else { 0 }];
        for k in 0..self.alignment.fixed.layout().count() {
            let Some(part) = parts.numbers(k) else { continue };
            // Waits for its device, so that the next shard finds its memory free.
            let part = read(part)?;
            let (to_map, loss) = part.split_at(numbers.len().min(12));
            numbers.iter_mut().zip(to_map).for_each(|(sum, part)| *sum += part);
            numbers.extend(loss);
        }
        Ok(Evaluated::of(&numbers))
    }

    /// The comparison of the shards, the first of which is next; with all sums where the slope of the loss depends on them.
    fn begin<'a>(&'a self, moved: &'a Sharded, with_gradient: bool) -> ShardParts<'a> {
        let ShardedAlignment { comparison, mesh, mean_slopes, .. } = self.alignment;
        let sums = (!comparison.similarity.is_mean()).then(|| self.sums(moved));
        let slopes = match &sums {
            Some(sums) if with_gradient => broadcast(&comparison.slope(sums), mesh.devices()),
            _ => mean_slopes.clone(),
        };
        ShardParts { seen: self, moved, with_gradient, slopes, sums, parts: Vec::new() }
    }

    fn block(&self, k: usize) -> Block {
        let ShardedAlignment { fixed, comparison, .. } = self.alignment;
        Block::new(fixed.layout(), k, comparison.reach())
    }

    /// What the loss is made of, first of all, where its slope depends on that.
    fn sums(&self, moved: &Sharded) -> Sums {
        let ShardedAlignment { fixed, comparison, .. } = self.alignment;
        added((0..fixed.layout().count()).map(|k| {
            let block = self.block(k);
            let pair = self.pair(k, &block, moved);
            Tensor::cat(comparison.parts(&block, &pair), 0)
        }))
    }

    /// What shard `k` gives: its gradient to the twelve numbers of the map, if that is asked for, and of a mean its parts
    /// in the sums.
    fn shard(
        &self,
        k: usize,
        moved: &Sharded,
        slope: &Tensor<1>,
        with_gradient: bool,
    ) -> (Option<Tensor<1>>, Vec<Tensor<1>>) {
        let comparison = &self.alignment.comparison;
        let block = self.block(k);
        let pair = self.pair(k, &block, moved);
        let (parts, [to_moved, _]) =
            comparison.compare(&block, &pair, slope, [with_gradient, false]);
        let to_map = to_moved.map(|to_moved| {
            let own = block.narrow(&comparison.with_mask(1, to_moved), &block.own);
            self.sampler.affine_gradient(k, &self.inputs, &own).flatten(0, 2)
        });
        (to_map, parts)
    }
}

/// A comparison shard by shard.
struct ShardParts<'a> {
    seen: &'a MappedImages<'a>,
    moved: &'a Sharded,
    with_gradient: bool,
    slopes: Vec<Tensor<1>>,
    /// Of a mean only known once all shards were seen.
    sums: Option<Sums>,
    /// Of the shards so far, of a mean.
    parts: Vec<Tensor<1>>,
}

impl ShardParts<'_> {
    /// What shard `k` adds: its gradient to the twelve numbers of the map, if one is asked for, and with the last shard the
    /// loss and how many values count. On the device, launched and not waited for.
    fn numbers(&mut self, k: usize) -> Option<Tensor<1>> {
        let Self { seen, moved, with_gradient, .. } = *self;
        let ShardedAlignment { comparison, mesh, .. } = seen.alignment;
        let mut numbers: Vec<Tensor<1>> = Vec::new();
        if with_gradient || self.sums.is_none() {
            let (to_map, parts) = seen.shard(k, moved, &self.slopes[k], with_gradient);
            numbers.extend(to_map);
            self.parts.extend((!parts.is_empty()).then(|| Tensor::cat(parts, 0)));
        }
        if k + 1 == moved.layout().count() {
            let sums = self.sums.take().unwrap_or_else(|| added(self.parts.drain(..)));
            let loss = [comparison.loss(&sums), sums.count];
            numbers.extend(loss.map(|number| to_device(number, mesh.device(k))));
        }
        (!numbers.is_empty()).then(|| Tensor::cat(numbers, 0))
    }
}

/// The sums over all shards.
fn added(parts: impl Iterator<Item = Tensor<1>>) -> Sums {
    Sums::of(&reduce(parts, Reduction::Sum), 0)
}

fn read(values: Tensor<1>) -> Result<Vec<f64>> {
    read_together("the loss of an affine map", vec![values])
}
