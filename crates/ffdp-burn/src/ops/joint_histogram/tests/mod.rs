//! The suites of the joint histogram, and what they share: kernels by another formula, direct sums,
//! evaluation, image pairs.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{normal, tensor, to_f64, uniform};

mod devices;
mod gradients;
mod values;

/// f64 sums of a few thousand positive terms in another order.
const ROUNDING: f64 = 1e-13;

const KERNELS: [ParzenKernel; 5] = [
    ParzenKernel::Delta,
    ParzenKernel::Linear,
    ParzenKernel::BSpline3,
    ParzenKernel::Gaussian { sigma_bins: 0.5 },
    ParzenKernel::Gaussian { sigma_bins: 1.7 },
];

fn cpu() -> Device {
    Device::flex()
}

fn options(bins: usize, kernel: ParzenKernel, mode: HistogramMode) -> HistogramOptions {
    HistogramOptions { bins, kernel, mode }
}

/// Two related images in [0, 1], and weights in [0, 1], as f32 holds them. No value lies within
/// 0.03 bins of where the taps change, for any kernel, so that both sides choose the same and
/// differences meet no kink.
fn images(len: usize, bins: usize, seed: u64) -> [Vec<f64>; 3] {
    let noise = uniform(len, -0.2, 0.2, seed + 1);
    let a = uniform(len, 0.0, 1.0, seed);
    let b: Vec<f64> = a.iter().zip(noise).map(|(a, n)| (1.0 - a * a + n).clamp(0.0, 1.0)).collect();
    let apart = |values: Vec<f64>| -> Vec<f64> {
        let safe = |value: &f64| {
            KERNELS.iter().all(|kernel| {
                let inner = bins.saturating_sub(2 * kernel.radius()).max(1) as f64;
                let halves = 2.0 * value * inner;
                (halves - halves.round()).abs() > 0.06
            })
        };
        let nudge = |value: f64| {
            let steps = (0..).map(|k| f64::from((value + 0.00137 * f64::from(k)) as f32 % 1.0));
            steps.into_iter().find(safe).expect("most values are safe")
        };
        values.into_iter().map(nudge).collect()
    };
    let weights = uniform(len, 0.0, 1.0, seed + 2);
    let weights = weights.into_iter().map(|w| f64::from(w as f32)).collect();
    [apart(a), apart(b), weights]
}

/// The kernel by another formula than the code's: truncated powers for the B-spline.
fn kernel_at(kernel: ParzenKernel, t: f64) -> f64 {
    match kernel {
        ParzenKernel::Delta => f64::from((-0.5..0.5).contains(&-t)),
        ParzenKernel::Linear => [1.0, -2.0, 1.0]
            .iter()
            .zip([t + 1.0, t, t - 1.0])
            .map(|(factor, s)| factor * s.max(0.0))
            .sum::<f64>(),
        ParzenKernel::BSpline3 if t.abs() >= 2.0 => 0.0,
        ParzenKernel::BSpline3 => {
            let power = |s: f64| s.max(0.0).powi(3);
            let powers = [power(t + 2.0), power(t + 1.0), power(t), power(t - 1.0), power(t - 2.0)];
            let signs = [1.0, -4.0, 6.0, -4.0, 1.0];
            powers.iter().zip(signs).map(|(p, s)| p * s).sum::<f64>() / 6.0
        }
        ParzenKernel::Gaussian { sigma_bins: s } => {
            let reach = (3.0 * s).ceil();
            let bell = |t: f64| (-0.5 * (t / s).powi(2)).exp();
            if t.abs() < reach { bell(t) - bell(reach) } else { 0.0 }
        }
    }
}

/// The shares of an intensity over all bins, from the definition.
fn shares(value: f64, bins: usize, kernel: ParzenKernel) -> Vec<f64> {
    let radius = kernel.radius() as f64;
    let x = radius - 0.5 + (bins as f64 - 2.0 * radius) * value.clamp(0.0, 1.0);
    let values: Vec<f64> = (0..bins).map(|bin| kernel_at(kernel, bin as f64 - x)).collect();
    let sum: f64 = values.iter().sum();
    values.into_iter().map(|value| value / sum).collect()
}

/// The votes of one volume from the definition, over all `B x B` cells of every voxel.
fn direct(a: &[f64], b: &[f64], weights: &[f64], bins: usize, kernel: ParzenKernel) -> Vec<f64> {
    let mut table = vec![0.0; bins * bins];
    for ((a, b), weight) in a.iter().zip(b).zip(weights) {
        let (along, across) = (shares(*a, bins, kernel), shares(*b, bins, kernel));
        for (cell, value) in table.iter_mut().enumerate() {
            *value += weight * along[cell / bins] * across[cell % bins];
        }
    }
    table
}

/// Votes, their sum weighted at random, and its gradients to both images.
struct ValueAndGradients {
    votes: Vec<f64>,
    loss: f64,
    gradients: Vec<Vec<f64>>,
}

fn evaluate(
    [a, b]: [&[f64]; 2],
    weights: Option<&[f64]>,
    shape: [usize; 5],
    options: &HistogramOptions,
    device: &Device,
    dtype: DType,
) -> ValueAndGradients {
    let device = device.clone().autodiff();
    let [a, b] =
        [a, b].map(|image| -> Tensor<5> { tensor(image, shape, &device, dtype).require_grad() });
    let weights = weights.map(|weights| tensor(weights, shape, &device, dtype));
    let votes = joint_votes(a.clone(), b.clone(), weights, options);
    let dims = [shape[0], options.bins, options.bins];
    assert_eq!(votes.dims(), dims, "{options:?}");
    let factors = tensor(&normal(dims.iter().product(), 99), dims, &device, dtype);
    let loss = (votes.clone() * factors).sum();
    let gradients = loss.backward();
    let of = |t: &Tensor<5>| to_f64(t.grad(&gradients).expect("both want a gradient"));
    let loss = to_f64(loss.inner())[0];
    ValueAndGradients { votes: to_f64(votes.inner()), loss, gradients: vec![of(&a), of(&b)] }
}

fn on_cpu(images: [&[f64]; 2], shape: [usize; 5], options: &HistogramOptions) -> ValueAndGradients {
    evaluate(images, None, shape, options, &cpu(), DType::F64)
}
