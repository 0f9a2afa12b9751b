//! Exact cases, invariants, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// Sums of at most a few hundred f64 products of numbers below 10.
const ROUNDING: f64 = 1e-13;
/// A linear map: differences are exact but for the rounding of the loss, about 1e-13 of it.
const FINITE_DIFFERENCES: f64 = 1e-10;
/// Three f32 dot products with positive weights that sum to 1: a few ulps each.
const GPU: f64 = 3e-6;

fn cpu() -> Device {
    Device::flex()
}

fn image(shape: [usize; 5], seed: u64) -> Tensor<5> {
    tensor(&normal(shape.iter().product(), seed), shape, &cpu(), DType::F64)
}

fn options(sigma_voxels: [f64; 3]) -> GaussianOptions {
    GaussianOptions { sigma_voxels, truncate: 3.0 }
}

/// `k_i` by its definition, `|i| <= ceil(3 sigma)`; 0 beyond.
fn kernel(sigma: f64, i: i64) -> f64 {
    let radius = (3.0 * sigma).ceil() as i64;
    let weight =
        |i: i64| if i == 0 { 1.0 } else { (-((i * i) as f64) / (2.0 * sigma * sigma)).exp() };
    let mass: f64 = (-radius..=radius).map(weight).sum();
    if i.abs() <= radius { weight(i) / mass } else { 0.0 }
}

/// The map by its definition, voxel by voxel: weighted mean of the neighbours that exist.
fn direct(values: &[f64], [d, h, w]: [usize; 3], sigma: [f64; 3]) -> Vec<f64> {
    let voxels =
        || (0..d).flat_map(move |z| (0..h).flat_map(move |y| (0..w).map(move |x| [x, y, z])));
    let distance = |p: usize, q: usize| p as i64 - q as i64;
    voxels()
        .map(|p| {
            let (mut sum, mut mass) = (0.0, 0.0);
            for (q, value) in voxels().zip(values) {
                let weight: f64 =
                    (0..3).map(|axis| kernel(sigma[axis], distance(p[axis], q[axis]))).product();
                sum += weight * value;
                mass += weight;
            }
            sum / mass
        })
        .collect()
}

#[test]
fn impulse_response_is_the_truncated_gaussian() {
    let ([d, h, w], at) = ([13, 9, 11], [5usize, 4, 6]);
    let sigma = [1.0, 0.6, 1.5];
    let mut impulse = vec![0.0; d * h * w];
    impulse[(at[2] * h + at[1]) * w + at[0]] = 1.0;
    let impulse = tensor(&impulse, [1, 1, d, h, w], &cpu(), DType::F64);
    let response = to_f64(gaussian(impulse, &options(sigma)));
    for (voxel, value) in response.iter().enumerate() {
        let p = [voxel % w, voxel / w % h, voxel / (w * h)];
        // Where the window leaves the image its mass is divided out.
        let expected: f64 = (0..3)
            .map(|axis| {
                let mass: f64 = (0..[w, h, d][axis])
                    .map(|q| kernel(sigma[axis], p[axis] as i64 - q as i64))
                    .sum();
                kernel(sigma[axis], p[axis] as i64 - at[axis] as i64) / mass
            })
            .product();
        assert!((value - expected).abs() < 1e-15, "voxel {p:?}: {value} against {expected}");
    }
    // Beyond ceil(3 * 0.6) = 2 voxels along y nothing is left.
    assert_eq!(response[(at[2] * h + at[1] + 3) * w + at[0]], 0.0);
    assert!(response[(at[2] * h + at[1] + 2) * w + at[0]] > 0.0);
}

#[test]
fn equals_the_weighted_mean_of_the_neighbours() {
    let cases = [
        ([5, 4, 6], [0.8, 0.5, 1.1]),
        // Radii 9, 12 and 5 on axes of 3, 4 and 2 voxels.
        ([2, 4, 3], [3.0, 4.0, 1.6]),
        ([1, 1, 7], [1.0, 2.0, 3.0]),
        ([6, 1, 1], [0.3, 0.0, 0.7]),
        ([1, 1, 1], [2.0, 2.0, 2.0]),
    ];
    for (size, sigma) in cases {
        let image = image([1, 1, size[0], size[1], size[2]], 1);
        let expected = direct(&to_f64(image.clone()), size, sigma);
        let label = format!("{size:?} sigma {sigma:?}");
        assert_close(&label, &to_f64(gaussian(image, &options(sigma))), &expected, ROUNDING);
    }
}

#[test]
fn constants_stay_constant_up_to_the_border() {
    for sigma in [0.4, 1.0, 2.5, 6.0] {
        let constant = Tensor::full([2, 3, 4, 7, 5], 7.25, (&cpu(), DType::F64));
        let smooth = to_f64(gaussian(constant, &GaussianOptions::isotropic(sigma)));
        assert_close(&format!("sigma {sigma}"), &smooth, &[7.25; 840], ROUNDING);
    }
}

#[test]
fn sigma_zero_passes_an_axis_through() {
    let image = image([1, 1, 3, 4, 5], 2);
    assert_eq!(to_f64(gaussian(image.clone(), &options([0.0; 3]))), to_f64(image.clone()));
    // Smoothing along x alone: every line is a signal of its own.
    let smooth = to_f64(gaussian(image.clone(), &options([1.2, 0.0, 0.0])));
    for (line, smooth) in to_f64(image).chunks(5).zip(smooth.chunks(5)) {
        assert_close("line", smooth, &direct(line, [1, 1, 5], [1.2, 0.0, 0.0]), ROUNDING);
    }
}

#[test]
fn truncation_bounds_the_reach() {
    let mut impulse = vec![0.0; 15];
    impulse[7] = 1.0;
    let impulse = tensor(&impulse, [1, 1, 1, 1, 15], &cpu(), DType::F64);
    for (truncate, reach) in [(1.0, 2), (2.0, 4), (3.0, 6)] {
        let options = GaussianOptions { sigma_voxels: [2.0, 0.0, 0.0], truncate };
        let response = to_f64(gaussian(impulse.clone(), &options));
        let nonzero: Vec<usize> = (0..15).filter(|i| response[*i] != 0.0).collect();
        assert_eq!(nonzero, (7 - reach..=7 + reach).collect::<Vec<_>>(), "truncate {truncate}");
    }
}

#[test]
fn channels_and_batch_entries_do_not_mix() {
    let image = image([2, 3, 3, 4, 5], 3);
    let options = options([0.7, 1.0, 1.3]);
    let whole = gaussian(image.clone(), &options);
    for (n, c) in (0..2).flat_map(|n| (0..3).map(move |c| (n, c))) {
        let one = |t: &Tensor<5>| t.clone().slice([n..n + 1, c..c + 1, 0..3, 0..4, 0..5]);
        let alone = gaussian(one(&image), &options);
        assert_eq!(to_f64(one(&whole)), to_f64(alone), "batch {n} channel {c}");
    }
}

#[test]
fn mirrored_images_smooth_to_mirrored_images() {
    let image = image([1, 1, 4, 5, 6], 4);
    let options = options([1.4, 0.8, 2.2]);
    let expected = to_f64(gaussian(image.clone(), &options));
    let mirrored = gaussian(image.flip([2, 3, 4]), &options).flip([2, 3, 4]);
    assert_close("mirror", &to_f64(mirrored), &expected, ROUNDING);
}

/// Image and upstream gradient, smoothed and pulled back: `K x` and `K^T g`.
fn evaluate(
    [x, g]: [&[f64]; 2],
    shape: [usize; 5],
    sigma: [f64; 3],
    device: &Device,
    dtype: DType,
) -> (Vec<f64>, f64, Vec<f64>) {
    let device = device.clone().autodiff();
    let x: Tensor<5> = tensor(x, shape, &device, dtype).require_grad();
    let smooth = gaussian(x.clone(), &options(sigma));
    assert_eq!(smooth.dims(), shape);
    let loss = (smooth.clone() * tensor(g, shape, &device, dtype)).sum();
    let gradients = loss.backward();
    let gradient = to_f64(x.grad(&gradients).expect("x wants a gradient"));
    (to_f64(smooth.inner()), to_f64(loss.inner())[0], gradient)
}

/// Shapes and sigmas of both paths of the GPU, the march (radii up to 8) and the axis passes.
const CASES: [([usize; 5], [f64; 3]); 7] = [
    ([1, 1, 4, 5, 3], [0.6, 1.0, 0.8]),
    ([2, 2, 3, 4, 5], [1.5, 0.0, 2.0]),
    ([1, 3, 1, 7, 1], [1.0, 1.0, 1.0]),
    ([1, 1, 1, 1, 1], [1.0, 2.0, 3.0]),
    ([2, 1, 3, 2, 5], [0.0, 3.5, 0.5]),
    ([1, 1, 2, 3, 4], [4.0, 4.0, 4.0]),
    ([1, 1, 5, 1, 4], [0.0, 0.0, 1.0]),
];

#[test]
fn the_backward_pass_is_the_adjoint() {
    for (shape, sigma) in CASES {
        let len = shape.iter().product();
        let (x, g) = (normal(len, 5), normal(len, 6));
        let (smooth, _, pulled) = evaluate([&x, &g], shape, sigma, &cpu(), DType::F64);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let (forward, adjoint) = (dot(&smooth, &g), dot(&x, &pulled));
        let scale = dot(&x, &x).sqrt() * dot(&g, &g).sqrt();
        assert!(
            (forward - adjoint).abs() < ROUNDING * scale,
            "{shape:?} sigma {sigma:?}: <Kx, g> = {forward}, <x, K^T g> = {adjoint}"
        );
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    for (shape, sigma) in CASES {
        let len = shape.iter().product();
        let g = normal(len, 7);
        let checks = gradcheck(&["x"], &[normal(len, 8)], 0.1, |inputs| {
            let (_, loss, gradient) = evaluate([&inputs[0], &g], shape, sigma, &cpu(), DType::F64);
            (loss, vec![gradient])
        });
        assert!(checks[0].error < FINITE_DIFFERENCES, "{shape:?} {sigma:?}: {checks:?}");
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    // Several tiles of columns and several chunks along z, of voxels and of whole cells (widths that
    // four divides); the last two take axis passes.
    let large = [
        ([1, 3, 41, 33, 136], [1.0, 1.0, 1.0]),
        ([2, 1, 19, 35, 132], [0.5, 1.6, 1.3]),
        ([1, 2, 21, 9, 160], [1.6, 0.0, 0.5]),
        ([1, 3, 41, 33, 70], [1.0, 1.0, 1.0]),
        ([2, 1, 19, 17, 65], [0.5, 2.6, 1.3]),
        ([1, 1, 100, 9, 33], [0.0, 0.4, 2.6]),
        ([1, 1, 3, 5, 7], [2.5, 2.5, 2.5]),
        ([1, 2, 21, 40, 35], [3.0, 1.0, 0.0]),
        ([1, 1, 30, 31, 32], [8.0, 8.0, 8.0]),
    ];
    for (name, device) in gpu_devices() {
        for (shape, sigma) in CASES.into_iter().chain(large) {
            let len = shape.iter().product();
            let (x, g) = (normal(len, 9), normal(len, 10));
            let expected = evaluate([&x, &g], shape, sigma, &cpu(), DType::F64);
            let actual = evaluate([&x, &g], shape, sigma, &device, DType::F32);
            let label = format!("{name} {shape:?} sigma {sigma:?}");
            let forward = assert_close(&label, &actual.0, &expected.0, GPU);
            let gradient = assert_close(&label, &actual.2, &expected.2, GPU);
            println!("gaussian {label}: forward {forward:.1e} gradient {gradient:.1e}");
        }
    }
}

#[test]
fn strided_inputs_give_the_same_result() {
    let mut devices = gpu_devices();
    devices.push(("cpu", cpu()));
    for (name, device) in devices {
        for sigma in [[0.8, 1.0, 1.2], [3.0, 3.0, 3.0]] {
            let x = tensor(&normal(120, 11), [1, 2, 3, 4, 5], &device, DType::F32);
            let expected = to_f64(gaussian(x.clone(), &options(sigma)));
            // Stored in another order, seen in the usual one.
            let data = x.clone().permute([4, 3, 2, 1, 0]).into_data();
            let stored = Tensor::<5>::from_data(data, &device).permute([4, 3, 2, 1, 0]);
            assert_eq!(to_f64(gaussian(stored, &options(sigma))), expected, "{name} {sigma:?}");
            let part = Tensor::cat(vec![x.clone(), x], 4).slice([0..1, 0..2, 0..3, 0..4, 5..10]);
            assert_eq!(to_f64(gaussian(part, &options(sigma))), expected, "{name} {sigma:?}");
            // Rows of four voxels that begin at odd places of the memory.
            let line = tensor(&normal(5, 12), [1, 1, 1, 1, 5], &device, DType::F32);
            let part = line.slice([0..1, 0..1, 0..1, 0..1, 1..5]);
            let copy = Tensor::from_data(part.clone().into_data(), &device);
            let expected = to_f64(gaussian(copy, &options(sigma)));
            assert_eq!(to_f64(gaussian(part, &options(sigma))), expected, "{name} {sigma:?} part");
        }
    }
}

#[test]
#[should_panic(expected = "sigma_voxels and truncate must be finite and >= 0")]
fn a_negative_sigma_is_refused() {
    gaussian(image([1, 1, 2, 2, 2], 1), &options([1.0, -1.0, 0.0]));
}

#[test]
#[should_panic(expected = "sigma_voxels and truncate must be finite and >= 0")]
fn a_truncation_that_is_no_number_is_refused() {
    let options = GaussianOptions { sigma_voxels: [1.0; 3], truncate: f64::NAN };
    gaussian(image([1, 1, 2, 2, 2], 1), &options);
}
