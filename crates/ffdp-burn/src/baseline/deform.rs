//! Iterations of deformable registration by tensor operations, differentiated by autodiff.

use burn::Tensor;
use burn::tensor::TensorData;

use super::similarity::loss_of;
use super::{bending_energy, compose, diffusion, exp, gaussian, grid_sample, total_variation};
use crate::ops::GridSampleOptions;
use crate::ops::adam::{AdamConstants, AdamOptions, Moments};
use crate::ops::deform::{DeformImages, DeformOptions, DeformState, Penalties, Update};
use crate::ops::regularity::SMALL_DIFFERENCE;

/// Iterations of the greedy method or of a stationary velocity, by Adam; see [`crate::ops::deform()`].
///
/// # Shapes
/// As those of [`DeformImages`] and [`DeformState`]; the measures `[iterations]`.
///
/// # Panics
/// With masks, with another optimiser or method, for information of several channels, and along axes of one voxel.
pub fn deform(
    images: &DeformImages,
    states: Vec<DeformState>,
    options: &DeformOptions,
    iterations: usize,
) -> (Tensor<1>, Vec<DeformState>) {
    let sizes = images.fixed.dims();
    assert!(
        images.masks.iter().all(Option::is_none) && sizes[2..].iter().all(|&voxels| voxels > 1),
        "baseline deform: masks and axes of one voxel are not known, got {sizes:?}"
    );
    assert!(!options.method.displaces_fixed(), "baseline deform: SyN is not known");
    let [mut state] = <[DeformState; 1]>::try_from(states)
        .unwrap_or_else(|states| panic!("baseline deform: one field, got {}", states.len()));
    let mut measures = Vec::with_capacity(iterations);
    for _ in 0..iterations {
        let (loss, next) = iterate(images, state, options);
        measures.push(loss);
        state = next;
    }
    let values = images.fixed.shape().num_elements();
    (options.measure.of_loss(Tensor::cat(measures, 0), values), vec![state])
}

/// One iteration: the loss before it, and the state after it.
fn iterate(
    images: &DeformImages,
    DeformState { field, mut moments }: DeformState,
    options: &DeformOptions,
) -> (Tensor<1>, DeformState) {
    let adam = options.optimizer.adam().expect("baseline deform: Adam alone is known");
    let (loss, gradient) = gradient(images, &field, options);
    let direction = direction(gaussian(gradient, &options.smooth_gradient), &mut moments, &adam);
    let rate = TensorData::new(options.step_voxels.map(|step| -step).to_vec(), [1, 3, 1, 1, 1]);
    let step = direction * Tensor::from_data(rate, (&field.device(), field.dtype()));
    let field = match options.update {
        Update::Compositive => compose(field, step),
        Update::Additive => field + step,
    };
    (loss, DeformState { field: gaussian(field, &options.smooth_field), moments })
}

/// The loss with its penalties, and its gradient to the field.
fn gradient(
    images: &DeformImages,
    field: &Tensor<5>,
    options: &DeformOptions,
) -> (Tensor<1>, Tensor<5>) {
    let tracked = field.clone().autodiff().require_grad();
    let displacement = match options.method.squarings() {
        None => tracked.clone(),
        Some((squarings, _)) => exp(tracked.clone(), squarings),
    };
    let sampling = GridSampleOptions {
        displacement_scale: options.displacement_scale,
        ..GridSampleOptions::default()
    };
    let [moving, fixed] = [&images.moving, &images.fixed].map(|image| image.clone().autodiff());
    let affine = images.affine.clone().autodiff();
    let moved = grid_sample(moving, Some(affine), Some(displacement), &sampling);
    let loss = loss_of(&options.measure, moved, fixed);
    let Penalties { diffusion: smooth, bending, total_variation: variation } = options.penalties;
    let costs: [(f64, &dyn Fn(Tensor<5>) -> Tensor<1>); 3] = [
        (smooth, &diffusion),
        (bending, &bending_energy),
        (variation, &|field| total_variation(field, SMALL_DIFFERENCE)),
    ];
    let loss = costs
        .into_iter()
        .filter(|(weight, _)| *weight > 0.0)
        .fold(loss, |loss, (weight, cost)| loss + cost(tracked.clone()).mul_scalar(weight));
    let gradient = tracked.grad(&loss.backward()).expect("the loss depends on the field");
    (loss.inner(), gradient)
}

/// [Adam's](crate::ops::adam()) direction, its longest vector no longer than 1.
fn direction(gradient: Tensor<5>, moments: &mut Moments, options: &AdamOptions) -> Tensor<5> {
    let ([mean, square], _, seen) = moments.take(&gradient, options);
    let AdamConstants { beta, correction, epsilon, gradient_floor } =
        AdamConstants::new(options, seen + 1);
    let toward = |old: Tensor<5>, new: Tensor<5>, beta: f64| {
        old.mul_scalar(beta) + new.mul_scalar(1.0 - beta)
    };
    let square = toward(square, gradient.clone() * gradient.clone(), beta[1]);
    let mean = toward(mean, gradient, beta[0]);
    let power = (1..5).fold(square.clone(), Tensor::mean_dim);
    let rms = power.clone().mul_scalar(correction[1]).sqrt().mul_scalar(gradient_floor);
    let scale = square.clone().mul_scalar(correction[1]).sqrt() + rms.add_scalar(epsilon);
    let direction = mean.clone().mul_scalar(correction[0]) / scale;
    let squares = (direction.clone() * direction.clone()).sum_dim(1);
    let longest = (2..5).fold(squares, Tensor::max_dim).sqrt();
    moments.put([mean, square], power.flatten(0, 4), 1, options);
    direction / longest.clamp_min(1.0)
}
