//! Iterations of the compositive greedy method on sharded images and fields: the method of
//! [`ops::deform`](crate::ops::deform()) with [`Method::Greedy`], shard by shard.
//!
//! ```text
//! moved = M(A p + t + S u(p))            ring           g = d measure / du          compare.rs
//! d = Adam(G_gradient g)                 halo, one max  u <- G_warp (s + u o (id + s))   halo, ring
//! ```
//! With one shard this *is* the serial operation. With several, a displacement differs from it by
//! rounding only.
//!
//! Nothing waits for a device but the bounds of the displacement, which say what the ring must send:
//! they are read every [`BOUNDS_INTERVAL`] iterations, and grow by the longest step in between. (A
//! step is at most `r`; composing adds it to a mean of the field's values, and smoothing takes means
//! of those.)

use burn::Tensor;
use burn::tensor::TensorData;

mod compare;

use super::adam::{ShardedMoments, ShardedStep, adam};
use super::ring::{DisplacementBounds, IndexMap, RingInputs, RingSampler, Wanted, compose};
use super::sharded::Sharded;
use super::smoothing::gaussian;
use crate::error::Result;
use crate::ops::{
    AdamOptions, DeformImages, DeformOptions, DeformState, GaussianOptions, GridSampleOptions,
    Measure, Method, Optimizer, Penalties, Update, deform,
};
use compare::Comparison;

/// Iterations between two readings of the displacement's bounds. With steps of a quarter of a voxel
/// they loosen by 2.5 voxels: as many planes are sent in vain, at most.
pub const BOUNDS_INTERVAL: usize = 10;

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
    let ShardedState { mut displacement, mut moments } = state;
    let mut bounds = DisplacementBounds::NONE;
    let mut measures = Vec::with_capacity(iterations);
    for iteration in 0..iterations {
        bounds = match iteration % BOUNDS_INTERVAL {
            0 => union(DisplacementBounds::read(&displacement)?),
            _ => bounds.grown(options.step_voxels),
        };
        let (measure, gradient) = problem.measure(&displacement, bounds);
        let step = problem.step(gradient, &mut moments);
        displacement = compose(&displacement, &step, &[problem.longest_step()]);
        displacement = smooth(displacement, &options.smooth_field);
        measures.push(measure);
    }
    Ok((Tensor::cat(measures, 0), ShardedState { displacement, moments }))
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

fn union(bounds: Vec<DisplacementBounds>) -> DisplacementBounds {
    bounds.into_iter().reduce(DisplacementBounds::union).expect("there is at least one shard")
}

/// Smoothed; what it was made of is free afterwards.
fn smooth(x: Sharded, options: &GaussianOptions) -> Sharded {
    gaussian(&x, options)
}

/// What all iterations share.
struct Problem<'a> {
    images: &'a ShardedImages,
    options: &'a DeformOptions,
    adam: AdamOptions,
    comparison: Comparison,
    map: IndexMap,
}

impl<'a> Problem<'a> {
    fn new(images: &'a ShardedImages, options: &'a DeformOptions) -> Result<Self> {
        let adam = supported(options, images.fixed.dims()[1]);
        let map = IndexMap::read(Some(&images.affine), options.displacement_scale)?;
        let comparison = Comparison::new(&images.fixed, options.measure);
        Ok(Self { images, options, adam, comparison, map })
    }

    /// The measure, `[1]`, and its gradient to the displacement up to a constant.
    fn measure(&self, field: &Sharded, bounds: DisplacementBounds) -> (Tensor<1>, Sharded) {
        let ShardedImages { fixed, moving, affine } = self.images;
        let sampling = GridSampleOptions::default();
        let (layout, mesh) = (fixed.layout(), field.mesh());
        let ring =
            RingSampler::new((layout, &mesh), moving.layout(), &self.map, &[bounds], &sampling);
        let inputs = RingInputs { moving, affine: Some(affine), displacement: Some(field) };
        let (measure, gradient) = self.comparison.compare(&ring.sample(&inputs), fixed);
        let wanted = Wanted { displacement: true, ..Wanted::default() };
        let gradient = ring.gradients(&inputs, &gradient, wanted).displacement;
        (measure, gradient.expect("it was asked for"))
    }

    /// `s`, from the gradient.
    fn step(&self, gradient: Sharded, moments: &mut ShardedMoments) -> Sharded {
        let gradient = smooth(gradient, &self.options.smooth_gradient);
        let ShardedStep { direction, longest } = adam(gradient, moments, &self.adam);
        let rate = self.options.step_voxels.map(|step| step * self.options.measure.sign());
        let mut longest = longest.into_iter();
        direction.map(|direction| {
            let (batch, device, dtype) =
                (direction.dims()[0], direction.device(), direction.dtype());
            let rate = TensorData::new(rate.to_vec(), [1, 3, 1, 1, 1]).convert_dtype(dtype);
            let rate = Tensor::<5>::from_data(rate, (&device, dtype));
            let longest = longest.next().expect("one for each shard").clamp_min(1.0);
            direction * (rate / longest.reshape([batch, 1, 1, 1, 1]))
        })
    }

    fn longest_step(&self) -> DisplacementBounds {
        DisplacementBounds::within(self.options.step_voxels)
    }
}
