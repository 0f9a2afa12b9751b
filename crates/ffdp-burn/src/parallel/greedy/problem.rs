//! What all iterations share: the images on the blocks of every shard, how they are compared, and the gradient
//! of that, shard by shard.

use burn::Tensor;

use super::block::{Block, Pieces};
use super::compare::Comparison;
use super::homes::Homes;
use super::seam::{Crossing, far_seams, smooth_own};
use super::{BOUNDS_INTERVAL, KEPT_BOUNDS_INTERVAL, ShardedImages, Team};
use crate::error::Result;
use crate::ops::{AdamOptions, DeformOptions, Measure, Method, Optimizer, Penalties, Update};
use crate::parallel::exchange::Reduction;
use crate::parallel::layout::Layout;
use crate::parallel::mesh::Mesh;
use crate::parallel::ring::{BlockSampler, DisplacementBounds, IndexMap, Keep, reachable};
use crate::parallel::sharded::Sharded;

/// The optimiser of options that shards can follow.
fn supported(options: &DeformOptions, channels: usize) -> AdamOptions {
    let DeformOptions { method, update, penalties, measure, .. } = options;
    let Optimizer::Adam(adam) = options.optimizer else {
        panic!("greedy on shards: the optimiser must be Adam, got {:?}", options.optimizer)
    };
    assert!(
        *method == Method::Greedy
            && *update == Update::Compositive
            && *penalties == Penalties::default(),
        "greedy on shards: the method must be greedy and compositive, without penalties, got {options:?}"
    );
    let several = matches!(measure, Measure::Lncc(_) | Measure::SquaredDifference);
    assert!(
        several || channels == 1,
        "greedy on shards: mutual information takes images of one channel, got {channels}"
    );
    adam
}

/// One pair of images, cut, and what is done with them.
pub(super) struct Problem {
    /// `None` while samplers keep all of it, see [`Problem::release`].
    pub moving: Option<Sharded>,
    moving_layout: Layout,
    fixed: Fixed,
    /// Of the whole fixed image, without its mask.
    values: usize,
    options: DeformOptions,
    pub adam: AdamOptions,
    comparison: Comparison,
    map: IndexMap,
    pub layout: Layout,
    homes: Homes,
    keep: Keep,
    pub team: Team,
}

/// What a shard brings to where its gradient is computed.
struct Visit {
    block: Block,
    /// With the planes of the moving image that are sampled, if they come in one piece.
    sampler: BlockSampler,
    /// The displacement on the block.
    pieces: Pieces,
    /// Those that the gradient changes.
    moments: Option<[Tensor<5>; 2]>,
}

/// The fixed image.
enum Fixed {
    /// As it is cut, with what blocks need of other ranks; they are put together when they are compared.
    Shards(Sharded),
    /// On the block of every shard, which takes the shard's place.
    Blocks(Vec<Tensor<5>>),
}

impl Problem {
    pub fn new(
        images: ShardedImages,
        options: &DeformOptions,
        homes: &Homes,
        team: Team,
    ) -> Result<Self> {
        let ShardedImages { fixed, moving, affine, masked } = images;
        let channels = fixed.dims()[1] - usize::from(masked[0]);
        let adam = supported(options, channels);
        let layout = fixed.layout().clone();
        let mesh = &homes.mesh;
        check_places(&fixed, mesh);
        let map = IndexMap::read(Some(&affine), options.displacement_scale)?;
        let map = map.still(layout.size());
        let comparison = Comparison::new(options.measure, masked);
        let values = fixed.dims()[0] * channels * layout.voxels();
        // Many shards on one device mean that memory is short. Several devices would wait for what they
        // do not keep.
        let keep = match mesh.is_virtual() && !mesh.has_several_devices() {
            true => Keep::Nothing,
            false => Keep::Planes,
        };
        let radius = options.smooth_gradient.radius(layout.axis().component());
        let (homes, fixed, options) = (homes.clone(), Fixed::Shards(fixed), *options);
        let mut problem = Self {
            moving_layout: moving.layout().clone(),
            moving: Some(moving),
            fixed,
            values,
            options,
            adam,
            comparison,
            map,
            layout,
            homes,
            keep,
            team,
        };
        if let Fixed::Shards(fixed) = &mut problem.fixed {
            *fixed = problem.team.fixed.surround(fixed, problem.comparison.reach() + radius)?;
        }
        if keep == Keep::Planes {
            let blocks =
                (0..problem.layout.count()).map(|k| problem.fixed_block(&problem.block(k), k));
            problem.fixed = Fixed::Blocks(blocks.collect());
        }
        Ok(problem)
    }

    /// The step along (x, y, z) for a direction of length 1.
    pub fn rate(&self) -> [f64; 3] {
        self.options.step_voxels.map(|step| step * self.options.measure.sign())
    }

    pub fn bounds_interval(&self) -> usize {
        match self.keep {
            // Ranks keep what came from others, and all read at once.
            Keep::Nothing if !self.team.fixed.are_several() => BOUNDS_INTERVAL,
            Keep::Nothing | Keep::Planes => KEPT_BOUNDS_INTERVAL,
        }
    }

    /// Planes on either side that the smoothing of the gradient looks at.
    fn radius(&self) -> usize {
        self.options.smooth_gradient.radius(self.layout.axis().component())
    }

    fn block(&self, k: usize) -> Block {
        Block::new(&self.layout, k, self.comparison.reach() + self.radius())
    }

    fn fixed_block(&self, block: &Block, k: usize) -> Tensor<5> {
        match &self.fixed {
            Fixed::Shards(fixed) => fixed.window(block.all.clone(), self.homes.device(k)),
            Fixed::Blocks(blocks) => blocks[k].clone(),
        }
    }

    /// Shard `k` of the fixed image, on its device.
    fn fixed_own(&self, block: &Block, k: usize) -> Tensor<5> {
        match &self.fixed {
            Fixed::Shards(fixed) => fixed.window(block.own.clone(), self.homes.device(k)),
            Fixed::Blocks(blocks) => block.narrow(&blocks[k], &block.own),
        }
    }

    /// Sends what the blocks need of a field that another device holds.
    fn send(&self, field: &Sharded) -> Crossing {
        let width = self.comparison.reach() + self.radius();
        let thinnest = self.layout.all_planes().map(|planes| planes.len()).min();
        // Blocks around thin shards reach further than to the next.
        let seams = match thinnest {
            Some(planes) if planes >= width && width > 0 => far_seams(&self.homes.mesh),
            _ => Vec::new(),
        };
        let shards: Vec<&Tensor<5>> = field.shards().iter().collect();
        Crossing::send(&shards, seams, self.layout.axis(), width)
    }

    /// How far the field of all ranks reaches within so many iterations.
    pub fn bounds(&self, field: &Sharded, iterations: usize) -> Result<DisplacementBounds> {
        let bounds = match self.moving_layout.count() {
            // All of it is seen anyway.
            1 if !self.team.moving.are_several() => vec![DisplacementBounds::NONE],
            _ => DisplacementBounds::read(field)?,
        };
        let bounds = bounds.into_iter().reduce(DisplacementBounds::union);
        let bounds = self.team.moving.union(bounds.expect("there is a shard"))?;
        Ok(bounds.grown(self.longest(iterations)))
    }

    /// How much further samplers should reach than they have to in so many iterations: what they keep need not be
    /// fetched anew when the displacement has grown a little.
    pub fn reserve(&self, iterations: usize) -> [f64; 3] {
        match self.keep {
            Keep::Nothing if !self.team.fixed.are_several() => [0.0; 3],
            // Of several ranks all have the same.
            Keep::Nothing | Keep::Planes => self.longest(iterations),
        }
    }

    /// What a voxel moves at most.
    fn longest(&self, iterations: usize) -> [f64; 3] {
        self.options.step_voxels.map(|step| step * iterations as f64)
    }

    /// Of every shard, for displacements within bounds.
    pub fn samplers(&self, bounds: &DisplacementBounds) -> Result<Vec<BlockSampler>> {
        let moving = self.reachable(bounds)?;
        let sampler = |k: usize| {
            let block = self.block(k);
            let moving = (&moving, &self.map);
            let planes = (&self.layout, &block.all);
            BlockSampler::new(planes, self.homes.device(k), moving, bounds, self.keep)
        };
        Ok((0..self.layout.count()).map(sampler).collect())
    }

    fn moving(&self) -> &Sharded {
        self.moving.as_ref().expect("samplers are made of an image that is there")
    }

    /// Lets go of the moving image if samplers on the devices of its shards keep all of it: their planes, which are a
    /// few more than those of the shards, take its place until they are fetched anew.
    pub fn release(&mut self, samplers: &mut [BlockSampler]) {
        let moving = self.moving();
        let kept = |(k, sampler): (usize, &BlockSampler)| {
            let here = moving.shards()[k].device() == *self.homes.device(k);
            here && sampler.keeps(&self.moving_layout.planes(k))
        };
        let alone = !self.team.moving.are_several();
        let pairs = self.moving_layout.count() == samplers.len();
        if alone && pairs && samplers.iter().enumerate().all(kept) {
            samplers.iter_mut().for_each(BlockSampler::release);
            self.moving = None;
        }
    }

    /// Cuts the moving image out of what samplers keep, if it was let go of.
    pub fn recover(&mut self, samplers: &[BlockSampler]) {
        if self.moving.is_some() {
            return;
        }
        let shard = |(k, sampler): (usize, &BlockSampler)| {
            let planes = self.moving_layout.planes(k);
            sampler.kept_planes(&planes).expect("it was let go of because they are kept")
        };
        let shards = samplers.iter().enumerate().map(shard).collect();
        self.moving = Some(Sharded::new(shards, self.moving_layout.clone()));
    }

    /// The planes of the moving image that this rank's blocks reach within bounds.
    fn reachable(&self, bounds: &DisplacementBounds) -> Result<Sharded> {
        let holders = &self.team.moving;
        if !holders.are_several() {
            return Ok(self.moving().clone());
        }
        let width = self.comparison.reach() + self.radius();
        let blocks = self.team.fixed.around(width, self.layout.extent());
        let (fixed, moving) = (&self.layout, &self.moving_layout);
        let reach = |block| reachable(fixed, block, moving, &self.map, bounds);
        let wanted: Vec<_> = blocks.iter().map(reach).collect();
        let found = holders.fetch(self.moving(), &wanted)?;
        let found = found.expect("a block reaches at least one plane");
        if self.homes.mesh.count() > 1 || found.layout().count() == 1 {
            return Ok(found);
        }
        // In one piece, no sampler copies it.
        let (layout, held) = (found.layout().clone(), found.layout().held());
        let all = found.window(held.clone(), self.homes.device(0));
        Ok(Sharded::new(vec![all], layout.with_cuts(vec![held.start, held.end])))
    }

    /// The parts of the measure, each on its device: of every shard, or one for all of them. Each
    /// shard's gradient to the displacement, smoothed, goes to `take`, and with it its `moments`, which come along.
    pub fn measure(
        &self,
        field: &Sharded,
        samplers: &[BlockSampler],
        moments: Vec<Option<[Tensor<5>; 2]>>,
        mut take: impl FnMut(usize, Tensor<5>, Option<[Tensor<5>; 2]>),
    ) -> Result<Vec<Tensor<1>>> {
        self.compare(field, samplers, moments, |k, visit, to_moved| {
            let Visit { block, sampler, pieces, moments } = visit;
            let inner = block.within(self.radius());
            let gradient = pieces.pull_back([&block, &inner], &sampler, &to_moved);
            drop((pieces, to_moved, sampler));
            self.homes.settle(k);
            let (axis, smoothing) = (block.axis, &self.options.smooth_gradient);
            take(k, smooth_own(gradient, axis, smoothing, self.radius()), moments);
        })
    }

    /// The measures, one after the other, from the sums of their parts over this rank's shards.
    pub fn finished(&self, sums: Tensor<1>) -> Result<Tensor<1>> {
        let sums = self.team.fixed.combine(sums, Reduction::Sum)?;
        Ok(self.comparison.finished(sums, self.values))
    }

    /// The parts of the measure alone.
    pub fn values(&self, field: &Sharded, samplers: &[BlockSampler]) -> Result<Vec<Tensor<1>>> {
        self.compare(field, samplers, vec![None; self.layout.count()], |_, _, _| ())
    }

    /// The parts of the measure; what a gradient is made of goes to `go_on`: what a shard has brought, and the gradient
    /// to the moved image.
    fn compare(
        &self,
        field: &Sharded,
        samplers: &[BlockSampler],
        mut moments: Vec<Option<[Tensor<5>; 2]>>,
        mut go_on: impl FnMut(usize, Visit, Tensor<5>),
    ) -> Result<Vec<Tensor<1>>> {
        let count = self.layout.count();
        let crossing = self.send(field);
        let width = self.comparison.reach() + self.radius();
        let surrounded = self.team.fixed.surround(field, width)?;
        let own = |k: usize| self.homes.bring(k, field.shards()[k].clone());
        let show = |k: usize| self.block(k).show_own(&own(k), &samplers[k].at_hand());
        // Meanwhile; of several shards on a device, one after the other is shown.
        let mut shown: Vec<Option<Tensor<5>>> =
            (0..count).map(|k| (!self.homes.mesh.is_virtual()).then(|| show(k))).collect();
        let mut came = crossing.receive();
        let bring = |k: usize| (samplers[k].at_hand(), own(k), self.fixed_own(&self.block(k), k));
        let pair = |(k, (sampler, own, fixed)): (usize, (BlockSampler, Tensor<5>, Tensor<5>))| {
            let block = self.block(k);
            let moved = shown[k].clone().unwrap_or_else(|| block.show_own(&own, &sampler));
            [block.narrow(&moved, &block.own), fixed]
        };
        let pairs = self.homes.in_turn(bring).map(pair);
        let sum = |votes| self.team.fixed.all_reduce(votes, Reduction::Sum);
        let whole = self.comparison.whole(pairs, self.layout.voxels(), sum)?;
        let bring = |k: usize| {
            let block = self.block(k);
            let (sampler, fixed) = (samplers[k].at_hand(), self.fixed_block(&block, k));
            let [below, above] =
                block.around(&surrounded, self.homes.device(k), std::mem::take(&mut came[k]));
            let pieces = Pieces { below, own: own(k), above };
            let moments = moments[k].take();
            let moments = moments.map(|both| both.map(|values| self.homes.bring(k, values)));
            (Visit { block, sampler, pieces, moments }, fixed)
        };
        let mut values = Vec::with_capacity(count);
        for (k, (visit, fixed)) in self.homes.in_turn(bring) {
            let Visit { block, sampler, pieces, .. } = &visit;
            let moved = pieces.show(block, sampler, shown[k].take());
            let (value, to_moved) =
                self.comparison.compare((k, block), [moved, fixed], whole.as_ref());
            go_on(k, visit, to_moved);
            values.extend(value);
        }
        values.extend(whole.map(|whole| self.team.share(whole.value)));
        Ok(values)
    }
}

/// That the shards can be computed where `mesh` says.
fn check_places(fixed: &Sharded, mesh: &Mesh) {
    let (shards, places) = (fixed.layout().count(), mesh.count());
    assert!(shards == places, "greedy: {shards} shards for a mesh of {places}");
    assert!(
        !mesh.has_several_devices() || fixed.mesh().devices() == mesh.devices(),
        "greedy: shards on several devices must lie on them, got {:?} for {:?}",
        fixed.mesh().devices(),
        mesh.devices()
    );
}
