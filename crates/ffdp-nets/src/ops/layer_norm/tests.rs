//! Against the definition, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// Central differences with steps of 1e-4 in f64; errors of third order.
const FINITE_DIFFERENCES: f64 = 1e-6;
/// f32 inputs and results. Three channels that nearly agree amplify the rounding of their mean.
const SINGLE: f64 = 3e-5;

/// One channel, fewer and more than a unit has, a whole cube, two counts of channels a unit; more
/// tokens than a round of cubes.
const CASES: [[usize; 3]; 8] = [
    [1, 1, 1],
    [2, 3, 6],
    [1, 5, 17],
    [3, 70, 96],
    [1, 4, 768],
    [2, 3, 1537],
    [1, 2, 4096],
    [5, 17_000, 3],
];
const EPSILON: f64 = 1e-5;

/// y and the gradients of x, gamma and beta.
fn evaluate(
    [x, gamma, beta, r]: [&[f64]; 4],
    shape: [usize; 3],
    device: &Device,
    dtype: DType,
) -> [Vec<f64>; 4] {
    let device = device.clone().autodiff();
    let x: Tensor<3> = tensor(x, shape, &device, dtype).require_grad();
    let gamma: Tensor<1> = tensor(gamma, [shape[2]], &device, dtype).require_grad();
    let beta: Tensor<1> = tensor(beta, [shape[2]], &device, dtype).require_grad();
    let y = layer_norm(x.clone(), gamma.clone(), beta.clone(), EPSILON);
    let r: Tensor<3> = tensor(r, shape, &device, dtype);
    let gradients = (y.clone() * r).backward();
    [
        to_f64(y.inner()),
        to_f64(x.grad(&gradients).expect("x wants a gradient")),
        to_f64(gamma.grad(&gradients).expect("gamma wants a gradient")),
        to_f64(beta.grad(&gradients).expect("beta wants a gradient")),
    ]
}

fn inputs(shape: [usize; 3]) -> [Vec<f64>; 4] {
    let count = shape.iter().product();
    let x = normal(count, 1).iter().map(|v| 3.0 + 2.0 * v).collect();
    [x, normal(shape[2], 2), normal(shape[2], 3), normal(count, 4)]
}

#[test]
fn values_are_those_of_the_definition() {
    for shape in CASES {
        let [x, gamma, beta, r] = inputs(shape);
        let count = shape[2] as f64;
        let expected: Vec<f64> = x
            .chunks(shape[2])
            .flat_map(|x| {
                let mean = x.iter().sum::<f64>() / count;
                let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
                let n = x.iter().map(move |x| (x - mean) / (variance + EPSILON).sqrt());
                n.zip(&gamma)
                    .zip(&beta)
                    .map(|((n, gamma), beta)| gamma * n + beta)
                    .collect::<Vec<_>>()
            })
            .collect();
        for (dtype, tolerance) in [(DType::F32, SINGLE), (DType::F64, 1e-13)] {
            let [y, ..] = evaluate([&x, &gamma, &beta, &r], shape, &Device::flex(), dtype);
            assert_close(&format!("{shape:?} {dtype:?}"), &y, &expected, tolerance);
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let shape = [2, 3, 5];
    let [x, gamma, beta, r] = inputs(shape);
    let names = ["x", "gamma", "beta"];
    let checks = gradcheck(&names, &[x, gamma, beta], 1e-4, |inputs| {
        let inputs = [&*inputs[0], &inputs[1], &inputs[2], &r];
        let [y, to_x, to_gamma, to_beta] = evaluate(inputs, shape, &Device::flex(), DType::F64);
        (y.iter().zip(&r).map(|(y, r)| y * r).sum(), vec![to_x, to_gamma, to_beta])
    });
    for check in checks {
        assert!(check.error < FINITE_DIFFERENCES, "{check:?}");
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for shape in CASES {
            let [x, gamma, beta, r] = inputs(shape);
            let inputs = [&*x, &gamma, &beta, &r];
            let expected = evaluate(inputs, shape, &Device::flex(), DType::F64);
            let actual = evaluate(inputs, shape, &device, DType::F32);
            for (what, (actual, expected)) in
                ["y", "to x", "to gamma", "to beta"].iter().zip(actual.iter().zip(&expected))
            {
                // One channel is always zero, and its gradient too, but for a quotient that is an ulp
                // off, times 1 / sqrt(epsilon) = 316: compare absolutely there.
                if shape[2] == 1 && *what == "to x" {
                    assert!(actual.iter().all(|g| g.abs() < 1e-4), "{name} {shape:?}: {actual:?}");
                } else if shape[2] > 1 || *what == "to beta" || *what == "y" {
                    assert_close(&format!("{name} {shape:?}: {what}"), actual, expected, SINGLE);
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "3 channels, 2 scales and 3 shifts")]
fn channels_must_agree() {
    let ones = |n| Tensor::<1>::ones([n], &Device::flex());
    layer_norm(Tensor::<2>::ones([4, 3], &Device::flex()), ones(2), ones(3), EPSILON);
}
