//! Against the definition, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// Central differences with steps of 1e-4 in f64; errors of third order, points off the kink.
const FINITE_DIFFERENCES: f64 = 1e-6;
/// f32 inputs and results, sums in f64 (CPU) or in trees (GPU).
const SINGLE: f64 = 2e-6;

/// Odd and unit sizes, several samples and channels, rows that are and are not whole vectors, more
/// voxels than a piece.
const CASES: [[usize; 5]; 6] = [
    [1, 1, 2, 2, 2],
    [2, 3, 3, 4, 5],
    [1, 5, 4, 6, 8],
    [3, 2, 1, 1, 3],
    [1, 2, 21, 20, 23],
    [1, 2, 40, 24, 20],
];

fn evaluate(
    [x, r]: [&[f64]; 2],
    shape: [usize; 5],
    options: &InstanceNormOptions,
    device: &Device,
    dtype: DType,
) -> [Vec<f64>; 2] {
    let device = device.clone().autodiff();
    let x: Tensor<5> = tensor(x, shape, &device, dtype).require_grad();
    let y = instance_norm(x.clone(), options);
    let r: Tensor<5> = tensor(r, shape, &device, dtype);
    let gradients = (y.clone() * r).backward();
    [to_f64(y.inner()), to_f64(x.grad(&gradients).expect("x wants a gradient"))]
}

/// Values by the formula, in f64.
fn by_definition(x: &[f64], shape: [usize; 5], options: &InstanceNormOptions) -> Vec<f64> {
    let voxels = shape[2] * shape[3] * shape[4];
    let normalise = |x: &[f64]| -> Vec<f64> {
        let mean = x.iter().sum::<f64>() / voxels as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / voxels as f64;
        let n = x.iter().map(|x| (x - mean) / (variance + options.epsilon).sqrt());
        n.map(|n| if n > 0.0 { n } else { options.slope * n }).collect()
    };
    x.chunks(voxels).flat_map(normalise).collect()
}

fn inputs(shape: [usize; 5]) -> [Vec<f64>; 2] {
    let count = shape.iter().product();
    [normal(count, 1).iter().map(|v| 3.0 + 2.0 * v).collect(), normal(count, 2)]
}

#[test]
fn values_are_those_of_the_definition() {
    let options = InstanceNormOptions { slope: 0.2, ..Default::default() };
    for shape in CASES {
        let [x, r] = inputs(shape);
        let expected = by_definition(&x, shape, &options);
        for (dtype, tolerance) in [(DType::F32, SINGLE), (DType::F64, 1e-13)] {
            let [y, _] = evaluate([&x, &r], shape, &options, &Device::flex(), dtype);
            assert_close(&format!("{shape:?} {dtype:?}"), &y, &expected, tolerance);
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    for slope in [0.01, 0.3, 1.0] {
        let options = InstanceNormOptions { epsilon: 1e-3, slope };
        let shape = [2, 2, 2, 3, 2];
        let [x, r] = inputs(shape);
        let checks = gradcheck(&["x"], &[x], 1e-4, |inputs| {
            let [y, to_x] =
                evaluate([&inputs[0], &r], shape, &options, &Device::flex(), DType::F64);
            (y.iter().zip(&r).map(|(y, r)| y * r).sum(), vec![to_x])
        });
        for check in checks {
            assert!(check.error < FINITE_DIFFERENCES, "slope {slope}: {check:?}");
        }
    }
}

#[test]
fn the_gradient_ignores_offset_and_scale() {
    // y does not change when a channel is shifted, nor (but for epsilon) when it is scaled.
    let shape = [1, 2, 3, 4, 5];
    let [x, r] = inputs(shape);
    let options = InstanceNormOptions { epsilon: 0.0, ..Default::default() };
    let [y, to_x] = evaluate([&x, &r], shape, &options, &Device::flex(), DType::F64);
    let largest = to_x.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
    assert!(largest > 0.01 && y.iter().any(|y| *y > 0.0));
    for (to_x, x) in to_x.chunks(60).zip(x.chunks(60)) {
        let shift: f64 = to_x.iter().sum();
        let scale: f64 = to_x.iter().zip(x).map(|(g, x)| g * x).sum();
        // Sums of 60 terms in f64.
        assert!(shift.abs() < 1e-12 && scale.abs() < 1e-12, "{shift} {scale}");
    }
}

#[test]
fn a_large_offset_costs_no_digits() {
    let shape = [1, 1, 20, 24, 28];
    let [x, r] = inputs(shape);
    // 512 is exact in f32 with these values rounded to 1/4096.
    let x: Vec<f64> = x.iter().map(|x| (x * 4096.0).round() / 4096.0).collect();
    let far: Vec<f64> = x.iter().map(|x| x + 512.0).collect();
    let options = InstanceNormOptions::default();
    let expected = by_definition(&x, shape, &options);
    let devices = [("flex", Device::flex())].into_iter().chain(gpu_devices());
    for (name, device) in devices {
        let [y, _] = evaluate([&far, &r], shape, &options, &device, DType::F32);
        // The mean of 512 has an ulp of 6e-5, which shifts values of deviation 2.
        assert_close(name, &y, &expected, 3e-5);
    }
}

#[test]
fn a_constant_channel_becomes_zero() {
    let devices = [("flex", Device::flex())].into_iter().chain(gpu_devices());
    for (name, device) in devices {
        let x = Tensor::<5>::full([1, 2, 4, 5, 6], 0.1, &device);
        let y = instance_norm(x, &InstanceNormOptions::default());
        let largest = y.abs().max().into_scalar::<f32>();
        // At worst one ulp of the mean (7e-9) over sqrt(1e-5).
        assert!(largest < 1e-5, "{name}: {largest}");
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    let options = InstanceNormOptions::default();
    for (name, device) in gpu_devices() {
        for shape in CASES {
            let [x, r] = inputs(shape);
            let expected = evaluate([&x, &r], shape, &options, &Device::flex(), DType::F64);
            let actual = evaluate([&x, &r], shape, &options, &device, DType::F32);
            assert_close(&format!("{name} {shape:?}: y"), &actual[0], &expected[0], SINGLE);
            assert_close(&format!("{name} {shape:?}: to x"), &actual[1], &expected[1], SINGLE);
        }
    }
}

#[test]
#[should_panic(expected = "slope must be in (0, 1], got 0")]
fn the_activation_must_be_invertible() {
    let options = InstanceNormOptions { slope: 0.0, ..Default::default() };
    instance_norm(Tensor::ones([1, 1, 2, 2, 2], &Device::flex()), &options);
}
