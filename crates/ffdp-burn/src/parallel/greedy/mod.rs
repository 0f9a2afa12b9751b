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
/// on the device of the first shard, and the state after the last. Not differentiable.
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
    assert!(iterations > 0, "greedy: at least one iteration is needed");
    let problem = Problem::new(images, options)?;
    let ShardedState { mut displacement, moments } = state;
    let step = (problem.adam, problem.rate(), options.smooth_field);
    let mut descent = Descent::new(step, &displacement, moments);
    let mut measures: Vec<Vec<Tensor<1>>> = Vec::new();
    let mut done = 0;
    while done < iterations {
        let interval = problem.bounds_interval().min(iterations - done);
        let samplers = problem.samplers(&displacement, interval)?;
        for _ in 0..interval {
            let (shares, longest) = problem.measure(&displacement, &samplers, &mut descent);
            displacement = descent.step(displacement, &longest);
            measures.resize_with(shares.len(), Vec::new);
            measures.iter_mut().zip(shares).for_each(|(all, share)| all.push(share));
        }
        done += interval;
    }
    let state = ShardedState { displacement, moments: descent.into_moments() };
    let shares = measures.into_iter().map(|share| Tensor::cat(share, 0));
    Ok((reduce(shares, Reduction::Sum), state))
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
struct Problem<'a> {
    images: &'a ShardedImages,
    options: &'a DeformOptions,
    adam: AdamOptions,
    comparison: Comparison,
    map: IndexMap,
    layout: Layout,
    mesh: Mesh,
    keep: Keep,
    /// The fixed image on every block, where it is kept.
    fixed: Vec<Option<Tensor<5>>>,
}

impl<'a> Problem<'a> {
    fn new(images: &'a ShardedImages, options: &'a DeformOptions) -> Result<Self> {
        let adam = supported(options, images.fixed.dims()[1]);
        let (layout, mesh) = (images.fixed.layout().clone(), images.fixed.mesh());
        let map = IndexMap::read(Some(&images.affine), options.displacement_scale)?;
        let map = map.still(layout.size());
        let comparison = Comparison::new(options.measure);
        // Many shards on one device mean that memory is short. Several devices would wait for what they
        // do not keep.
        let keep = match mesh.is_virtual() && !mesh.has_several_devices() {
            true => Keep::Nothing,
            false => Keep::Planes,
        };
        let mut problem =
            Self { images, options, adam, comparison, map, layout, mesh, keep, fixed: Vec::new() };
        let kept = |k| (keep == Keep::Planes).then(|| problem.fixed_block(&problem.block(k), k));
        problem.fixed = (0..problem.layout.count()).map(kept).collect();
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
        self.images.fixed.window(block.all.clone(), self.mesh.device(k))
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
    fn samplers(&self, field: &Sharded, iterations: usize) -> Result<Vec<BlockSampler<'_>>> {
        let bounds = match self.images.moving.layout().count() {
            // All of it is seen anyway.
            1 => vec![DisplacementBounds::NONE],
            _ => DisplacementBounds::read(field)?,
        };
        let bounds = bounds.into_iter().reduce(DisplacementBounds::union);
        let longest = self.options.step_voxels.map(|step| step * iterations as f64);
        let bounds = bounds.expect("there is a shard").grown(longest);
        let sampler = |k: usize| {
            let block = self.block(k);
            let moving = (&self.images.moving, &self.map);
            let planes = (&self.layout, &block.all);
            BlockSampler::new(planes, self.mesh.device(k), moving, &bounds, self.keep)
        };
        Ok((0..self.layout.count()).map(sampler).collect())
    }

    /// The parts of the measure, `[1]` each on its device: of every shard, or one for all of them. Its
    /// gradient is taken into the moments, of which the longest vector is returned for every shard.
    fn measure(
        &self,
        field: &Sharded,
        samplers: &[BlockSampler],
        descent: &mut Descent,
    ) -> (Vec<Tensor<1>>, Vec<Tensor<1>>) {
        let count = self.layout.count();
        let crossing = self.send(field);
        let show = |k: usize| self.block(k).show_own(&field.shards()[k], &samplers[k]);
        // Meanwhile; of several shards on a device, one after the other is shown.
        let mut shown: Vec<Option<Tensor<5>>> =
            (0..count).map(|k| (!self.mesh.is_virtual()).then(|| show(k))).collect();
        let mut came = crossing.receive();
        let own = |k: usize| {
            let (block, moved) = (self.block(k), shown[k].clone().unwrap_or_else(|| show(k)));
            block.narrow(&moved, &block.own)
        };
        let whole = self.comparison.whole((0..count).map(own), &self.images.fixed);
        descent.begin();
        let (mut values, mut shares) = (Vec::new(), Vec::with_capacity(count));
        for k in 0..count {
            let block = self.block(k);
            let [below, above] = block.around(field, k, std::mem::take(&mut came[k]));
            let pieces = Pieces { below, own: field.shards()[k].clone(), above };
            let moved = pieces.show(&block, &samplers[k], shown[k].take());
            let fixed = self.fixed[k].clone().unwrap_or_else(|| self.fixed_block(&block, k));
            let (value, to_moved) =
                self.comparison.compare((k, &block), [moved, fixed], whole.as_ref());
            let inner = block.within(self.radius());
            let gradient = pieces.pull_back([&block, &inner], &samplers[k], &to_moved);
            drop((pieces, to_moved));
            let (axis, smoothing) = (block.axis, &self.options.smooth_gradient);
            shares.push(descent.take(k, smooth_own(gradient, axis, smoothing, self.radius())));
            values.extend(value);
        }
        let longest = descent.longest(shares);
        if let Some(whole) = whole {
            values.push(whole.value);
        }
        (values, longest)
    }
}
