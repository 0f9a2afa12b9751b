//! Against the same iterations composed of the public operations with autodiff, and exact cases.

mod agreement;
mod exact;
mod masks;
mod planes;
mod reference;

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::ops::{AdamOptions, GaussianOptions, HistogramOptions, gaussian};
use ffdp_kit::testing::{tensor, to_f64, uniform};

/// The same f64 operations in another order, over ten iterations.
const F64_ROUNDING: f64 = 1e-12;
/// f32 rounding, which ten steps of Adam pass on, in a direction whose floor keeps noise small.
const F32_ROUNDING: f64 = 1e-4;
/// f32 rounding of one or a few steps; the sums of mutual information are the worst.
const F32_ONE_STEP: f64 = 5e-5;

const SCALE: [[f64; 3]; 3] = [[1.1, 0.0, 0.05], [0.0, 0.9, 0.0], [-0.05, 0.0, 1.0]];

fn options(measure: Measure) -> DeformOptions {
    DeformOptions {
        displacement_scale: SCALE,
        step_voxels: [0.25, 0.2, 0.3],
        ..DeformOptions::greedy(measure)
    }
}

fn svf() -> DeformMethod {
    DeformMethod::Svf { squarings: 4, accumulation: Accumulation::Reproducible }
}

fn measures() -> [Measure; 4] {
    let bins = HistogramOptions { bins: 16, ..HistogramOptions::default() };
    [
        Measure::Lncc(crate::ops::LnccOptions { window: 5, ..Default::default() }),
        Measure::SquaredDifference,
        Measure::MutualInformation(bins),
        Measure::NormalizedMutualInformation(bins),
    ]
}

/// Smooth images, as registration has them: of noise, a step has no direction.
fn image([n, c, d, h, w]: [usize; 5], seed: u64) -> Vec<f64> {
    let noise = uniform(n * c * d * h * w, 0.0, 1.0, seed);
    let noise = tensor(&noise, [n, c, d, h, w], &Device::flex(), DType::F64);
    to_f64(gaussian(noise, &GaussianOptions::isotropic(1.5)).sub_scalar(0.3).mul_scalar(2.0))
}

/// Two images of `channels` channels on grids of their own, and a field of `fields` times the batch.
struct Setting {
    size: [usize; 3],
    batch: usize,
    channels: usize,
    fields: usize,
    masked: [bool; 2],
}

/// Fields of a method in one batch, as [`composed`](reference::composed) has them: `[fields N, 3, D, H, W]`.
#[derive(Clone)]
struct Batch {
    field: Tensor<5>,
    /// Of each field.
    moments: Vec<Moments>,
}

/// Iterations of such a batch.
fn deform(
    images: &DeformImages,
    Batch { field, moments }: Batch,
    options: &DeformOptions,
    iterations: usize,
) -> (Tensor<1>, Batch) {
    let fields = field.chunk(options.method.fields(), 0).into_iter();
    let mut moments = moments.into_iter();
    let states = fields.map(|field| {
        let moments = moments.next().unwrap_or_default();
        DeformState { field, moments }
    });
    let (measures, states) = super::deform(images, states.collect(), options, iterations);
    let (fields, moments) = states.into_iter().map(|state| (state.field, state.moments)).unzip();
    (measures, Batch { field: Tensor::cat(fields, 0), moments })
}

impl Setting {
    fn of(size: [usize; 3], batch: usize) -> Self {
        Self { size, batch, channels: 1, fields: 1, masked: [false; 2] }
    }

    fn problem(&self, device: &Device, dtype: DType) -> (DeformImages, Batch) {
        let ([d, h, w], n, c) = (self.size, self.batch, self.channels);
        let map = [1.02, 0.03, 0.0, 0.4, -0.02, 0.97, 0.01, -0.3, 0.0, 0.02, 1.01, 0.6];
        let [fixed, moving] = [[n, c, d, h, w], [n, c, d + 2, h, w + 1]];
        let mask = |[n, _, d, h, w]: [usize; 5], seed| {
            let shape = [n, 1, d, h, w];
            tensor(&image(shape, seed), shape, device, dtype).mul_scalar(2.0).clamp(0.0, 1.0)
        };
        let [a, b] = self.masked;
        let images = DeformImages {
            fixed: tensor(&image(fixed, 1), fixed, device, dtype),
            moving: tensor(&image(moving, 2), moving, device, dtype),
            affine: tensor(&map, [1, 3, 4], device, dtype),
            masks: [a.then(|| mask(fixed, 4)), b.then(|| mask(moving, 5))],
        };
        let n = self.fields * n;
        let field = uniform(n * 3 * d * h * w, -0.4, 0.4, 3);
        let field = tensor(&field, [n, 3, d, h, w], device, dtype);
        (images, Batch { field, moments: vec![] })
    }
}

fn problem(size: [usize; 3], batch: usize, device: &Device, dtype: DType) -> (DeformImages, Batch) {
    Setting::of(size, batch).problem(device, dtype)
}
