//! Iterations of SyN and of stationary velocities on sharded images and fields: the methods of
//! [`ops::deform`](crate::ops::deform()) with [`Method::Syn`] and [`Method::Svf`], on the tape.
//!
//! ```text
//! SyN         F(p + u1(p)) beside M(A p + t + S u2(p));    g = (g1 - g2) / 2 to u1, -g to u2
//! velocity    u = exp(v), M(A p + t + S u(p)) beside F;    g to v, back through the squarings
//! ```
//! What the greedy method does by hand for one shard after the other, the sharded operations do here for all
//! of them, and Burn's tape goes back: images as they are shown, and what was squared, exist for all
//! shards at once. Nothing is kept from one iteration to the next but the state; the bounds of the displacement
//! are read in each, which waits for the devices.

use burn::Tensor;

use super::adam::{ShardedMoments, ShardedStep, adam};
use super::collective::broadcast;
use super::greedy::ShardedImages;
use super::loss::loss;
use super::ring::RingInputs;
use super::ring::{DisplacementBounds, compose, exp, ring_sample};
use super::sharded::Sharded;
use super::smoothing::gaussian;
use crate::error::Result;
use crate::losses::{self, Similarity};
use crate::ops::{
    AdamOptions, DeformOptions, GaussianOptions, GridSampleOptions, Measure, Method, Optimizer,
    Penalties, Update,
};

/// What changes from iteration to iteration: a velocity, or the halves for the fixed and the moving image.
#[derive(Clone, Debug)]
pub struct ShardedFields {
    /// `[N, 3, D, H, W]` each, cut as the fixed image.
    pub fields: Vec<Sharded>,
    /// Of the gradient to each.
    pub moments: Vec<ShardedMoments>,
}

impl ShardedFields {
    /// Fields whose gradients were not seen yet.
    pub fn new(fields: Vec<Sharded>) -> Self {
        let moments = vec![ShardedMoments::default(); fields.len()];
        Self { fields, moments }
    }
}

/// Does `iterations` of SyN or of a stationary velocity. Returns the measure before each of them,
/// `[iterations]`, on the device of the first shard, and the state after the last. Not differentiable.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) when bounds or the affine map cannot be read.
///
/// # Panics
/// If the method is greedy, the optimiser is not Adam, there are penalties, masks, no iterations, or not as many
/// fields as the method has.
pub fn descend(
    images: &ShardedImages,
    state: ShardedFields,
    options: &DeformOptions,
    iterations: usize,
) -> Result<(Tensor<1>, ShardedFields)> {
    let adam_options = supported(options, &state);
    assert!(iterations > 0, "descend: at least one iteration is needed");
    assert!(
        images.masked == [false; 2],
        "descend: there must be no masks, got {:?}",
        images.masked
    );
    let images = ShardedImages {
        fixed: images.fixed.clone().map(Tensor::autodiff),
        moving: images.moving.clone().map(Tensor::autodiff),
        affine: images.affine.clone().autodiff(),
        masked: images.masked,
    };
    let ShardedFields { mut fields, mut moments } = state;
    let mut measures = Vec::with_capacity(iterations);
    for _ in 0..iterations {
        let (measure, gradients) = see(&images, &fields, options)?;
        measures.push(measure);
        let steps = fields.into_iter().zip(gradients).zip(&mut moments);
        let next = steps.map(|((field, gradient), moments)| {
            let gradient = smooth(gradient, &options.smooth_gradient);
            let step = adam(gradient, moments, &adam_options);
            smooth(stepped(field, step, options), &options.smooth_field)
        });
        fields = next.collect();
    }
    Ok((Tensor::cat(measures, 0), ShardedFields { fields, moments }))
}

fn supported(options: &DeformOptions, state: &ShardedFields) -> AdamOptions {
    let Optimizer::Adam(adam) = options.optimizer else {
        panic!("descend: the optimiser must be Adam, got {:?}", options.optimizer)
    };
    let (fields, expected) = match options.method {
        Method::Syn => (state.fields.len(), 2),
        Method::Svf { .. } => (state.fields.len(), 1),
        Method::Greedy => panic!("descend: the greedy method has iterations of its own"),
    };
    assert!(fields == expected, "descend: {expected} fields are needed, got {fields}");
    let none = options.penalties == Penalties::default();
    assert!(none, "descend: there must be no penalties, got {:?}", options.penalties);
    adam
}

/// The measure, off the tape, and its gradient to each field.
fn see(
    images: &ShardedImages,
    fields: &[Sharded],
    options: &DeformOptions,
) -> Result<(Tensor<1>, Vec<Sharded>)> {
    let tracked: Vec<Sharded> = fields
        .iter()
        .map(|field| field.clone().map(|shard| shard.autodiff().require_grad()))
        .collect();
    let u = match options.method {
        Method::Svf { squarings, .. } => exp(&tracked[0], squarings)?,
        Method::Syn | Method::Greedy => tracked.last().expect("there is a field").clone(),
    };
    let [d, h, w] = images.fixed.layout().size();
    let moves = [w, h, d].map(|voxels| f64::from(u8::from(voxels > 1)));
    let still =
        |scale: [[f64; 3]; 3]| scale.map(|row| [0, 1, 2].map(|axis| row[axis] * moves[axis]));
    let show = |image: &Sharded, affine: Option<&Tensor<3>>, u: &Sharded, scale| {
        let inputs = RingInputs { moving: image, affine, displacement: Some(u) };
        let options =
            GridSampleOptions { displacement_scale: still(scale), ..GridSampleOptions::default() };
        let mesh = u.mesh();
        ring_sample(&inputs, (u.layout(), &mesh), &options)
    };
    let moved = show(&images.moving, Some(&images.affine), &u, options.displacement_scale)?;
    let fixed = match options.method {
        Method::Syn => {
            let identity = GridSampleOptions::default().displacement_scale;
            show(&images.fixed, None, &tracked[0], identity)?
        }
        Method::Svf { .. } | Method::Greedy => images.fixed.clone(),
    };
    let values = moved.dims().into_iter().product::<usize>() as f64;
    let loss = loss(&*similarity(&options.measure), &moved, &fixed);
    let measure = match options.measure {
        Measure::Lncc(_) | Measure::NormalizedMutualInformation(_) => {
            loss.neg().add_scalar(1.0).mul_scalar(values)
        }
        Measure::MutualInformation(_) => loss.mul_scalar(-values),
        Measure::SquaredDifference => loss.mul_scalar(values),
    };
    let tape = measure.backward();
    let gradient = |field: &Sharded| {
        field.gradients(&tape).unwrap_or_else(|| field.clone().map(|s| s.inner().zeros_like()))
    };
    let gradients: Vec<Sharded> = tracked.iter().map(gradient).collect();
    let gradients = match &gradients[..] {
        // A step that both halves share only renames the points in the middle.
        [one, two] => {
            let apart = one.clone().zip_map(two, |one, two| (one - two).mul_scalar(0.5));
            vec![apart.clone(), apart.map(Tensor::neg)]
        }
        _ => gradients,
    };
    Ok((measure.inner(), gradients))
}

fn similarity(measure: &Measure) -> Box<dyn Similarity> {
    match *measure {
        Measure::Lncc(options) => Box::new(losses::Lncc(options)),
        Measure::SquaredDifference => Box::new(losses::Mse),
        Measure::MutualInformation(options) => Box::new(losses::MutualInformation(options)),
        Measure::NormalizedMutualInformation(options) => {
            Box::new(losses::NormalizedMutualInformation(options))
        }
    }
}

fn smooth(x: Sharded, options: &GaussianOptions) -> Sharded {
    match options.sigma_voxels {
        [0.0, 0.0, 0.0] => x,
        _ => gaussian(&x, options),
    }
}

/// The field after the step `rate direction / max(longest, 1)`.
fn stepped(field: Sharded, step: ShardedStep, options: &DeformOptions) -> Sharded {
    let ShardedStep { direction, longest } = step;
    let rate = options.step_voxels.map(|step| step * options.measure.sign());
    let layout = direction.layout().clone();
    let longest = broadcast(&longest[0], direction.mesh().devices());
    let shards = direction.into_shards().into_iter().zip(longest).map(|(shard, longest)| {
        let batch = shard.dims()[0];
        let length = longest.clamp_min(1.0).reshape([batch, 1, 1, 1, 1]);
        let components = (0..3).map(|c| shard.clone().narrow(1, c, 1).mul_scalar(rate[c]));
        Tensor::cat(components.collect(), 1) / length
    });
    let step = Sharded::new(shards.collect(), layout);
    match options.update {
        Update::Additive => field.zip_map(&step, Tensor::add),
        Update::Compositive => {
            let bounds = DisplacementBounds::within(options.step_voxels);
            compose(&field, &step, &[bounds])
        }
    }
}
