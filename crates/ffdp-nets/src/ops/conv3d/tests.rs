//! Against the definition in f64, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// The loss is linear in each input: central differences are exact but for rounding.
const FINITE_DIFFERENCES: f64 = 1e-8;
/// f32 sums of up to 1000 products, relative to the largest.
const SINGLE: f64 = 2e-6;
/// The same sums in another order.
const GPU: f64 = 2e-6;

/// (x, outputs, kernel, padding): odd and unit sizes, rows around multiples of 16 voxels, channels
/// around multiples of a block, valid and padded borders, several samples.
const CASES: [([usize; 5], usize, usize, [usize; 3]); 9] = [
    ([1, 1, 3, 3, 3], 1, 3, [1, 1, 1]),
    ([2, 3, 4, 5, 16], 5, 3, [1, 1, 1]),
    ([1, 2, 5, 4, 17], 9, 3, [1, 1, 1]),
    ([1, 5, 3, 6, 33], 3, 3, [0, 1, 1]),
    ([2, 2, 5, 4, 18], 16, 3, [0, 0, 0]),
    ([1, 3, 1, 1, 1], 17, 3, [1, 1, 1]),
    ([1, 2, 2, 3, 4], 2, 3, [2, 2, 2]),
    ([1, 2, 4, 4, 6], 3, 1, [0, 0, 0]),
    ([1, 2, 5, 6, 7], 3, 5, [2, 2, 2]),
];

/// Tensor cores cut, and do not round, what they add: an ulp of the running sum a product of eight.
const TENSOR_SUMS: f64 = 2e-5;
/// Both factors off by at most 2^-11 each, in random directions over hundreds of products; the
/// largest sum is several deviations.
const ROUNDED_FACTORS: f64 = 1e-3;

struct ValueAndGradients {
    value: Vec<f64>,
    to_x: Vec<f64>,
    to_weight: Vec<f64>,
}

/// Values and the gradients of `sum y r` for fixed random `r`, term by term.
fn by_definition(
    (shape, o, k, padding): ([usize; 5], usize, usize, [usize; 3]),
    [x, weight, r]: [&[f64]; 3],
) -> ValueAndGradients {
    let [n, c, d, h, w] = shape;
    let [od, oh, ow]: [usize; 3] = std::array::from_fn(|a| [d, h, w][a] + 2 * padding[a] + 1 - k);
    let mut value = vec![0.0; n * o * od * oh * ow];
    let (mut to_x, mut to_weight) = (vec![0.0; x.len()], vec![0.0; weight.len()]);
    for out in 0..value.len() {
        let (sample, output) = (out / (o * od * oh * ow), out / (od * oh * ow) % o);
        let at = [out / (oh * ow) % od, out / ow % oh, out % ow];
        for term in 0..c * k * k * k {
            let tap = [term / (k * k) % k, term / k % k, term % k];
            // Below zero wraps around, and so lies outside too.
            let [z, y, x0]: [usize; 3] =
                std::array::from_fn(|a| (at[a] + tap[a]).wrapping_sub(padding[a]));
            if z < d && y < h && x0 < w {
                let from = (((sample * c + term / (k * k * k)) * d + z) * h + y) * w + x0;
                let by = output * c * k * k * k + term;
                value[out] += weight[by] * x[from];
                to_x[from] += weight[by] * r[out];
                to_weight[by] += x[from] * r[out];
            }
        }
    }
    ValueAndGradients { value, to_x, to_weight }
}

fn evaluate(
    (shape, o, k, padding): ([usize; 5], usize, usize, [usize; 3]),
    [x, weight, r]: [&[f64]; 3],
    device: &Device,
    dtype: DType,
    precision: Precision,
) -> ValueAndGradients {
    let device = device.clone().autodiff();
    let x: Tensor<5> = tensor(x, shape, &device, dtype).require_grad();
    let weight: Tensor<5> = tensor(weight, [o, shape[1], k, k, k], &device, dtype).require_grad();
    let y = conv3d_with(x.clone(), weight.clone(), padding, precision);
    let r: Tensor<5> = tensor(r, y.dims(), &device, dtype);
    let gradients = (y.clone() * r).backward();
    ValueAndGradients {
        value: to_f64(y.inner()),
        to_x: to_f64(x.grad(&gradients).expect("x wants a gradient")),
        to_weight: to_f64(weight.grad(&gradients).expect("the weight wants a gradient")),
    }
}

fn inputs((shape, o, k, padding): ([usize; 5], usize, usize, [usize; 3])) -> [Vec<f64>; 3] {
    let out: usize = (0..3).map(|a| shape[a + 2] + 2 * padding[a] + 1 - k).product();
    let x = normal(shape.iter().product(), 1);
    [x, normal(o * shape[1] * k.pow(3), 2), normal(shape[0] * o * out, 3)]
}

fn compare(label: &str, actual: &ValueAndGradients, expected: &ValueAndGradients, tolerance: f64) {
    assert_close(&format!("{label}: value"), &actual.value, &expected.value, tolerance);
    assert_close(&format!("{label}: to x"), &actual.to_x, &expected.to_x, tolerance);
    let (actual, expected) = (&actual.to_weight, &expected.to_weight);
    assert_close(&format!("{label}: to weight"), actual, expected, tolerance);
}

#[test]
fn values_and_gradients_are_those_of_the_definition() {
    for case in CASES {
        let [x, weight, r] = inputs(case);
        let expected = by_definition(case, [&x, &weight, &r]);
        for (dtype, tolerance) in [(DType::F32, SINGLE), (DType::F64, 1e-13)] {
            let actual =
                evaluate(case, [&x, &weight, &r], &Device::flex(), dtype, Precision::Single);
            compare(&format!("{case:?} {dtype:?}"), &actual, &expected, tolerance);
        }
    }
}

#[test]
fn every_instruction_set_agrees() {
    let case @ (shape, o, ..) = ([1, 3, 4, 5, 21], 11, 3, [1, 1, 1]);
    let [x, weight, r] = inputs(case);
    let expected = by_definition(case, [&x, &weight, &r]);
    let single = |v: &[f64]| v.iter().map(|&v| v as f32).collect::<Vec<f32>>();
    let (x, weight, r) = (single(&x), single(&weight), single(&r));
    let x = ffdp_kit::real::tensor(x, shape);
    let weight = ffdp_kit::real::tensor(weight, [o, 3, 3, 3, 3]);
    let r = ffdp_kit::real::tensor(r, [1, o, 4, 5, 21]);
    let sets = flex::available();
    println!("{} instruction sets", sets.len());
    for (name, kernels) in sets {
        let wide = |t| ffdp_kit::real::elements::<f32>(&t).iter().map(|&v| v as f64).collect();
        let value: Vec<f64> = wide(flex::forward(&kernels, &x, &weight, [1; 3]));
        let to_weight: Vec<f64> = wide(flex::to_weight(&kernels, &x, &weight, &r, [1; 3]));
        assert_close(name, &value, &expected.value, SINGLE);
        assert_close(name, &to_weight, &expected.to_weight, SINGLE);
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let case = ([1, 2, 3, 4, 2], 2, 3, [1, 0, 1]);
    let [x, weight, r] = inputs(case);
    let checks = gradcheck(&["x", "weight"], &[x, weight], 1e-2, |inputs| {
        let inputs = [&*inputs[0], &inputs[1], &r];
        let outcome = evaluate(case, inputs, &Device::flex(), DType::F64, Precision::Single);
        let loss = outcome.value.iter().zip(&r).map(|(y, r)| y * r).sum();
        (loss, vec![outcome.to_x, outcome.to_weight])
    });
    for check in checks {
        assert!(check.error < FINITE_DIFFERENCES, "{check:?}");
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for case in CASES {
            let [x, weight, r] = inputs(case);
            let expected = by_definition(case, [&x, &weight, &r]);
            let actual = evaluate(case, [&x, &weight, &r], &device, DType::F32, Precision::Single);
            compare(&format!("{name} {case:?}"), &actual, &expected, GPU);
        }
    }
}

/// Cases around the tiles of the tensor-core kernels: 8 inputs, 16 outputs, 4 x 8 x 16 voxels.
const TENSOR_CASES: [([usize; 5], usize, [usize; 3]); 5] = [
    ([2, 9, 5, 9, 17], 17, [1, 1, 1]),
    ([1, 16, 8, 8, 32], 16, [1, 1, 1]),
    ([1, 3, 6, 4, 5], 35, [0, 1, 2]),
    ([1, 40, 2, 3, 4], 6, [2, 2, 2]),
    ([1, 8, 13, 20, 40], 3, [1, 1, 1]),
];

#[test]
fn tensor_cores_sum_exact_products_as_others_do() {
    // Numbers of 8 bits are TF32 already: nothing is rounded but the sums.
    let short = |values: &Vec<f64>| -> Vec<f64> {
        values.iter().map(|v| (v * 32.0).clamp(-127.0, 127.0).round() / 32.0).collect()
    };
    for (name, device) in gpu_devices() {
        for (shape, o, padding) in TENSOR_CASES {
            let case = (shape, o, 3, padding);
            let [x, weight, r] = inputs(case).each_ref().map(short);
            let expected = by_definition(case, [&x, &weight, &r]);
            let inputs = [&*x, &weight, &r];
            let actual = evaluate(case, inputs, &device, DType::F32, Precision::TensorFloat);
            compare(&format!("{name} {case:?}"), &actual, &expected, TENSOR_SUMS);
        }
    }
}

#[test]
fn tensor_cores_round_factors_only() {
    for (name, device) in gpu_devices() {
        for (shape, o, padding) in TENSOR_CASES {
            let case = (shape, o, 3, padding);
            let [x, weight, r] = inputs(case);
            let expected = by_definition(case, [&x, &weight, &r]);
            let inputs = [&*x, &weight, &r];
            let actual = evaluate(case, inputs, &device, DType::F32, Precision::TensorFloat);
            compare(&format!("{name} {case:?}"), &actual, &expected, ROUNDED_FACTORS);
        }
    }
}

#[test]
#[should_panic(expected = "x has 3 channels, the weight expects 2")]
fn channels_must_agree() {
    let device = Device::flex();
    conv3d(Tensor::ones([1, 3, 4, 4, 4], &device), Tensor::ones([1, 2, 3, 3, 3], &device), [1; 3]);
}

#[test]
#[should_panic(expected = "does not suit a kernel of 3^3 on 2x4x4 voxels")]
fn the_kernel_must_fit() {
    let device = Device::flex();
    let weight = Tensor::ones([1, 1, 3, 3, 3], &device);
    conv3d(Tensor::ones([1, 1, 2, 4, 4], &device), weight, [0, 1, 1]);
}
