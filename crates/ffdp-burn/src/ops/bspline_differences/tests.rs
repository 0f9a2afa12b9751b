//! The whole histogram anew for every displaced control point, and the smooth gradient.

use burn::tensor::{DType, Device};

use super::*;
use crate::ops::{HistogramOptions, VotesOptions, bspline_votes, information_loss};
use ffdp_kit::testing::{assert_close, gpu_devices, normal, tensor, to_f64};

/// The same counts, entropies from sums of other terms: f64. The loss has a `tiny` in its logarithms, 1e-10 a cell.
const ROUNDING: f64 = 1e-4;
/// f32 sums of some thousand changes; a bin that one voxel misses by rounding is one of some hundred changes.
const GPU: f64 = 0.05;

struct Pair {
    images: [Vec<f64>; 2],
    size: [usize; 3],
    grid: ControlGrid,
    controls: [usize; 3],
    coefficients: Vec<f64>,
}

/// Smooth images: one as the other is seen through a wave, with other intensities.
fn pair(size: [usize; 3], spacing: f64) -> Pair {
    let [d, h, w] = size;
    let shape = |x: f64, y: f64, z: f64| {
        0.5 + 0.22 * (0.55 * x).sin()
            + 0.15 * (0.45 * y + 0.7).cos()
            + 0.1 * (0.5 * z + 0.2 * x).sin()
    };
    let mut images = [Vec::new(), Vec::new()];
    for voxel in 0..d * h * w {
        let [x, y, z] = [voxel % w, voxel / w % h, voxel / w / h].map(|i| i as f64);
        let fixed = shape(x + (0.3 * y).sin(), y + 0.4, z - 0.6 * (0.25 * x).cos());
        images[0].push(f64::from((1.0 - 0.9 * fixed * fixed) as f32));
        images[1].push(f64::from(shape(x, y, z) as f32));
    }
    let (grid, controls) = ControlGrid::covering(size, [spacing; 3]);
    let count: usize = controls.iter().product();
    let coefficients = normal(3 * count, 3).into_iter().map(|v| f64::from((0.3 * v) as f32));
    Pair { images, size, grid, controls, coefficients: coefficients.collect() }
}

const MAP_VALUES: [f64; 12] = [1.0, 0.01, 0.0, 0.21, 0.0, 0.99, 0.0, 0.13, 0.0, 0.0, 1.0, -0.17];

impl Pair {
    fn on(&self, device: &Device, dtype: DType) -> VotesImages {
        let [d, h, w] = self.size;
        let image = |values: &[f64]| tensor(values, [1, 1, d, h, w], device, dtype);
        let [fixed, moving] = self.images.each_ref().map(|values| image(values));
        VotesImages { fixed, moving, affine: tensor(&MAP_VALUES, [1, 3, 4], device, dtype) }
    }

    fn coefficients(&self, values: &[f64], device: &Device, dtype: DType) -> Tensor<5> {
        let [d, h, w] = self.controls;
        tensor(values, [1, 3, d, h, w], device, dtype)
    }

    fn differences(
        &self,
        (bins, information, step): (usize, Information, f64),
        device: &Device,
        dtype: DType,
    ) -> (f64, Vec<f64>) {
        let coefficients = self.coefficients(&self.coefficients, device, dtype);
        let by = DifferencesOptions { votes: &whole(bins), information, step_voxels: step };
        let (loss, gradient) =
            bspline_differences(&self.on(device, dtype), coefficients, &self.grid, by);
        (to_f64(loss)[0], to_f64(gradient))
    }
}

fn whole(bins: usize) -> VotesOptions {
    let kernel = ParzenKernel::Delta;
    VotesOptions {
        histogram: HistogramOptions { bins, kernel, ..Default::default() },
        ..Default::default()
    }
}

#[test]
fn the_support_alone_gives_what_the_whole_histogram_gives() {
    let pair = pair([12, 13, 15], 5.0);
    let (device, dtype) = (Device::flex(), DType::F64);
    for (bins, information) in [(256, Information::Normalized), (32, Information::Mutual)] {
        let step = 0.7;
        let (loss, found) = pair.differences((bins, information, step), &device, dtype);
        let whole_loss = |values: &[f64]| {
            let coefficients = pair.coefficients(values, &device, dtype);
            let votes =
                bspline_votes(&pair.on(&device, dtype), coefficients, &pair.grid, &whole(bins));
            to_f64(information_loss(votes, information))[0]
        };
        assert!((loss - whole_loss(&pair.coefficients)).abs() < 1e-5);
        let mut values = pair.coefficients.clone();
        let mut expected = Vec::new();
        for k in 0..values.len() {
            let here = values[k];
            let mut at = |u: f64| {
                values[k] = u;
                whole_loss(&values)
            };
            let slope = (at(here + step) - at(here - step)) / (2.0 * step);
            values[k] = here;
            expected.push(slope);
        }
        let label = format!("{bins} {information:?}");
        let error = assert_close(&label, &found, &expected, ROUNDING);
        println!("{label}: {error:.1e} of {} entries", found.len());
    }
}

#[test]
fn it_leads_where_the_smooth_gradient_leads() {
    let pair = pair([24, 26, 28], 6.0);
    let device = Device::flex();
    // A vote moves to the next bin; smooth votes of as many bins move all the time.
    let information = Information::Normalized;
    let (_, differences) = pair.differences((64, information, 1.0), &device, DType::F64);
    let tracked = device.clone().autodiff();
    let coefficients = pair.coefficients(&pair.coefficients, &tracked, DType::F64).require_grad();
    let options = VotesOptions {
        histogram: HistogramOptions { bins: 64, ..HistogramOptions::default() },
        ..VotesOptions::default()
    };
    let images = pair.on(&tracked, DType::F64);
    let votes = bspline_votes(&images, coefficients.clone(), &pair.grid, &options);
    let gradients = information_loss(votes, information).backward();
    let smooth = to_f64(coefficients.grad(&gradients).expect("it depends on them"));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let cosine = dot(&smooth, &differences)
        / (dot(&smooth, &smooth) * dot(&differences, &differences)).sqrt();
    println!("cosine of the two gradients: {cosine:.3}");
    // Whole bins and steps of a voxel on the one side, smooth votes and none on the other: alike in direction, not the same.
    assert!(cosine > 0.7, "{cosine}");
}

#[test]
fn a_gpu_finds_what_the_cpu_finds() {
    for (name, device) in gpu_devices() {
        // Tables that fit into any shared memory, and bands of them.
        for (size, spacing, bins) in [
            ([24, 26, 28], 6.0, &[32, 128, 256][..]),
            ([9, 33, 40], 7.5, &[128]),
            ([1, 30, 31], 5.0, &[32, 256]),
        ] {
            let pair = pair(size, spacing);
            for &bins in bins {
                for information in [Information::Normalized, Information::Mutual] {
                    let by = (bins, information, 0.8);
                    let (loss, expected) = pair.differences(by, &Device::flex(), DType::F32);
                    let (on_gpu, found) = pair.differences(by, &device, DType::F32);
                    let label = format!("{name} {size:?} {bins} {information:?}");
                    assert!((loss - on_gpu).abs() < 1e-3, "{label}: {loss} {on_gpu}");
                    let error = assert_close(&label, &found, &expected, GPU);
                    println!("{label}: {error:.1e}");
                    assert_eq!(found, pair.differences(by, &device, DType::F32).1, "{label}");
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "votes must be whole")]
fn smooth_votes_are_refused() {
    let pair = pair([4, 4, 4], 3.0);
    let device = Device::flex();
    let coefficients = pair.coefficients(&pair.coefficients, &device, DType::F32);
    let by = DifferencesOptions {
        votes: &VotesOptions::default(),
        information: Information::Mutual,
        step_voxels: 1.0,
    };
    bspline_differences(&pair.on(&device, DType::F32), coefficients, &pair.grid, by);
}
