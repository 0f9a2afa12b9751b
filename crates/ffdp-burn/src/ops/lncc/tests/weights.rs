//! Weighted LNCC: direct sums, invariants, gradients, devices.

use burn::tensor::{DType, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, uniform};

/// Loss and gradients to moved and fixed.
fn evaluate_weighted(
    [moved, fixed, weights]: [&[f64]; 3],
    shape: [usize; 5],
    options: &LnccOptions,
    device: &Device,
    dtype: DType,
) -> (f64, Vec<Vec<f64>>) {
    let device = device.clone().autodiff();
    let [moved, fixed] = [moved, fixed]
        .map(|image| -> Tensor<5> { tensor(image, shape, &device, dtype).require_grad() });
    let weights: Tensor<5> = tensor(weights, [1, 1, shape[2], shape[3], shape[4]], &device, dtype);
    let loss = weighted_lncc(moved.clone(), fixed.clone(), weights, options);
    let gradients = loss.backward();
    let of = |t: &Tensor<5>| to_f64(t.grad(&gradients).expect("both want a gradient"));
    (to_f64(loss.inner())[0], vec![of(&moved), of(&fixed)])
}

/// Weights of which some are zero.
fn some_weights(len: usize, seed: u64) -> Vec<f64> {
    uniform(len, -0.5, 1.0, seed).into_iter().map(|u| u.max(0.0)).collect()
}

fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

#[test]
fn the_value_equals_direct_weighted_sums() {
    let (size, shape) = ([5, 6, 7], [1, 1, 5, 6, 7]);
    let [moved, fixed] = pair(210, 31);
    let weights = some_weights(210, 32);
    let options = gaussian_window(5, 1.2);
    // The means of u f, u m, ... and of u, two images at a time.
    let mean = |a: &[f64], b: &[f64], voxel: usize| means(a, b, size, voxel, &options);
    let (weighted_m, weighted_f) = (product(&moved, &weights), product(&fixed, &weights));
    let (mut sum, mut total) = (0.0, 0.0);
    for voxel in 0..210 {
        let [u, ..] = mean(&weights, &weights, voxel);
        let [f, m, ..] = mean(&weighted_m, &weighted_f, voxel).map(|mean| mean / u);
        let ff = mean(&fixed, &weighted_f, voxel)[4] / u;
        let mm = mean(&moved, &weighted_m, voxel)[4] / u;
        let fm = mean(&moved, &weighted_f, voxel)[4] / u;
        let (a, b, c) = (fm - f * m, ff - f * f, mm - m * m);
        sum += weights[voxel] * a * a / (b * c + options.epsilon);
        total += weights[voxel];
    }
    let (loss, _) =
        evaluate_weighted([&moved, &fixed, &weights], shape, &options, &cpu(), DType::F64);
    assert!((loss - (1.0 - sum / total)).abs() < ROUNDING, "{loss}");
}

#[test]
fn borders_hold_only_what_there_is() {
    // Two constants: related through the zeros outside for `lncc`, unrelated where nothing is outside.
    let (moved, fixed, ones) = (vec![2.0; 125], vec![3.0; 125], vec![1.0; 125]);
    let shape = [1, 1, 5, 5, 5];
    let plain = on_cpu([&moved, &fixed], shape, &window(3)).0;
    assert!(plain < 0.25, "98 of 125 windows reach outside: {plain}");
    let images = [&moved[..], &fixed[..], &ones[..]];
    let (loss, gradients) = evaluate_weighted(images, shape, &window(3), &cpu(), DType::F64);
    assert_eq!(loss, 1.0);
    assert!(gradients.iter().flatten().all(|slope| *slope == 0.0));
}

#[test]
fn the_gradient_is_zero_where_the_weight_is() {
    let shape = [1, 1, 6, 5, 7];
    let [moved, fixed] = pair(210, 33);
    let weights = some_weights(210, 40);
    let images = [&moved[..], &fixed[..], &weights[..]];
    let (_, gradients) = evaluate_weighted(images, shape, &window(3), &cpu(), DType::F64);
    for gradient in gradients {
        for (slope, weight) in gradient.iter().zip(&weights) {
            assert_eq!(*slope == 0.0, *weight == 0.0, "slope {slope} at weight {weight}");
        }
    }
}

#[test]
fn what_has_no_weight_has_no_influence() {
    let shape = [1, 1, 6, 5, 7];
    let [moved, fixed] = pair(210, 34);
    let weights = some_weights(210, 35);
    let spoiled: Vec<f64> =
        moved.iter().zip(&weights).map(|(m, u)| if *u == 0.0 { 1e3 } else { *m }).collect();
    let run = |moved: &[f64]| {
        evaluate_weighted([moved, &fixed, &weights], shape, &window(5), &cpu(), DType::F64)
    };
    let ((expected, slopes), (loss, others)) = (run(&moved), run(&spoiled));
    // The constant that images are read relative to is another: means of 1e5 are subtracted.
    assert!((loss - expected).abs() < 1e-8, "{loss} against {expected}");
    for (actual, expected) in others.iter().zip(&slopes) {
        assert_close("gradient", actual, expected, 1e-6);
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    for (shape, w) in [([1, 1, 5, 4, 6], 3), ([1, 2, 3, 4, 3], 5)] {
        let inputs = pair(shape.iter().product(), 36);
        let weights = some_weights(shape[2] * shape[3] * shape[4], 37);
        let checks = gradcheck(&["moved", "fixed"], &inputs, 1e-3, |inputs| {
            let images = [&inputs[0][..], &inputs[1][..], &weights[..]];
            evaluate_weighted(images, shape, &window(w), &cpu(), DType::F64)
        });
        for check in checks {
            // As in the suite of gradients.
            assert!(check.error < 1e-8, "{shape:?} window {w}: {check:?}");
        }
    }
}

#[test]
fn gpus_agree_with_the_cpu() {
    let round = |values: Vec<f64>| -> Vec<f64> {
        values.into_iter().map(|v| f64::from(v as f32)).collect()
    };
    for (name, device) in gpu_devices() {
        for (shape, w, gradient) in [
            ([1, 2, 11, 18, 60], 7, GradientMode::Exact),
            ([1, 1, 9, 20, 33], 5, GradientMode::AntsApproximate),
        ] {
            let [moved, fixed] = pair(shape.iter().product(), 38).map(round);
            let weights = round(some_weights(shape[2] * shape[3] * shape[4], 39));
            let images = [&moved[..], &fixed[..], &weights[..]];
            let options = LnccOptions { gradient, ..window(w) };
            let (expected, slopes) = evaluate_weighted(images, shape, &options, &cpu(), DType::F64);
            let (loss, others) = evaluate_weighted(images, shape, &options, &device, DType::F32);
            let label = format!("{name} {shape:?} {gradient:?}");
            // As without weights.
            assert!((loss - expected).abs() < 1e-5, "{label}: {loss} against {expected}");
            for (actual, expected) in others.iter().zip(&slopes) {
                assert_close(&label, actual, expected, 1e-4);
            }
        }
    }
}

#[test]
#[should_panic(expected = "weights [1, 1, 2, 2, 3] do not fit images [1, 1, 2, 2, 2]")]
fn weights_of_another_size_are_rejected() {
    let image: Tensor<5> = Tensor::zeros([1, 1, 2, 2, 2], &cpu());
    let weights = Tensor::zeros([1, 1, 2, 2, 3], &cpu());
    weighted_lncc(image.clone(), image, weights, &window(3));
}
