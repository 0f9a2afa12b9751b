//! Exact cases, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// A quadratic: central differences are exact but for rounding.
const FINITE_DIFFERENCES: f64 = 1e-8;
/// f32 sums of up to 1e5 positive terms in a tree; the gradient is one rounding.
const GPU: f64 = 1e-6;

fn evaluate(
    [a, b]: [&[f64]; 2],
    shape: [usize; 5],
    device: &Device,
    dtype: DType,
) -> (f64, Vec<Vec<f64>>) {
    let device = device.clone().autodiff();
    let a: Tensor<5> = tensor(a, shape, &device, dtype).require_grad();
    let b: Tensor<5> = tensor(b, shape, &device, dtype).require_grad();
    let loss = mse(a.clone(), b.clone());
    let gradients = loss.backward();
    let to = |t: &Tensor<5>| to_f64(t.grad(&gradients).expect("both want a gradient"));
    (to_f64(loss.clone().inner())[0], vec![to(&a), to(&b)])
}

#[test]
fn the_mean_of_squared_differences() {
    let device = Device::flex();
    let a = tensor(&[1.0, 2.0, 3.0, 4.0], [1, 1, 1, 2, 2], &device, DType::F64);
    let b = tensor(&[1.0, 0.0, 6.0, 4.0], [1, 1, 1, 2, 2], &device, DType::F64);
    assert_eq!(to_f64(mse(a.clone(), b)), [(4.0 + 9.0) / 4.0]);
    assert_eq!(to_f64(mse(a.clone(), a)), [0.0]);
}

#[test]
fn gradients_agree_with_finite_differences() {
    let shape = [2, 2, 3, 2, 1];
    let inputs = vec![normal(24, 1), normal(24, 2)];
    let checks = gradcheck(&["moved", "fixed"], &inputs, 1e-3, |inputs| {
        evaluate([&inputs[0], &inputs[1]], shape, &Device::flex(), DType::F64)
    });
    for check in checks {
        assert!(check.error < FINITE_DIFFERENCES, "{check:?}");
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for shape in [[1, 1, 1, 1, 1], [2, 3, 5, 7, 11], [1, 1, 47, 48, 49]] {
            let len = shape.iter().product();
            let (a, b) = (normal(len, 3), normal(len, 4));
            let (expected, gradients) = evaluate([&a, &b], shape, &Device::flex(), DType::F64);
            let (actual, others) = evaluate([&a, &b], shape, &device, DType::F32);
            let label = format!("{name} {shape:?}");
            let value = assert_close(&label, &[actual], &[expected], GPU);
            for (actual, expected) in others.iter().zip(&gradients) {
                assert_close(&label, actual, expected, GPU);
            }
            println!("mse {label}: value {value:.1e}");
        }
    }
}
