//! Against the definition, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// Central differences with steps of 1e-4 in f64; errors of third order.
const FINITE_DIFFERENCES: f64 = 1e-6;
/// Both factors off by at most 2^-11 each, in random directions over the products of a sum; the
/// largest sum is several deviations.
const ROUNDED_FACTORS: f64 = 1e-3;
/// Sums of up to 6720 products in f32, in slices of 256 or more: relative to their largest 7e-7 at most through Vulkan
/// on Mesa. The error function of GELU may add what [`ACTIVATED`] describes.
const SINGLE: f64 = 3e-6;
/// The error function of a GPU may be a polynomial of error 1.5e-7; sums of f32.
const ACTIVATED: f64 = 3e-6;

/// Rows, inputs, outputs: those of the smallest network, one, more than a tile, slices.
const CASES: [[usize; 3]; 6] =
    [[1, 1, 1], [210, 6, 18], [64, 24, 6], [130, 96, 288], [37, 17, 70], [6720, 33, 20]];

/// y and the gradients of x, weight and bias.
fn evaluate(
    [x, weight, bias, r]: [&[f64]; 4],
    [rows, inputs, outputs]: [usize; 3],
    (activation, precision): (Activation, Precision),
    device: &Device,
    dtype: DType,
) -> [Vec<f64>; 4] {
    let device = device.clone().autodiff();
    let x: Tensor<3> = tensor(x, [1, rows, inputs], &device, dtype).require_grad();
    let weight: Tensor<2> = tensor(weight, [inputs, outputs], &device, dtype).require_grad();
    let bias: Tensor<1> = tensor(bias, [outputs], &device, dtype).require_grad();
    let y = linear(x.clone(), weight.clone(), Some(bias.clone()), activation, precision);
    let r: Tensor<3> = tensor(r, [1, rows, outputs], &device, dtype);
    let gradients = (y.clone() * r).backward();
    [
        to_f64(y.inner()),
        to_f64(x.grad(&gradients).expect("x wants a gradient")),
        to_f64(weight.grad(&gradients).expect("the weight wants a gradient")),
        to_f64(bias.grad(&gradients).expect("the bias wants a gradient")),
    ]
}

fn inputs([rows, inputs, outputs]: [usize; 3]) -> [Vec<f64>; 4] {
    let scale = 1.0 / (inputs as f64).sqrt();
    let weight = normal(inputs * outputs, 2).iter().map(|w| w * scale).collect();
    [normal(rows * inputs, 1), weight, normal(outputs, 3), normal(rows * outputs, 4)]
}

#[test]
fn sums_are_those_of_the_definition() {
    let case = [5, 3, 4];
    let [x, weight, bias, r] = inputs(case);
    let expected: Vec<f64> = (0..20)
        .map(|i| {
            let products = (0..3).map(|k| x[i / 4 * 3 + k] * weight[k * 4 + i % 4]);
            bias[i % 4] + products.sum::<f64>()
        })
        .collect();
    let given = [&*x, &weight, &bias, &r];
    let [y, ..] = evaluate(
        given,
        case,
        (Activation::Identity, Precision::Single),
        &Device::flex(),
        DType::F64,
    );
    assert_close("identity", &y, &expected, 1e-14);
    let device = Device::flex();
    let expected: Tensor<1> = tensor(&expected, [20], &device, DType::F64);
    let expected = to_f64(burn::tensor::activation::gelu(expected));
    let [y, ..] = evaluate(given, case, (Activation::Gelu, Precision::Single), &device, DType::F64);
    assert_close("GELU", &y, &expected, 1e-14);
}

#[test]
fn gradients_agree_with_finite_differences() {
    for activation in [Activation::Identity, Activation::Gelu] {
        let case = [4, 3, 5];
        let [x, weight, bias, r] = inputs(case);
        let names = ["x", "weight", "bias"];
        let checks = gradcheck(&names, &[x, weight, bias], 1e-4, |inputs| {
            let given = [&*inputs[0], &inputs[1], &inputs[2], &r];
            let [y, to_x, to_weight, to_bias] =
                evaluate(given, case, (activation, Precision::Single), &Device::flex(), DType::F64);
            (y.iter().zip(&r).map(|(y, r)| y * r).sum(), vec![to_x, to_weight, to_bias])
        });
        for check in checks {
            assert!(check.error < FINITE_DIFFERENCES, "{activation:?}: {check:?}");
        }
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    let kinds = [
        (Activation::Identity, Precision::TensorFloat, ROUNDED_FACTORS),
        (Activation::Identity, Precision::Single, SINGLE),
        (Activation::Gelu, Precision::Single, SINGLE),
    ];
    for (name, device) in gpu_devices() {
        for (case, (activation, precision, tolerance)) in
            CASES.into_iter().flat_map(|case| kinds.map(|kind| (case, kind)))
        {
            // Without tensor cores these are Burn's products, which it chooses anew for every size.
            if name == "wgpu" && precision == Precision::TensorFloat && case != CASES[1] {
                continue;
            }
            let [x, weight, bias, r] = inputs(case);
            let given = [&*x, &weight, &bias, &r];
            let how = (activation, precision);
            let expected = evaluate(given, case, how, &Device::flex(), DType::F64);
            let actual = evaluate(given, case, how, &device, DType::F32);
            let what = ["y", "to x", "to weight", "to bias"];
            for (what, (actual, expected)) in what.iter().zip(actual.iter().zip(&expected)) {
                let label = format!("{name} {case:?} {how:?}: {what}");
                assert_close(&label, actual, expected, tolerance);
            }
        }
    }
}

#[test]
fn a_gpu_activates_as_a_cpu() {
    // Products with 1 are exact in any precision: only bias and activation are left.
    for (name, device) in gpu_devices() {
        for activation in [Activation::Identity, Activation::Gelu] {
            let case = [301, 1, 40];
            let [mut x, mut weight, bias, r] = inputs(case);
            x.fill(1.0);
            weight.iter_mut().for_each(|w| *w = (*w * 64.0).round() / 64.0);
            let given = [&*x, &weight, &bias, &r];
            let how = (activation, Precision::TensorFloat);
            let expected = evaluate(given, case, how, &Device::flex(), DType::F64);
            let actual = evaluate(given, case, how, &device, DType::F32);
            assert_close(&format!("{name}: y"), &actual[0], &expected[0], ACTIVATED);
            assert_close(&format!("{name}: to bias"), &actual[3], &expected[3], ACTIVATED);
        }
    }
}

#[test]
#[should_panic(expected = "x has 3 channels, the weight expects 2")]
fn channels_must_agree() {
    let ones = |shape| Tensor::<2>::ones(shape, &Device::flex());
    linear(ones([4, 3]), ones([2, 5]), None, Activation::Identity, Precision::Single);
}
