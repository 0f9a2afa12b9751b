//! Exact cases, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64, uniform};

use super::*;

const EPSILON: f64 = 0.5;
/// Rounding of the differences, with steps of 1e-3 in a smooth function.
const FINITE_DIFFERENCES: f64 = 1e-8;
/// f32 sums of up to 1e5 positive terms in a tree; a gradient is a few roundings.
const GPU: f64 = 2e-6;

const NAMES: [&str; 3] = ["moved", "fixed", "weights"];

/// The loss, and its gradients to both images and to the weights.
fn evaluate(
    inputs: &[Vec<f64>],
    shape: [usize; 5],
    device: &Device,
    dtype: DType,
) -> (f64, Vec<Vec<f64>>) {
    let device = device.clone().autodiff();
    let [a, b, w] = [0, 1, 2]
        .map(|i| -> Tensor<5> { tensor(&inputs[i], shape, &device, dtype).require_grad() });
    let loss = charbonnier(a.clone(), b.clone(), w.clone(), EPSILON);
    let gradients = loss.backward();
    let to = |t: Tensor<5>| to_f64(t.grad(&gradients).expect("all want a gradient"));
    (to_f64(loss.inner())[0], [a, b, w].map(to).into())
}

fn inputs(len: usize) -> Vec<Vec<f64>> {
    vec![normal(len, 1), normal(len, 2), uniform(len, 0.1, 1.0, 3)]
}

/// On the CPU, in f64.
fn row(values: &[f64]) -> Tensor<5> {
    tensor(values, [1, 1, 1, 1, values.len()], &Device::flex(), DType::F64)
}

#[test]
fn the_mean_of_weighted_differences() {
    // 3, 4, 5: rho(3) = 5 - 4; 0 differs by nothing; a weight of 0 counts nothing.
    let (moved, fixed) = (row(&[1.0, 7.0, -2.0, 9.0]), row(&[4.0, 7.0, 1.0, -9.0]));
    let loss = charbonnier(moved, fixed, row(&[2.0, 1.0, 6.0, 0.0]), 4.0);
    assert_eq!(to_f64(loss), [(2.0 + 6.0) / 4.0]);
}

#[test]
fn small_differences_keep_their_digits() {
    let loss = charbonnier(row(&[1e-9]), row(&[0.0]), row(&[1.0]), 1.0);
    assert_close("d^2 / 2", &to_f64(loss), &[0.5e-18], 1e-12);
}

#[test]
fn gradients_agree_with_finite_differences() {
    let shape = [2, 2, 3, 2, 1];
    let checks = gradcheck(&NAMES, &inputs(24), 1e-3, |inputs| {
        evaluate(inputs, shape, &Device::flex(), DType::F64)
    });
    for check in checks {
        assert!(check.error < FINITE_DIFFERENCES, "{check:?}");
    }
}

#[test]
fn only_what_wants_a_gradient_gets_one() {
    let (a, b, w) = (row(&[1.0, 2.0]), row(&[0.0, 5.0]), row(&[1.0, 1.0]));
    let b = b.autodiff().require_grad();
    let loss = charbonnier(a.clone().autodiff(), b.clone(), w.autodiff(), EPSILON);
    let gradients = loss.backward();
    let to_b = to_f64(b.grad(&gradients).expect("fixed wants a gradient"));
    assert!(to_b[0] < 0.0 && to_b[1] > 0.0, "{to_b:?}");
}

#[test]
#[should_panic(expected = "epsilon must be positive")]
fn a_loss_without_a_bend_is_refused() {
    charbonnier(row(&[1.0]), row(&[1.0]), row(&[1.0]), 0.0);
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for shape in [[1, 1, 1, 1, 1], [2, 3, 5, 7, 11], [1, 1, 47, 48, 49]] {
            let inputs = inputs(shape.iter().product());
            let (expected, gradients) = evaluate(&inputs, shape, &Device::flex(), DType::F64);
            let (actual, others) = evaluate(&inputs, shape, &device, DType::F32);
            let label = format!("{name} {shape:?}");
            let error = assert_close(&label, &[actual], &[expected], GPU);
            println!("charbonnier {label}: value {error:.1e}");
            for ((input, actual), expected) in NAMES.iter().zip(&others).zip(&gradients) {
                assert_close(&format!("{label} to {input}"), actual, expected, GPU);
            }
        }
    }
}
