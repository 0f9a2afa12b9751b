//! The suites of LNCC, and what they share: direct window sums, evaluation, image pairs.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{normal, tensor, to_f64};

mod devices;
mod floor;
mod gradients;
mod intensities;
mod values;
mod weights;

/// Window sums of up to 9261 f64 products, against sums in another order.
const ROUNDING: f64 = 1e-11;

fn cpu() -> Device {
    Device::flex()
}

fn window(window: usize) -> LnccOptions {
    LnccOptions { window, ..Default::default() }
}

fn gaussian_window(window: usize, sigma_voxels: f64) -> LnccOptions {
    LnccOptions { weights: LnccWeights::Gaussian { sigma_voxels }, ..self::window(window) }
}

/// Weighted means of the window around a voxel: `[f, m, ff, mm, fm]`, zeros outside.
fn means(
    moved: &[f64],
    fixed: &[f64],
    size: [usize; 3],
    voxel: usize,
    options: &LnccOptions,
) -> [f64; 5] {
    let [d, h, width] = size.map(|s| s as i64);
    let (at, w) = (voxel as i64, options.window as i64);
    let (x, y, z, r) = (at % width, at / width % h, at / (width * h), w / 2);
    // Of an offset from the centre; and what the weights of a window add up to.
    let weight = |offset: i64| match options.weights {
        LnccWeights::Box => 1.0,
        LnccWeights::Gaussian { sigma_voxels: sigma } => {
            (-(offset as f64).powi(2) / (2.0 * sigma * sigma)).exp()
        }
    };
    let total = (-r..=r).map(weight).sum::<f64>().powi(3);
    let mut sums = [0.0; 5];
    for k in (z - r).max(0)..=(z + r).min(d - 1) {
        for j in (y - r).max(0)..=(y + r).min(h - 1) {
            for i in (x - r).max(0)..=(x + r).min(width - 1) {
                let q = ((k * h + j) * width + i) as usize;
                let (f, m) = (fixed[q], moved[q]);
                let weight = weight(k - z) * weight(j - y) * weight(i - x);
                let values = [f, m, f * f, m * m, f * m];
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
            }
        }
    }
    sums.map(|sum| sum / total)
}

/// `n` of every voxel of one volume by direct window sums.
fn direct(moved: &[f64], fixed: &[f64], size: [usize; 3], options: &LnccOptions) -> Vec<f64> {
    let n = |voxel| {
        let [f, m, ff, mm, fm] = means(moved, fixed, size, voxel, options);
        let (a, b, c) = (fm - f * m, (ff - f * f).max(0.0), (mm - m * m).max(0.0));
        a * a / (b * c + options.epsilon)
    };
    (0..moved.len()).map(n).collect()
}

/// Loss and gradients to moved and fixed.
fn evaluate(
    [moved, fixed]: [&[f64]; 2],
    shape: [usize; 5],
    options: &LnccOptions,
    device: &Device,
    dtype: DType,
) -> (f64, Vec<Vec<f64>>) {
    let device = device.clone().autodiff();
    let moved: Tensor<5> = tensor(moved, shape, &device, dtype).require_grad();
    let fixed: Tensor<5> = tensor(fixed, shape, &device, dtype).require_grad();
    let loss = lncc(moved.clone(), fixed.clone(), options);
    assert_eq!(loss.dims(), [1]);
    let gradients = loss.backward();
    let of = |t: &Tensor<5>| to_f64(t.grad(&gradients).expect("both want a gradient"));
    (to_f64(loss.inner())[0], vec![of(&moved), of(&fixed)])
}

fn on_cpu(images: [&[f64]; 2], shape: [usize; 5], options: &LnccOptions) -> (f64, Vec<Vec<f64>>) {
    evaluate(images, shape, options, &cpu(), DType::F64)
}

/// Two related random images, so that `n` takes all values.
fn pair(len: usize, seed: u64) -> [Vec<f64>; 2] {
    let fixed = normal(len, seed);
    let noise = normal(len, seed + 1);
    let moved = fixed.iter().zip(noise).map(|(f, noise)| 0.6 * f + 0.8 * noise).collect();
    [moved, fixed]
}
