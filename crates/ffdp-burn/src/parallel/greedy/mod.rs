//! Iterations of the compositive greedy method on sharded images and fields: the method of
//! [`ops::deform`](crate::ops::deform()) with [`Method::Greedy`], shard by shard.
//!
//! ```text
//! for each shard      moved = M(A p + t + S u(p))         g = d measure / du        block.rs, compare.rs
//!                     m, v <- G_gradient g                seam.rs, descend.rs
//! two numbers         mean v, the longest vector of d = m / (sqrt v + ..)
//! for each shard      u <- G_warp (s + u o (id + s)),  s = rate d / longest         step.rs
//! ```
//! With one shard this *is* the serial operation. With several, a displacement differs from it by
//! rounding only. Beyond the state, only what one shard is at work on is held: a gradient becomes
//! moments before the next shard's is computed, and a direction is never stored. (Where shards come and go, the next is
//! on its way meanwhile: `homes.rs`.)
//!
//! The host waits for no device but for the bounds of the displacement, which say what the ring must send:
//! they are read every [`BOUNDS_INTERVAL`] or [`KEPT_BOUNDS_INTERVAL`] iterations, and loosened by the
//! steps in between. (A step is at most `r`; composing adds it to a mean of the field's values, and
//! smoothing takes means of those.) Where the moving image is in one piece, they are not needed.

use std::sync::Arc;

use burn::Tensor;

mod block;
mod compare;
mod descend;
mod homes;
mod problem;
mod seam;
mod step;
#[cfg(test)]
mod tests;

use super::adam::ShardedMoments;
use super::collective::reduce;
use super::cuts::Cuts;
use super::exchange::{Careful, Reduction};
use super::hosts::{Holders, Ranks};
use super::mesh::Mesh;
use super::ring::{BlockSampler, DisplacementBounds};
use super::sharded::Sharded;
use crate::error::Result;
use crate::ops::{DeformImages, DeformOptions, DeformState, deform};
pub(super) use block::Block;
pub(super) use compare::Comparison;
pub(crate) use compare::without_mask;
use descend::Descent;
use homes::Homes;
use problem::Problem;

/// Iterations between two readings of the displacement's bounds, where planes of the moving image travel in
/// every iteration. With steps of a quarter of a voxel the bounds loosen by 2.5 voxels: as many planes
/// are sent in vain, at most.
pub const BOUNDS_INTERVAL: usize = 10;

/// The same where planes that travelled are kept: a reading empties the queues of all devices, and 10
/// planes more on either side are little beside a shard. As many again are fetched, so that most readings find that
/// what is kept reaches far enough.
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
    /// Whether the last channel of the fixed and of the moving image is its mask: weights in 0..1, as those of
    /// [`DeformImages`]. It is cut, sent and shown with its image.
    pub masked: [bool; 2],
}

impl ShardedImages {
    /// As the serial operation takes them; each is in one piece.
    pub(crate) fn whole(&self, [fixed, moving]: [&Tensor<5>; 2]) -> DeformImages {
        let (fixed, fixed_mask) = without_mask(fixed.clone(), self.masked[0]);
        let (moving, moving_mask) = without_mask(moving.clone(), self.masked[1]);
        let (affine, masks) = (self.affine.clone(), [fixed_mask, moving_mask]);
        DeformImages { fixed, moving, affine, masks }
    }
}

/// Who else has a part of the images.
#[derive(Clone, Debug)]
pub(crate) struct Team {
    /// Of the fixed image, the displacement and the moments.
    pub fixed: Holders,
    /// Of the moving image; alone where every rank holds all of it.
    pub moving: Holders,
}

impl Team {
    /// One process.
    pub const ALONE: Self = Self { fixed: Holders::ALONE, moving: Holders::ALONE };

    /// Several processes, of which each holds these planes of the fixed and of the moving image; all of the moving
    /// image without cuts.
    pub fn new(ranks: &Arc<dyn Ranks>, fixed: Cuts, moving: Option<Cuts>) -> Self {
        let holders = |cuts| Holders::new(ranks.clone(), cuts);
        Self { fixed: holders(fixed), moving: moving.map_or(Holders::ALONE, holders) }
    }

    /// What this rank says of a value that all have computed, so that their sum is the value.
    fn share(&self, value: Tensor<1>) -> Tensor<1> {
        match self.fixed.are_several() {
            true => value.mul_scalar(1.0 / self.fixed.count() as f64),
            false => value,
        }
    }
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
    /// Of every shard, and the displacements that they are made for.
    samplers: Vec<BlockSampler>,
    reach: DisplacementBounds,
    /// For how many iterations more no displacement leaves these.
    good_for: usize,
    /// Iterations that may meet kernels for the first time.
    unknown: usize,
    /// How often samplers were made.
    planned: usize,
}

/// After samplers were made for the first time, when nothing is displaced, and for the second.
const UNKNOWN_ITERATIONS: usize = 2;
const UNKNOWN_PLANS: usize = 2;

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
        Self::in_team(images, state, options, mesh, Team::ALONE)
    }

    /// The same with other ranks; images and state are this rank's parts, and all ranks do the same at the same
    /// time. The measures are those of the whole.
    ///
    /// # Errors
    /// As [`Greedy::new`], and [`Error::LostRank`](crate::Error::LostRank) from here on.
    pub(crate) fn in_team(
        images: ShardedImages,
        state: ShardedState,
        options: &DeformOptions,
        mesh: &Mesh,
        team: Team,
    ) -> Result<Self> {
        images.fixed.check_layout(&state.displacement);
        let ShardedState { displacement, moments } = state;
        assert_places(&displacement, mesh);
        let homes = Homes::new(mesh, displacement.mesh());
        let problem = Problem::new(images, options, &homes, team)?;
        let step = (problem.adam, problem.rate(), options.smooth_field);
        let descent = Descent::new(step, &displacement, moments, &homes);
        let displacement = Some(displacement);
        Ok(Self {
            problem,
            displacement,
            descent,
            samplers: Vec::new(),
            reach: DisplacementBounds::NONE,
            good_for: 0,
            unknown: 0,
            planned: 0,
        })
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
            let _careful = Careful::when(self.unknown > 0);
            self.unknown = self.unknown.saturating_sub(1);
            let moments = self.descent.begin();
            let mut shares = Vec::with_capacity(self.problem.layout.count());
            let take = |k, gradient, moments| shares.push(self.descent.take(k, gradient, moments));
            let values = self.problem.measure(&displacement, &self.samplers, moments, take)?;
            let holders = &self.problem.team.fixed;
            let longest = self.descent.longest(shares, holders)?;
            self.displacement = Some(self.descent.step(displacement, &longest, holders)?);
            measures.resize_with(values.len(), Vec::new);
            measures.iter_mut().zip(values).for_each(|(all, value)| all.push(value));
        }
        let shares = measures.into_iter().map(|share| Tensor::cat(share, 0));
        self.problem.finished(reduce(shares, Reduction::Sum))
    }

    /// The measure of what was reached, `[1]` on the device of the first shard.
    ///
    /// # Errors
    /// As [`greedy`].
    pub fn measure(&mut self) -> Result<Tensor<1>> {
        let displacement = self.displacement().clone();
        self.plan(&displacement)?;
        let values = self.problem.values(&displacement, &self.samplers)?;
        self.problem.finished(reduce(values, Reduction::Sum))
    }

    /// Makes samplers that reach as far as the displacement does in the next iterations, unless they do.
    fn plan(&mut self, displacement: &Sharded) -> Result<()> {
        if self.good_for > 0 {
            return Ok(());
        }
        let iterations = self.problem.bounds_interval();
        let bounds = self.problem.bounds(displacement, iterations)?;
        if self.samplers.is_empty() || !self.reach.contains(&bounds) {
            self.problem.recover(&self.samplers);
            // Two sets of planes from other devices would not fit where one does.
            self.samplers.clear();
            self.reach = bounds.grown(self.problem.reserve(iterations));
            self.samplers = self.problem.samplers(&self.reach)?;
            self.problem.release(&mut self.samplers);
            self.planned += 1;
            self.unknown = if self.planned <= UNKNOWN_PLANS { UNKNOWN_ITERATIONS } else { 0 };
        }
        self.good_for = iterations;
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

fn assert_places(displacement: &Sharded, mesh: &Mesh) {
    let (shards, places) = (displacement.layout().count(), mesh.count());
    assert!(shards == places, "greedy: {shards} shards for a mesh of {places}");
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
    let images = images.whole([fixed, moving]);
    let displacement = state.displacement.into_shards().remove(0);
    let moments = state.moments.shards.into_iter().next().unwrap_or_default();
    let state = DeformState { field: displacement, moments };
    let (measures, state) = deform(&images, state, options, iterations);
    let displacement = Sharded::new(vec![state.field], layout);
    let moments = ShardedMoments { shards: vec![state.moments] };
    (measures, ShardedState { displacement, moments })
}
