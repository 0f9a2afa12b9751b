//! Iterations of deformable registration on sharded images and fields: those of
//! [`ops::deform`](ffdp_burn::ops::deform()), shard by shard.
//!
//! ```text
//! for each shard      images as their displacements show them         view.rs, block.rs
//!                     loss, g = d loss / d field                      compare.rs, penalty.rs, problem/
//!                     m, v <- G_gradient g                            seam.rs, descend.rs
//! two numbers         mean v, the longest vector of the direction d
//! for each shard      field <- G_field (s + field o (id + s)),  s = -rate d / longest         step.rs
//! ```
//! The field is a displacement (greedy), a velocity whose squarings are displacements (`flow.rs`), or two
//! halves that meet in the middle (SyN). With one shard, and a similarity that it knows, this *is* the serial
//! operation; with several, a field differs from it by rounding only.
//!
//! Beyond the state, only what one shard is at work on is held: a gradient becomes moments before the next shard's
//! is computed, and a direction is never stored. (A velocity's squarings are, and so are the gradients of an
//! optimiser without moments.) Where shards come and go, the next is on its way meanwhile: `homes.rs`.
//!
//! The host waits for no device but for the bounds of the field, which say what the ring must send: they are read
//! every [`BOUNDS_INTERVAL`] or [`KEPT_BOUNDS_INTERVAL`] iterations, and loosened by the steps in between. (A step
//! is at most `rate`; composing adds it to a mean of the field's values, and smoothing takes means of those. A
//! displacement is nowhere longer than the velocity that it comes from.) Where the moving image is in one piece, they
//! are not needed.

use std::sync::Arc;

use burn::Tensor;

mod block;
mod compare;
mod descend;
mod differentiated;
mod direct;
mod flow;
mod homes;
mod landmarks;
mod maps;
mod objective;
mod penalty;
mod places;
mod problem;
mod seam;
mod sharded_comparison;
mod spline;
mod step;
#[cfg(test)]
mod tests;
mod view;

use super::adam::ShardedMoments;
use super::collective::reduce;
use super::cuts::Cuts;
use super::device_mesh::DeviceMesh;
use super::exchange::Reduction;
use super::hosts::{Holders, Ranks};
use super::sharded::Sharded;
pub(super) use block::Block;
pub use compare::without_mask;
pub(super) use compare::{Comparison, Sums};
use descend::{Descent, Rule};
pub use differentiated::DifferentiatedModel;
pub use direct::DirectPair;
use ffdp_burn::losses::{Pair, SimilarityLoss};
use ffdp_burn::ops::weights::joint_weights;
use ffdp_burn::ops::{
    self, DeformImages, DeformOptions, DeformState, GridSampleOptions, exp, grid_sample,
};
use ffdp_image::error::Result;
pub(super) use flow::WINDOWS;
use homes::Homes;
pub use landmarks::Landmarks;
pub use maps::{ExpOptions, flow_of_velocity, map_of_halves, velocity};
pub use objective::{Cost, FieldModel, FieldVector, ShardedObjective, SmoothSteps};
pub use places::FieldPlaces;
use problem::{Gradient, GradientReceiver, Problem};
pub use sharded_comparison::{Compared, ShardedComparison};
pub use spline::{Coefficients, ControlPoints, SplineModel, SplinePenalties};
pub use view::{BOUNDS_INTERVAL, KEPT_BOUNDS_INTERVAL};

/// What a deformation improves, and how.
pub struct DeformCriterion<'a> {
    /// Takes the place of `options.measure`.
    pub similarity: Arc<dyn SimilarityLoss>,
    /// Method, steps and penalties.
    pub options: &'a DeformOptions,
}

/// The images of a sharded [`deform`] registration.
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
    /// Points that belong together, whose distance is a term of the loss.
    pub landmarks: Option<Landmarks>,
}

impl ShardedImages {
    /// As the serial operation takes them; each is in one piece.
    fn whole(&self) -> DeformImages {
        let (fixed, fixed_mask) = without_mask(self.fixed.shards()[0].clone(), self.masked[0]);
        let (moving, moving_mask) = without_mask(self.moving.shards()[0].clone(), self.masked[1]);
        let (affine, masks) = (self.affine.clone(), [fixed_mask, moving_mask]);
        DeformImages { fixed, moving, affine, masks }
    }
}

/// Who else has a part of the images.
#[derive(Clone, Debug)]
pub struct Team {
    /// Of the fixed image, the field and the moments.
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
}

/// What changes from iteration to iteration.
#[derive(Clone, Debug)]
pub struct ShardedState {
    /// A displacement, a velocity, or the halves for the fixed and the moving image, as the
    /// [`DeformMethod`](ops::DeformMethod) says;
    /// `[N, 3, D, H, W]` each, cut as the fixed image.
    pub fields: Vec<Sharded>,
    /// Of the gradient to each; untouched by an optimiser without.
    pub moments: Vec<ShardedMoments>,
}

impl ShardedState {
    /// Fields whose gradients were not seen yet.
    pub fn new(fields: Vec<Sharded>) -> Self {
        let moments = vec![ShardedMoments::default(); fields.len()];
        Self { fields, moments }
    }
}

/// Does `iterations` of a deformable registration. Returns the loss before each of them (with penalties),
/// `[iterations]`, on the device of the first shard, and the state after the last. Not differentiable. Who iterates
/// again and again keeps a [`ShardedDeform`].
///
/// # Errors
/// [`Error::Device`](ffdp_image::Error::Device) when bounds cannot be read.
///
/// # Panics
/// As the serial operation, or if the fields and the fixed image are cut differently.
pub fn deform(
    images: &ShardedImages,
    state: ShardedState,
    options: &DeformOptions,
    iterations: usize,
) -> Result<(Tensor<1>, ShardedState)> {
    let mesh = images.fixed.mesh();
    let mut deform = ShardedDeform::new(images.clone(), state, options, &mesh)?;
    let losses = deform.iterate(iterations)?;
    Ok((losses, deform.into_state()))
}

/// Iterations that go on where they were interrupted: what was fetched from other devices stays there
/// between two readings of the loss.
pub struct ShardedDeform(Work);

/// On whole images by the fused operation, or by what is said here.
enum Work {
    Whole(Box<Whole>),
    Parts(Box<Parts>),
}

struct Whole {
    images: DeformImages,
    states: Option<Vec<DeformState>>,
    options: DeformOptions,
}

struct Parts {
    problem: Problem,
    fields: Option<Vec<Sharded>>,
    descents: Vec<Descent>,
}

/// A state that is missing means that an iteration failed, after which none is asked for.
const PRESENT: &str = "only an iteration takes the state";

impl ShardedDeform {
    /// Iterations from `state` on, computed on `mesh`, that improve what `options.measure` says. Shards *rest* where
    /// they lie: those of a mesh of one device may lie in host memory (`Device::flex()`), come to the device when it is
    /// their turn, and go back; what they become rests where they did.
    ///
    /// # Errors
    /// As [`deform`].
    ///
    /// # Panics
    /// As [`deform`]; if `mesh` has another number of places than there are shards; or if it has several
    /// devices and a shard lies on none or another of them.
    pub fn new(
        images: ShardedImages,
        state: ShardedState,
        options: &DeformOptions,
        mesh: &DeviceMesh,
    ) -> Result<Self> {
        Self::in_team(
            images,
            state,
            DeformCriterion { similarity: options.measure.into(), options },
            mesh,
            Team::ALONE,
        )
    }

    /// The same for any similarity, which takes the place of `options.measure`.
    ///
    /// # Errors
    /// As [`ShardedDeform::new`].
    ///
    /// # Panics
    /// As [`ShardedDeform::new`].
    pub fn by(
        similarity: Arc<dyn SimilarityLoss>,
        images: ShardedImages,
        state: ShardedState,
        options: &DeformOptions,
        mesh: &DeviceMesh,
    ) -> Result<Self> {
        Self::in_team(images, state, DeformCriterion { similarity, options }, mesh, Team::ALONE)
    }

    /// The same with other ranks; images and state are this rank's parts, and all ranks do the same at the same
    /// time. The losses are those of the whole.
    ///
    /// # Errors
    /// As [`ShardedDeform::new`], and [`Error::LostRank`](ffdp_image::Error::LostRank) from here on.
    pub fn in_team(
        images: ShardedImages,
        state: ShardedState,
        DeformCriterion { similarity, options }: DeformCriterion,
        mesh: &DeviceMesh,
        team: Team,
    ) -> Result<Self> {
        let ShardedState { fields, moments } = state;
        let expected = options.method.fields();
        let found = fields.len();
        assert!(found == expected, "deform: {expected} fields are needed, got {found}");
        fields.iter().for_each(|field| images.fixed.check_layout(field));
        let in_pieces = [&images.fixed, &images.moving].iter().any(|x| x.layout().count() > 1);
        let alone = !team.fixed.are_several() && !team.moving.are_several();
        // What the operation on whole images knows.
        let is_plain = images.landmarks.is_none();
        let stays = fields[0].mesh().device(0) == mesh.device(0) && is_plain;
        if let (false, true, true, Some(measure)) = (in_pieces, alone, stays, similarity.measure())
        {
            let options = DeformOptions { measure, ..*options };
            return Ok(Self::whole(images.whole(), fields, moments, &options));
        }
        let state = ShardedState { fields, moments };
        let parts =
            Self::in_parts(images, state, DeformCriterion { similarity, options }, mesh, team)?;
        Ok(Self(Work::Parts(Box::new(parts))))
    }

    /// Whatever the number of shards, by what is said here.
    fn in_parts(
        images: ShardedImages,
        ShardedState { fields, moments }: ShardedState,
        DeformCriterion { similarity, options }: DeformCriterion,
        mesh: &DeviceMesh,
        team: Team,
    ) -> Result<Parts> {
        check_places(&fields[0], mesh);
        let homes = Homes::new(mesh, fields[0].mesh());
        let rule = Rule {
            optimizer: options.optimizer,
            update: options.update,
            step_voxels: options.step_voxels,
            smooth_field: options.smooth_field,
            is_least_squares: similarity.is_least_squares(),
        };
        let comparison = Comparison { similarity, masked: images.masked };
        let problem = Problem::new(images, comparison, options, &homes, team)?;
        let pairs = fields.iter().zip(moments);
        let descents = pairs.map(|(field, moments)| Descent::new(rule, field, moments, &homes));
        let descents = descents.collect();
        Ok(Parts { problem, fields: Some(fields), descents })
    }

    fn whole(
        images: DeformImages,
        fields: Vec<Sharded>,
        moments: Vec<ShardedMoments>,
        options: &DeformOptions,
    ) -> Self {
        let state = |(field, moments): (Sharded, ShardedMoments)| DeformState {
            field: field.into_shards().remove(0),
            moments: moments.shards.into_iter().next().unwrap_or_default(),
        };
        let states = Some(fields.into_iter().zip(moments).map(state).collect());
        Self(Work::Whole(Box::new(Whole { images, states, options: *options })))
    }

    /// The loss before each of so many iterations, on the device of the first shard.
    ///
    /// # Errors
    /// As [`deform`].
    ///
    /// # Panics
    /// For no iterations.
    pub fn iterate(&mut self, iterations: usize) -> Result<Tensor<1>> {
        assert!(iterations > 0, "deform: at least one iteration is needed");
        match &mut self.0 {
            Work::Whole(whole) => {
                let Whole { images, states, options } = whole.as_mut();
                let before = states.take().expect(PRESENT);
                let (measures, after) = ops::deform(images, before, options, iterations);
                *states = Some(after);
                let values = images.fixed.shape().num_elements();
                Ok(options.measure.loss(measures, values))
            }
            Work::Parts(parts) => parts.iterate(iterations),
        }
    }

    /// The loss of what was reached, without penalties, `[1]` on the device of the first shard.
    ///
    /// # Errors
    /// As [`deform`].
    pub fn loss(&mut self) -> Result<Tensor<1>> {
        match &mut self.0 {
            Work::Whole(whole) => {
                let Whole { images, states, options } = whole.as_mut();
                Ok(shown(images, states.as_ref().expect(PRESENT), options))
            }
            Work::Parts(parts) => parts.problem.loss(parts.fields.as_ref().expect(PRESENT)),
        }
    }

    /// The fields that were reached.
    pub fn fields(&self) -> Vec<Sharded> {
        match &self.0 {
            Work::Whole(whole) => {
                let states = whole.states.iter().flatten();
                states.map(|state| Sharded::whole(state.field.clone())).collect()
            }
            Work::Parts(parts) => parts.fields.clone().expect(PRESENT),
        }
    }

    /// The fields that were reached; the moments are released first.
    pub fn into_fields(self) -> Vec<Sharded> {
        match self.0 {
            Work::Whole(whole) => {
                let states = whole.states.expect(PRESENT).into_iter();
                states.map(|state| Sharded::whole(state.field)).collect()
            }
            Work::Parts(parts) => parts.fields.expect(PRESENT),
        }
    }

    /// What was reached.
    pub fn into_state(self) -> ShardedState {
        match self.0 {
            Work::Whole(whole) => {
                let states = whole.states.expect(PRESENT).into_iter();
                let (fields, moments) = states
                    .map(|DeformState { field, moments }| {
                        (Sharded::whole(field), ShardedMoments { shards: vec![moments] })
                    })
                    .unzip();
                ShardedState { fields, moments }
            }
            Work::Parts(parts) => ShardedState {
                fields: parts.fields.expect(PRESENT),
                moments: parts.descents.into_iter().map(Descent::into_moments).collect(),
            },
        }
    }
}

impl Parts {
    fn iterate(&mut self, iterations: usize) -> Result<Tensor<1>> {
        let mut losses: Vec<Vec<Tensor<1>>> = Vec::new();
        for _ in 0..iterations {
            let fields = self.fields.take().expect(PRESENT);
            self.problem.plan(&fields)?;
            let _waiting = self.problem.waiting();
            let carried = self.descents.iter_mut().map(Descent::begin).collect();
            let mut shares: Vec<Vec<Tensor<1>>> = vec![Vec::new(); fields.len()];
            let descents = &mut self.descents;
            let mut take = |gradient: Gradient| {
                let Gradient { shard, field, values, carried } = gradient;
                shares[field].push(descents[field].take(shard, values, carried));
            };
            let receiver = GradientReceiver { carried, take: &mut take };
            let rows = self.problem.evaluate(&fields, Some(receiver))?;
            let holders = &self.problem.grid.holders;
            let steps = fields.into_iter().zip(&mut self.descents).zip(shares);
            let next = steps.map(|((field, descent), shares)| {
                let longest = descent.longest(shares, holders)?;
                descent.step(field, &longest, holders)
            });
            self.fields = Some(next.collect::<Result<_>>()?);
            losses.resize_with(rows.len(), Vec::new);
            losses.iter_mut().zip(rows).for_each(|(all, row)| all.push(row));
        }
        let rows = losses.into_iter().map(|rows| Tensor::cat(rows, 0));
        self.problem.losses(reduce(rows, Reduction::Sum), iterations, true)
    }
}

/// The loss of whole images as fields show them, `[1]`.
fn shown(images: &DeformImages, states: &[DeformState], options: &DeformOptions) -> Tensor<1> {
    let DeformImages { fixed, moving, affine, masks } = images;
    let scaled = GridSampleOptions {
        displacement_scale: options.displacement_scale,
        ..GridSampleOptions::default()
    };
    let [first, last] = [0, states.len() - 1].map(|k| states[k].field.clone());
    let u = match options.method.squarings() {
        Some((squarings, _)) => exp(last, squarings),
        None => last,
    };
    let moved =
        |x: &Tensor<5>| grid_sample(x.clone(), Some(affine.clone()), Some(u.clone()), &scaled);
    let stays = |x: &Tensor<5>| match options.method.displaces_fixed() {
        true => grid_sample(x.clone(), None, Some(first.clone()), &GridSampleOptions::default()),
        false => x.clone(),
    };
    let weights = joint_weights(masks[0].as_ref().map(stays), masks[1].as_ref().map(moved));
    let similarity: Arc<dyn SimilarityLoss> = options.measure.into();
    similarity.loss_of(&Pair::weighted(moved(moving), stays(fixed), weights))
}

fn check_places(field: &Sharded, mesh: &DeviceMesh) {
    let (shards, places) = (field.layout().count(), mesh.count());
    assert!(shards == places, "deform: {shards} shards for a mesh of {places}");
}
