//! One iteration of every kind, composed of the public operations.

use super::*;
use crate::losses::{self, MutualInformation, NormalizedMutualInformation, SimilarityLoss as _};
use crate::ops::{
    AdamStep, GridSampleOptions, adam, compose, exp, grid_sample, mse, weighted_lncc,
};

/// The mean that a measure reports, and whether it is sought large.
fn mean(measure: Measure, [moved, fixed]: [Tensor<5>; 2], weights: Option<Tensor<5>>) -> Tensor<1> {
    let channels = moved.dims()[1];
    let by_channel = |loss: &dyn Fn(Tensor<5>, Tensor<5>) -> Tensor<1>| {
        let pair = |c| [&moved, &fixed].map(|image| image.clone().narrow(1, c, 1));
        let losses = (0..channels).map(|c| loss(pair(c)[0].clone(), pair(c)[1].clone()));
        losses.reduce(Tensor::add).expect("a channel").div_scalar(channels as f64)
    };
    let wide = || weights.clone().map(|weights| weights.expand(moved.dims()));
    match measure {
        Measure::Lncc(options) => {
            let loss = match wide() {
                None => crate::ops::lncc(moved, fixed, &options),
                Some(weights) => weighted_lncc(moved, fixed, weights, &options),
            };
            loss.neg().add_scalar(1.0)
        }
        Measure::SquaredDifference => match wide() {
            None => mse(moved, fixed),
            Some(weights) => {
                let total = weights.clone().sum();
                let difference = moved - fixed;
                (difference.clone() * difference * weights).sum() / total
            }
        },
        Measure::MutualInformation(options) => {
            let similarity = MutualInformation(options);
            by_channel(&|moved, fixed| {
                similarity.loss_of(&losses::Pair::weighted(moved, fixed, weights.clone()))
            })
            .neg()
        }
        Measure::NormalizedMutualInformation(options) => {
            let similarity = NormalizedMutualInformation(options);
            by_channel(&|moved, fixed| {
                similarity.loss_of(&losses::Pair::weighted(moved, fixed, weights.clone()))
            })
            .neg()
            .add_scalar(1.0)
        }
    }
}

/// What a displacement shows of an image.
struct Sight {
    map: Option<Tensor<3>>,
    scale: [[f64; 3]; 3],
}

impl Sight {
    fn of(&self, image: &Tensor<5>, u: &Tensor<5>) -> Tensor<5> {
        let options = GridSampleOptions { displacement_scale: self.scale, ..Default::default() };
        let map = self.map.clone().map(Tensor::autodiff);
        grid_sample(image.clone().autodiff(), map, Some(u.clone()), &options)
    }

    /// `|d shown / du|^2` at `u`, over the channels.
    fn slope(&self, image: &Tensor<5>, u: &Tensor<5>) -> Tensor<5> {
        let of = |channel| {
            let tracked = u.clone().autodiff().require_grad();
            let gradients = self.of(&image.clone().narrow(1, channel, 1), &tracked).backward();
            let slope = tracked.grad(&gradients).expect("tracked");
            (slope.clone() * slope).sum_dim(1)
        };
        (0..image.dims()[1]).map(of).reduce(Tensor::add).expect("a channel")
    }
}

/// One iteration: the measure before it, and the state after it.
pub(super) fn composed(
    images: &DeformImages,
    state: Batch,
    options: &DeformOptions,
) -> (f64, Batch) {
    let Batch { field, mut moments } = state;
    let mut moments = moments.pop().unwrap_or_default();
    let (value, gradient, slope) = gradient(images, &field, options);
    let gradient = match options.optimizer {
        Optimizer::GaussNewton { damping } => {
            let floor = slope.clone().mean_dim(4).mean_dim(3).mean_dim(2).mul_scalar(damping);
            gradient / (slope + floor).mul_scalar(2.0)
        }
        _ => gradient,
    };
    let gradient = gaussian(gradient, &options.smooth_gradient);
    let longest = |d: &Tensor<5>| {
        let squares = (d.clone() * d.clone()).sum_dim(1);
        squares.max_dim(4).max_dim(3).max_dim(2).sqrt()
    };
    let (direction, length) = match options.optimizer {
        Optimizer::Adam(options) => {
            let AdamStep { direction, longest } = adam(gradient, &mut moments, &options);
            let length = longest.clamp_min(1.0).reshape([direction.dims()[0], 1, 1, 1, 1]);
            (direction, length)
        }
        Optimizer::GaussNewton { .. } if options.measure == Measure::SquaredDifference => {
            (gradient.clone(), longest(&gradient).clamp_min(1.0))
        }
        _ => (gradient.clone(), longest(&gradient)),
    };
    let upwards = if options.measure == Measure::SquaredDifference { -1.0 } else { 1.0 };
    let rate = options.step_voxels.map(|step| step * upwards);
    let rate = tensor::<5>(&rate, [1, 3, 1, 1, 1], &direction.device(), direction.dtype());
    let step = direction * rate / length;
    let field = match options.update {
        Update::Compositive => compose(field, step),
        Update::Additive => field + step,
    };
    (value, Batch { field: gaussian(field, &options.smooth_field), moments: vec![moments] })
}

/// The measure, its gradient times the part of the values that count, and the slope.
fn gradient(
    images: &DeformImages,
    field: &Tensor<5>,
    options: &DeformOptions,
) -> (f64, Tensor<5>, Tensor<5>) {
    let DeformImages { fixed, moving, affine, masks: [fixed_mask, moving_mask] } = images;
    let tracked = field.clone().autodiff().require_grad();
    let [n, c, d, h, w] = fixed.dims();
    let identity = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let still = Sight { map: None, scale: identity };
    let to_moving = Sight { map: Some(affine.clone()), scale: options.displacement_scale };
    let [u1, u2] = match options.method {
        DeformMethod::Greedy => [tracked.clone().zeros_like(), tracked.clone()],
        DeformMethod::Svf { squarings, .. } => {
            [tracked.clone().zeros_like(), exp(tracked.clone(), squarings)]
        }
        DeformMethod::Syn => [tracked.clone().narrow(0, 0, n), tracked.clone().narrow(0, n, n)],
    };
    let weights = match (fixed_mask, moving_mask) {
        (None, None) => None,
        (a, b) => {
            let ones = || Tensor::ones([n, 1, d, h, w], (&fixed.device(), fixed.dtype()));
            let a = a.as_ref().map_or_else(ones, |mask| still.of(mask, &u1).inner());
            let b = b.as_ref().map_or_else(ones, |mask| to_moving.of(mask, &u2).inner());
            Some(a * b)
        }
    };
    let pair = [to_moving.of(moving, &u2), still.of(fixed, &u1)];
    let count = (n * c * d * h * w) as f64;
    let all_weights = weights.clone().map(Tensor::autodiff);
    let upwards = if options.measure == Measure::SquaredDifference { -1.0 } else { 1.0 };
    let Penalties { diffusion, bending, total_variation } = options.penalties;
    let rough = losses::diffusion(tracked.clone()).mul_scalar(diffusion)
        + losses::bending_energy(tracked.clone()).mul_scalar(bending)
        + losses::total_variation(tracked.clone(), 1e-3).mul_scalar(total_variation);
    let measure = mean(options.measure, pair, all_weights).mul_scalar(count);
    let rough = rough.mul_scalar(-upwards * count);
    let value = measure.clone() + rough.clone();
    let [to_measure, to_rough] = [measure, rough]
        .map(|part| tracked.grad(&part.backward()).expect("both depend on the field"));
    let to_measure = match options.method {
        DeformMethod::Syn => {
            let [a, b] = [0, n].map(|half| to_measure.clone().narrow(0, half, n));
            let apart = (a - b).mul_scalar(0.5);
            Tensor::cat(vec![apart.clone(), apart.neg()], 0)
        }
        _ => to_measure,
    };
    let gradient = to_measure + to_rough;
    let part = weights.clone().map_or(1.0, |weights| to_f64(weights.mean())[0]);
    let needed = matches!(options.optimizer, Optimizer::GaussNewton { .. });
    let slope = if needed {
        let [u1, u2] = [u1.inner(), u2.inner()];
        let slopes = [still.slope(fixed, &u1), to_moving.slope(moving, &u2)];
        let weigh = |slope: Tensor<5>| match &weights {
            None => slope,
            Some(weights) => slope * weights.clone(),
        };
        let [a, b] = slopes.map(weigh);
        match options.method {
            DeformMethod::Syn => Tensor::cat(vec![a.clone() + b.clone(), a + b], 0),
            _ => b,
        }
    } else {
        fixed.zeros_like()
    };
    (to_f64(value.inner())[0], gradient.mul_scalar(part), slope)
}
