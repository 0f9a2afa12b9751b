//! An image as a displacement shows it on the blocks of all shards: who must send which planes, for as long as the
//! displacement keeps within its bounds.

use std::ops::Range;

use burn::Tensor;
use burn::tensor::DType;

use super::block::{Around, Block, Neighbours};
use super::homes::Homes;
use super::seam::{Crossing, far_seams};
use crate::exchange::WaitForSums;
use crate::hosts::Holders;
use crate::layout::Layout;
use crate::ring::{BlockSampler, DisplacementBounds, IndexMap, Keep, MappedPlanes};
use crate::sharded::Sharded;
use ffdp_image::error::Result;

/// Iterations between two readings of a displacement's bounds, where planes of the image travel in every
/// iteration. With steps of a quarter of a voxel the bounds loosen by 2.5 voxels: as many planes
/// are sent in vain, at most.
pub const BOUNDS_INTERVAL: usize = 10;

/// The same where planes that travelled are kept: a reading empties the queues of all devices, and 10
/// planes more on either side are little relative to a shard. As many again are fetched, so that most readings find
/// that what is kept reaches far enough.
pub const KEPT_BOUNDS_INTERVAL: usize = 40;

/// Samplers that are made for the first time, when nothing is displaced, and for the second may meet new kernels.
const UNKNOWN_PLANS: usize = 2;

/// The grid of the fixed image, cut: what all views of a run share.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub layout: Layout,
    pub homes: Homes,
    /// Who else has a part of the grid.
    pub holders: Holders,
    /// Planes around the own ones of a block, on either side.
    pub width: usize,
    /// What a voxel moves at most in an iteration, along (x, y, z); 0 where that is not known.
    pub step_voxels: [f64; 3],
}

impl Grid {
    /// An operation on the planes of a volume and up to `width` more on either side, shard by shard: what it gives on
    /// the shard's own planes, where these rest. The operation keeps the extents and looks no further.
    pub fn through(
        &self,
        volume: &Sharded,
        width: usize,
        mut each: impl FnMut(Tensor<5>) -> Tensor<5>,
    ) -> Result<Sharded> {
        // Whatever it is, it may be met for the first time.
        let _waiting = WaitForSums::when(width > 0);
        let around = self.surround(volume, width)?;
        Ok(self.through_around(&around, |_, there| each(there)))
    }

    /// The same of a volume that has the planes around, by an operation that is given the number of the shard as well.
    pub fn through_around(
        &self,
        around: &Around,
        mut each: impl FnMut(usize, Tensor<5>) -> Tensor<5>,
    ) -> Sharded {
        let shard = |k: usize| {
            let (block, device) = (self.block(k).within(around.width), self.homes.device(k));
            let there = each(k, around.joined(k, &block, device));
            let own = self.homes.put_away(k, block.narrow(&there, &block.own));
            self.homes.settle(k);
            own
        };
        let shards = (0..self.layout.count()).map(shard).collect();
        Sharded::new(shards, self.layout.clone())
    }

    /// A volume with up to `width` planes around every shard; what other devices have of them comes all at once.
    pub fn surround(&self, volume: &Sharded, width: usize) -> Result<Around> {
        let volume = std::slice::from_ref(volume);
        let came = self.send(volume, width)?;
        Ok(self.around(volume, width, came)?.remove(0))
    }

    /// Sends what blocks with `width` planes around them need of volumes that another device holds.
    pub fn send(&self, volumes: &[Sharded], width: usize) -> Result<Crossing> {
        let volumes: Vec<_> = volumes.iter().map(|volume| volume.shards().to_vec()).collect();
        Crossing::send(&volumes, self.crossed(width), self.layout.axis(), width)
    }

    /// Volumes with what was sent.
    pub fn around(&self, volumes: &[Sharded], width: usize, sent: Crossing) -> Result<Vec<Around>> {
        let around = |(volume, came): (&Sharded, Vec<Neighbours>)| -> Result<Around> {
            Ok(Around { volume: self.holders.surround(volume, width)?, width, came })
        };
        volumes.iter().zip(sent.receive()).map(around).collect()
    }

    /// The seams between two devices, by the shard below each; none where `width` planes around thin shards reach further
    /// than to the next, or where some rest in host memory.
    pub fn crossed(&self, width: usize) -> Vec<usize> {
        let thinnest = self.layout.all_planes().map(|planes| planes.len()).min();
        match thinnest {
            Some(planes) if planes >= width && width > 0 && !self.homes.away => {
                far_seams(&self.homes.mesh)
            }
            _ => Vec::new(),
        }
    }

    /// Whether there is nothing around the only shard.
    pub fn is_whole(&self) -> bool {
        self.layout.count() == 1 && !self.holders.are_several()
    }

    /// Planes of the thinnest part: of shards in one process, of ranks where there are several, which know no more of
    /// each other.
    pub fn thinnest(&self) -> usize {
        let ranks = self.holders.around(0, self.layout.extent()).into_iter();
        let shards = self.layout.all_planes();
        let least = |planes: &mut dyn Iterator<Item = Range<usize>>| {
            planes.map(|planes| planes.len()).filter(|planes| *planes > 0).min()
        };
        let parts = match self.holders.are_several() {
            true => least(&mut ranks.into_iter()),
            false => least(&mut shards.into_iter()),
        };
        parts.expect("a volume has planes")
    }

    /// The block of shard `k`.
    pub fn block(&self, k: usize) -> Block {
        Block::new(&self.layout, k, self.width)
    }

    /// What a voxel moves at most in so many iterations.
    pub fn longest(&self, iterations: usize) -> [f64; 3] {
        self.step_voxels.map(|step| step * iterations as f64)
    }
}

/// An image, and how the blocks come by its planes.
pub(super) struct View {
    /// `None` while samplers keep all of it, see [`View::release`].
    image: Option<Sharded>,
    layout: Layout,
    /// With that of its mask.
    pub channels: usize,
    pub dtype: DType,
    map: IndexMap,
    keep: Keep,
    /// Who else has a part of the image.
    holders: Holders,
    /// Of every shard of the grid, and the displacements that they are made for.
    pub samplers: Vec<BlockSampler>,
    pub(super) reach: DisplacementBounds,
    /// For how many iterations more no displacement leaves these.
    good_for: usize,
    /// How often samplers were made.
    pub(super) planned: usize,
}

impl View {
    pub fn new(image: Sharded, map: IndexMap, keep: Keep, holders: Holders) -> Self {
        Self {
            layout: image.layout().clone(),
            channels: image.dims()[1],
            dtype: image.shards()[0].dtype(),
            image: Some(image),
            map,
            keep,
            holders,
            samplers: Vec::new(),
            reach: DisplacementBounds::NONE,
            good_for: 0,
            planned: 0,
        }
    }

    #[cfg(test)]
    pub fn is_released(&self) -> bool {
        self.image.is_none()
    }

    /// An iteration of those that were planned for begins.
    pub fn begin(&mut self) {
        self.good_for = self.good_for.saturating_sub(1);
    }

    /// Makes samplers that reach as far as `field` does in the next iterations, unless they do: a displacement, or
    /// the velocity of one. Whether kernels may be met for the first time with them.
    pub fn plan(&mut self, grid: &Grid, field: &Sharded) -> Result<bool> {
        if self.good_for > 0 {
            return Ok(false);
        }
        let mut is_unknown = false;
        let iterations = self.bounds_interval(grid);
        let bounds = self.bounds(field)?.grown(grid.longest(iterations));
        if self.samplers.is_empty() || !self.reach.contains(&bounds) {
            self.recover();
            // Two sets of planes from other devices would not fit where one does.
            self.samplers.clear();
            self.reach = bounds.grown(self.reserve(grid, iterations));
            self.samplers = self.samplers(grid)?;
            self.release(grid);
            self.planned += 1;
            is_unknown = self.planned <= UNKNOWN_PLANS;
        }
        self.good_for = iterations;
        Ok(is_unknown)
    }

    fn bounds_interval(&self, grid: &Grid) -> usize {
        if grid.step_voxels == [0.0; 3] {
            return 1;
        }
        match self.keep {
            // Ranks keep what came from others, and all read at once.
            Keep::Nothing if !grid.holders.are_several() => BOUNDS_INTERVAL,
            Keep::Nothing | Keep::Planes => KEPT_BOUNDS_INTERVAL,
        }
    }

    /// How far the field of all ranks reaches.
    fn bounds(&self, field: &Sharded) -> Result<DisplacementBounds> {
        let bounds = match self.layout.count() {
            // All of it is seen anyway.
            1 if !self.holders.are_several() => vec![DisplacementBounds::NONE],
            _ => DisplacementBounds::read(field)?,
        };
        let bounds = bounds.into_iter().reduce(DisplacementBounds::union);
        self.holders.union(bounds.expect("there is a shard"))
    }

    /// How much further samplers should reach than they have to in so many iterations: what they keep need not be
    /// fetched anew when the displacement has grown a little.
    fn reserve(&self, grid: &Grid, iterations: usize) -> [f64; 3] {
        match self.keep {
            Keep::Nothing if !grid.holders.are_several() => [0.0; 3],
            // Of several ranks all have the same.
            Keep::Nothing | Keep::Planes => grid.longest(iterations),
        }
    }

    /// Of every shard, for displacements within reach.
    fn samplers(&self, grid: &Grid) -> Result<Vec<BlockSampler>> {
        let image = self.reachable(grid)?;
        let sampler = |k: usize| {
            let block = grid.block(k);
            let mapped = self.mapped(grid, &block.all);
            BlockSampler::new(mapped, &image, grid.homes.device(k), self.keep)
        };
        Ok((0..grid.layout.count()).map(sampler).collect())
    }

    /// Planes of the grid, for displacements within reach.
    fn mapped<'a>(&'a self, grid: &'a Grid, planes: &'a Range<usize>) -> MappedPlanes<'a> {
        MappedPlanes { fixed: &grid.layout, planes, map: &self.map, bounds: &self.reach }
    }

    fn image(&self) -> &Sharded {
        self.image.as_ref().expect("samplers are made of an image that is there")
    }

    /// Releases the image if samplers on the devices of its shards keep all of it: their planes, which are a
    /// few more than those of the shards, take its place until they are fetched anew.
    fn release(&mut self, grid: &Grid) {
        let image = self.image();
        let kept = |(k, sampler): (usize, &BlockSampler)| {
            let here = image.shards()[k].device() == *grid.homes.device(k);
            here && sampler.keeps(&self.layout.planes(k))
        };
        let alone = !self.holders.are_several();
        let pairs = self.layout.count() == self.samplers.len();
        if alone && pairs && self.samplers.iter().enumerate().all(kept) {
            self.samplers.iter_mut().for_each(BlockSampler::release);
            self.image = None;
        }
    }

    /// Cuts the image out of what samplers keep, if it was released.
    fn recover(&mut self) {
        if self.image.is_some() {
            return;
        }
        let shard = |(k, sampler): (usize, &BlockSampler)| {
            let planes = self.layout.planes(k);
            sampler.kept_planes(&planes).expect("it was released because they are kept")
        };
        let shards = self.samplers.iter().enumerate().map(shard).collect();
        self.image = Some(Sharded::new(shards, self.layout.clone()));
    }

    /// The planes of the image that this rank's blocks reach.
    fn reachable(&self, grid: &Grid) -> Result<Sharded> {
        if !self.holders.are_several() {
            return Ok(self.image().clone());
        }
        let blocks = grid.holders.around(grid.width, grid.layout.extent());
        let reach = |block| self.mapped(grid, block).reachable(&self.layout);
        let wanted: Vec<_> = blocks.iter().map(reach).collect();
        let found = self.holders.fetch(self.image(), &wanted)?;
        let found = found.expect("a block reaches at least one plane");
        if grid.homes.mesh.count() > 1 || found.layout().count() == 1 {
            return Ok(found);
        }
        // In one piece, no sampler copies it.
        let (layout, held) = (found.layout().clone(), found.layout().held());
        let all = found.window(held.clone(), grid.homes.device(0));
        Ok(Sharded::new(vec![all], layout.with_cuts(vec![held.start, held.end])))
    }
}
