//! Iterations of the compositive greedy method on sharded images and fields: the method of
//! [`ops::deform`](crate::ops::deform()) with [`Method::Greedy`], shard by shard.
//!
//! ```text
//! for each shard      moved = M(A p + t + S u(p))         g = d measure / du        block.rs, compare.rs
//!                     m, v <- G_gradient g                seam.rs, descend.rs
//! two numbers         mean v, the longest vector of d = m / (sqrt v + ..)
//! for each shard      u <- G_warp (s + u o (id + s)),  s = rate d / longest         descend.rs
//! ```
//! With one shard this *is* the serial operation. With several, a displacement differs from it by
//! rounding only. Beyond the state, only what one shard is at work on is held: a gradient becomes
//! moments before the next shard's is computed, and a direction is never stored.
//!
//! The host waits for no device but for the bounds of the displacement, which say what the ring must send:
//! they are read every [`BOUNDS_INTERVAL`] or [`KEPT_BOUNDS_INTERVAL`] iterations, and loosened by the
//! steps in between. (A step is at most `r`; composing adds it to a mean of the field's values, and
//! smoothing takes means of those.) Where the moving image is in one piece, they are not needed.

use burn::Tensor;

mod block;
mod compare;
mod descend;
mod seam;

use super::adam::ShardedMoments;
use super::collective::{Reduction, reduce};
use super::layout::Layout;
use super::mesh::Mesh;
use super::ring::{BlockSampler, DisplacementBounds, IndexMap, Keep};
use super::sharded::Sharded;
use super::transfer::to_device;
use crate::error::Result;
use crate::ops::{
    AdamOptions, DeformImages, DeformOptions, DeformState, Measure, Method, Optimizer, Penalties,
    Update, deform,
};
use block::{Block, Pieces};
use compare::Comparison;
use descend::Descent;
use seam::{Crossing, far_seams, smooth_own};

/// Iterations between two readings of the displacement's bounds, where planes of the moving image travel in
/// every iteration. With steps of a quarter of a voxel the bounds loosen by 2.5 voxels: as many planes
/// are sent in vain, at most.
pub const BOUNDS_INTERVAL: usize = 10;

/// The same where planes that travelled are kept: a reading empties the queues of all devices, and 10
/// planes more on either side are little beside a shard.
pub const KEPT_BOUNDS_INTERVAL: usize = 40;

/// The images of a sharded [`greedy`] registration.
#[derive(Clone, Debug)]
pub struct ShardedImages {
    /// `[N, C, D, H, W]`.
    pub fixed: Sharded,
    /// `[N, C, Di, Hi, Wi]`; cut as one likes.
    pub moving: Sharded,
    /// `[A|t]`, from fixed to moving voxels in (x, y, z), `[1 or N, 3, 4]`.
    pub affine: Tensor<3>,
}

/// What changes from iteration to iteration.
#[derive(Clone, Debug)]
pub struct ShardedState {
    /// `u`, `[N, 3, D, H, W]`, cut as the fixed image.
    pub displacement: Sharded,
    /// Of its gradient.
    pub moments: ShardedMoments,
}

/// Does `iterations` of the greedy method. Returns the measure before each of them, `[iterations]`,
/// on the device of the first shard, and the state after the last. Not differentiable. Who iterates again
/// and again keeps a [`Greedy`].
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) when bounds cannot be read.
///
/// # Panics
/// As the serial operation, or if the displacement and the fixed image are cut differently.
pub fn greedy(
    images: &ShardedImages,
    state: ShardedState,
    options: &DeformOptions,
    iterations: usize,
) -> Result<(Tensor<1>, ShardedState)> {
    images.fixed.check_layout(&state.displacement);
    if let ([fixed], [moving]) = (images.fixed.shards(), images.moving.shards()) {
        return Ok(serial(images, [fixed, moving], state, options, iterations));
    }
    let mesh = images.fixed.mesh();
    let mut greedy = Greedy::new(images.clone(), state, options, &mesh)?;
    let measures = greedy.iterate(iterations)?;
    Ok((measures, greedy.into_state()))
}

/// Iterations that go on where they were interrupted: what was fetched from other devices stays there
/// between two readings of the measure.
pub struct Greedy {
    problem: Problem,
    displacement: Option<Sharded>,
    descent: Descent,
    /// Of every shard, and for how many iterations more the bounds hold that they were planned for.
    samplers: Vec<BlockSampler>,
    good_for: usize,
}

/// A displacement that is missing means that an iteration failed, after which none is asked for.
const PRESENT: &str = "only an iteration takes the displacement";

impl Greedy {
    /// Iterations from `state` on, computed on `mesh`. Shards *rest* where they lie: those of a mesh of one
    /// device may lie in host memory (`Device::flex()`), come to the device when it is their turn, and
    /// go back; what they become rests where they did.
    ///
    /// # Errors
    /// As [`greedy`].
    ///
    /// # Panics
    /// As [`greedy`]; if `mesh` has another number of places than there are shards; or if it has several
    /// devices and a shard lies on none or another of them.
    pub fn new(
        images: ShardedImages,
        state: ShardedState,
        options: &DeformOptions,
        mesh: &Mesh,
    ) -> Result<Self> {
        images.fixed.check_layout(&state.displacement);
        let problem = Problem::new(images, options, mesh)?;
        let ShardedState { displacement, moments } = state;
        let step = (problem.adam, problem.rate(), options.smooth_field);
        let descent = Descent::new(step, &displacement, moments, mesh);
        let displacement = Some(displacement);
        Ok(Self { problem, displacement, descent, samplers: Vec::new(), good_for: 0 })
    }

    /// The measure before each of so many iterations, on the device of the first shard.
    ///
    /// # Errors
    /// As [`greedy`].
    ///
    /// # Panics
    /// For no iterations.
    pub fn iterate(&mut self, iterations: usize) -> Result<Tensor<1>> {
        assert!(iterations > 0, "greedy: at least one iteration is needed");
        let mut measures: Vec<Vec<Tensor<1>>> = Vec::new();
        for _ in 0..iterations {
            let displacement = self.displacement.take().expect(PRESENT);
            self.plan(&displacement)?;
            self.good_for -= 1;
            self.descent.begin();
            let mut shares = Vec::with_capacity(self.problem.layout.count());
            let take = |k, gradient| shares.push(self.descent.take(k, gradient));
            let values = self.problem.measure(&displacement, &self.samplers, take);
            let longest = self.descent.longest(shares);
            self.displacement = Some(self.descent.step(displacement, &longest));
            measures.resize_with(values.len(), Vec::new);
            measures.iter_mut().zip(values).for_each(|(all, value)| all.push(value));
        }
        let shares = measures.into_iter().map(|share| Tensor::cat(share, 0));
        Ok(reduce(shares, Reduction::Sum))
    }

    /// The measure of what was reached, `[1]` on the device of the first shard.
    ///
    /// # Errors
    /// As [`greedy`].
    pub fn measure(&mut self) -> Result<Tensor<1>> {
        let displacement = self.displacement().clone();
        self.plan(&displacement)?;
        let values = self.problem.values(&displacement, &self.samplers);
        Ok(reduce(values, Reduction::Sum))
    }

    /// Makes samplers that reach as far as the displacement does in the next iteration.
    fn plan(&mut self, displacement: &Sharded) -> Result<()> {
        if self.good_for == 0 {
            // Two sets of planes from other devices would not fit where one does.
            self.samplers.clear();
            let iterations = self.problem.bounds_interval();
            self.samplers = self.problem.samplers(displacement, iterations)?;
            self.good_for = iterations;
        }
        Ok(())
    }

    /// The displacement that was reached.
    pub fn displacement(&self) -> &Sharded {
        self.displacement.as_ref().expect(PRESENT)
    }

    /// What was reached.
    pub fn into_state(self) -> ShardedState {
        let displacement = self.displacement.expect(PRESENT);
        ShardedState { displacement, moments: self.descent.into_moments() }
    }
}

/// A mesh of one: the fused operation.
fn serial(
    images: &ShardedImages,
    [fixed, moving]: [&Tensor<5>; 2],
    state: ShardedState,
    options: &DeformOptions,
    iterations: usize,
) -> (Tensor<1>, ShardedState) {
    let layout = state.displacement.layout().clone();
    let images = DeformImages {
        fixed: fixed.clone(),
        moving: moving.clone(),
        affine: images.affine.clone(),
        masks: [None, None],
    };
    let displacement = state.displacement.into_shards().remove(0);
    let moments = state.moments.shards.into_iter().next().unwrap_or_default();
    let state = DeformState { field: displacement, moments };
    let (measures, state) = deform(&images, state, options, iterations);
    let displacement = Sharded::new(vec![state.field], layout);
    let moments = ShardedMoments { shards: vec![state.moments] };
    (measures, ShardedState { displacement, moments })
}

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

/// What all iterations share.
struct Problem {
    moving: Sharded,
    fixed: Fixed,
    options: DeformOptions,
    adam: AdamOptions,
    comparison: Comparison,
    map: IndexMap,
    layout: Layout,
    mesh: Mesh,
    keep: Keep,
}

/// The fixed image.
enum Fixed {
    /// As it is cut; blocks are put together when they are compared.
    Shards(Sharded),
    /// On the block of every shard, which takes the shard's place.
    Blocks(Vec<Tensor<5>>),
}

impl Problem {
    fn new(images: ShardedImages, options: &DeformOptions, mesh: &Mesh) -> Result<Self> {
        let ShardedImages { fixed, moving, affine } = images;
        let adam = supported(options, fixed.dims()[1]);
        let layout = fixed.layout().clone();
        check_places(&fixed, mesh);
        let map = IndexMap::read(Some(&affine), options.displacement_scale)?;
        let map = map.still(layout.size());
        let comparison = Comparison::new(options.measure);
        // Many shards on one device mean that memory is short. Several devices would wait for what they
        // do not keep.
        let keep = match mesh.is_virtual() && !mesh.has_several_devices() {
            true => Keep::Nothing,
            false => Keep::Planes,
        };
        let (mesh, fixed, options) = (mesh.clone(), Fixed::Shards(fixed), *options);
        let mut problem =
            Self { moving, fixed, options, adam, comparison, map, layout, mesh, keep };
        if keep == Keep::Planes {
            let blocks =
                (0..problem.layout.count()).map(|k| problem.fixed_block(&problem.block(k), k));
            problem.fixed = Fixed::Blocks(blocks.collect());
        }
        Ok(problem)
    }

    /// The step along (x, y, z) for a direction of length 1.
    fn rate(&self) -> [f64; 3] {
        self.options.step_voxels.map(|step| step * self.options.measure.sign())
    }

    fn bounds_interval(&self) -> usize {
        match self.keep {
            Keep::Nothing => BOUNDS_INTERVAL,
            Keep::Planes => KEPT_BOUNDS_INTERVAL,
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
            Fixed::Shards(fixed) => fixed.window(block.all.clone(), self.mesh.device(k)),
            Fixed::Blocks(blocks) => blocks[k].clone(),
        }
    }

    /// Shard `k` of the fixed image, on its device.
    fn fixed_own(&self, block: &Block, k: usize) -> Tensor<5> {
        match &self.fixed {
            Fixed::Shards(fixed) => to_device(fixed.shards()[k].clone(), self.mesh.device(k)),
            Fixed::Blocks(blocks) => block.narrow(&blocks[k], &block.own),
        }
    }

    /// Sends what the blocks need of a field that another device holds.
    fn send(&self, field: &Sharded) -> Crossing {
        let width = self.comparison.reach() + self.radius();
        let thinnest = self.layout.all_planes().map(|planes| planes.len()).min();
        // Blocks around thin shards reach further than to the next.
        let seams = match thinnest {
            Some(planes) if planes >= width && width > 0 => far_seams(&self.mesh),
            _ => Vec::new(),
        };
        let shards: Vec<&Tensor<5>> = field.shards().iter().collect();
        Crossing::send(&shards, seams, self.layout.axis(), width)
    }

    /// Of every shard, good for so many iterations.
    fn samplers(&self, field: &Sharded, iterations: usize) -> Result<Vec<BlockSampler>> {
        let bounds = match self.moving.layout().count() {
            // All of it is seen anyway.
            1 => vec![DisplacementBounds::NONE],
            _ => DisplacementBounds::read(field)?,
        };
        let bounds = bounds.into_iter().reduce(DisplacementBounds::union);
        let longest = self.options.step_voxels.map(|step| step * iterations as f64);
        let bounds = bounds.expect("there is a shard").grown(longest);
        let sampler = |k: usize| {
            let block = self.block(k);
            let moving = (&self.moving, &self.map);
            let planes = (&self.layout, &block.all);
            BlockSampler::new(planes, self.mesh.device(k), moving, &bounds, self.keep)
        };
        Ok((0..self.layout.count()).map(sampler).collect())
    }

    /// The parts of the measure, `[1]` each on its device: of every shard, or one for all of them. Each
    /// shard's gradient to the displacement, smoothed, goes to `take`.
    fn measure(
        &self,
        field: &Sharded,
        samplers: &[BlockSampler],
        mut take: impl FnMut(usize, Tensor<5>),
    ) -> Vec<Tensor<1>> {
        self.compare(field, samplers, |k, block, pieces, sampler, to_moved| {
            let inner = block.within(self.radius());
            let gradient = pieces.pull_back([block, &inner], &sampler, &to_moved);
            drop((pieces, to_moved, sampler));
            let (axis, smoothing) = (block.axis, &self.options.smooth_gradient);
            take(k, smooth_own(gradient, axis, smoothing, self.radius()));
        })
    }

    /// The parts of the measure alone.
    fn values(&self, field: &Sharded, samplers: &[BlockSampler]) -> Vec<Tensor<1>> {
        self.compare(field, samplers, |_, _, _, _, _| ())
    }

    /// The parts of the measure; what a gradient is made of goes to `go_on`: the block of a shard, the
    /// displacement on it, its sampler, and the gradient to the moved image.
    fn compare(
        &self,
        field: &Sharded,
        samplers: &[BlockSampler],
        mut go_on: impl FnMut(usize, &Block, Pieces, BlockSampler, Tensor<5>),
    ) -> Vec<Tensor<1>> {
        let count = self.layout.count();
        let crossing = self.send(field);
        let own = |k: usize| to_device(field.shards()[k].clone(), self.mesh.device(k));
        let show = |k: usize| self.block(k).show_own(&own(k), &samplers[k].at_hand());
        // Meanwhile; of several shards on a device, one after the other is shown.
        let mut shown: Vec<Option<Tensor<5>>> =
            (0..count).map(|k| (!self.mesh.is_virtual()).then(|| show(k))).collect();
        let mut came = crossing.receive();
        let pair = |k: usize| {
            let (block, moved) = (self.block(k), shown[k].clone().unwrap_or_else(|| show(k)));
            [block.narrow(&moved, &block.own), self.fixed_own(&block, k)]
        };
        let whole = self.comparison.whole((0..count).map(pair), self.layout.voxels());
        let mut values = Vec::with_capacity(count);
        for k in 0..count {
            let block = self.block(k);
            let sampler = samplers[k].at_hand();
            let [below, above] =
                block.around(field, self.mesh.device(k), std::mem::take(&mut came[k]));
            let pieces = Pieces { below, own: own(k), above };
            let moved = pieces.show(&block, &sampler, shown[k].take());
            let fixed = self.fixed_block(&block, k);
            let (value, to_moved) =
                self.comparison.compare((k, &block), [moved, fixed], whole.as_ref());
            go_on(k, &block, pieces, sampler, to_moved);
            values.extend(value);
        }
        values.extend(whole.map(|whole| whole.value));
        values
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
