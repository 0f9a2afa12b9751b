//! Against the formula composed of Burn's operations, finite differences, and GPU against CPU.

use burn::tensor::activation::softmax;
use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// Steps of 1e-4 in f64 on scores of order 1.
const FINITE_DIFFERENCES: f64 = 1e-6;
/// f32 sums of up to 70 products, exponentials of scores of a few units, relative to the largest.
const SINGLE: f64 = 5e-6;
/// Composed of Burn's products, whose factors are rounded to TF32 on tensor cores: 2^-11 each, a few of
/// them one behind the other.
const COMPOSED: f64 = 3e-3;

/// Windows, windows a sample, tokens, heads, channels of a head.
#[derive(Clone, Copy, Debug)]
struct Case([usize; 5]);

/// Tokens around multiples of 4 and 32, channels odd and even, one window and several samples.
const CASES: [Case; 6] = [
    Case([1, 1, 1, 1, 1]),
    Case([4, 2, 5, 2, 3]),
    Case([3, 1, 32, 1, 4]),
    Case([2, 2, 35, 3, 5]),
    Case([6, 3, 8, 2, 6]),
    Case([2, 1, 70, 2, 7]),
];

impl Case {
    /// qkv, bias, regions, and what the result is multiplied by.
    fn inputs(self) -> [Vec<f64>; 4] {
        let Self([all, windows, t, heads, c]) = self;
        let regions = (0..windows * t).map(|i| (i / 3 % (1 + i / t)) as f64).collect();
        let result = all * t * heads * c;
        [normal(3 * result, 1), normal(heads * t * t, 2), regions, normal(result, 3)]
    }

    fn tensors(
        self,
        [qkv, bias, regions, r]: [&[f64]; 4],
        device: &Device,
        dtype: DType,
    ) -> (Tensor<3>, Tensor<3>, Tensor<2>, Tensor<3>) {
        let Self([all, windows, t, heads, c]) = self;
        (
            tensor(qkv, [all, t, 3 * heads * c], device, dtype).require_grad(),
            tensor(bias, [heads, t, t], device, dtype).require_grad(),
            tensor(regions, [windows, t], device, dtype),
            tensor(r, [all, t, heads * c], device, dtype),
        )
    }
}

/// The formula, with Burn's autodiff behind it.
fn composed(case: Case, qkv: Tensor<3>, bias: Tensor<3>, regions: Tensor<2>) -> Tensor<3> {
    let Case([all, windows, t, heads, c]) = case;
    let parts = qkv.reshape([all, t, 3, heads, c]).permute([2, 0, 3, 1, 4]);
    let part = |i: usize| parts.clone().slice_dim(0, i..i + 1).squeeze_dim::<4>(0);
    // A tensor, since Burn's scalars are f32.
    let scale: Tensor<4> = tensor(&[(c as f64).powf(-0.5)], [1; 4], &bias.device(), bias.dtype());
    let scores = part(0).matmul(part(1).transpose()) * scale + bias.unsqueeze();
    let rows = regions.clone().reshape([1, windows, 1, t, 1]).expand([1, windows, 1, t, t]);
    let columns = regions.reshape([1, windows, 1, 1, t]).expand([1, windows, 1, t, t]);
    let apart = rows.not_equal(columns).float() * 100.0;
    let scores = scores.reshape([all / windows, windows, heads, t, t]);
    let scores = scores.clone() - apart.cast(scores.dtype());
    let y = softmax(scores.reshape([all, heads, t, t]), 3).matmul(part(2));
    y.swap_dims(1, 2).reshape([all, t, heads * c])
}

/// The result and the gradients of `sum y r` to qkv and bias.
fn evaluate(
    case: Case,
    inputs: [&[f64]; 4],
    device: &Device,
    dtype: DType,
    attention: impl Fn(Tensor<3>, Tensor<3>, Tensor<2>) -> Tensor<3>,
) -> [Vec<f64>; 3] {
    let (qkv, bias, regions, r) = case.tensors(inputs, &device.clone().autodiff(), dtype);
    let y = attention(qkv.clone(), bias.clone(), regions);
    let gradients = (y.clone() * r).backward();
    let to = |input: &Tensor<3>| to_f64(input.grad(&gradients).expect("both are tracked"));
    [to_f64(y.inner()), to(&qkv), to(&bias)]
}

fn compare(label: &str, actual: [Vec<f64>; 3], expected: &[Vec<f64>; 3], tolerance: f64) {
    for (name, (actual, expected)) in
        ["y", "to qkv", "to bias"].iter().zip(actual.iter().zip(expected))
    {
        assert_close(&format!("{label}: {name}"), actual, expected, tolerance);
    }
}

#[test]
fn values_and_gradients_are_those_of_the_formula() {
    for case in CASES {
        let inputs = case.inputs();
        let inputs = inputs.each_ref().map(|values| &**values);
        let formula = |qkv, bias, regions| composed(case, qkv, bias, regions);
        let expected = evaluate(case, inputs, &Device::flex(), DType::F64, formula);
        for (dtype, tolerance) in [(DType::F32, SINGLE), (DType::F64, 1e-12)] {
            let actual = evaluate(case, inputs, &Device::flex(), dtype, window_attention);
            compare(&format!("{case:?} {dtype:?}"), actual, &expected, tolerance);
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let case = Case([4, 2, 5, 2, 3]);
    let [qkv, bias, regions, r] = case.inputs();
    let checks = gradcheck(&["qkv", "bias"], &[qkv, bias], 1e-4, |inputs| {
        let inputs = [&*inputs[0], &inputs[1], &regions, &r];
        let [y, to_qkv, to_bias] =
            evaluate(case, inputs, &Device::flex(), DType::F64, window_attention);
        (y.iter().zip(&r).map(|(y, r)| y * r).sum(), vec![to_qkv, to_bias])
    });
    for check in checks {
        assert!(check.error < FINITE_DIFFERENCES, "{check:?}");
    }
}

#[test]
fn equal_keys_are_averaged() {
    // All scores are equal: each query gets the mean of the values of its region.
    let device = Device::flex();
    let mut values = vec![0f32; 4 * 3];
    (0..4).for_each(|token| values[3 * token + 2] = token as f32);
    let qkv = Tensor::<1>::from_floats(values.as_slice(), &device).reshape([1, 4, 3]);
    let regions = Tensor::from_floats([[0.0, 0.0, 1.0, 1.0]], &device);
    let y = window_attention(qkv, Tensor::zeros([1, 4, 4], &device), regions);
    let y: Vec<f32> = y.into_data().try_to_vec().unwrap();
    assert_eq!(y, [0.5, 0.5, 2.5, 2.5]);
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for case in CASES {
            let inputs = case.inputs();
            let inputs = inputs.each_ref().map(|values| &**values);
            let expected = evaluate(case, inputs, &Device::flex(), DType::F64, window_attention);
            let actual = evaluate(case, inputs, &device, DType::F32, window_attention);
            compare(&format!("{name} {case:?}"), actual, &expected, SINGLE);
        }
    }
}

#[test]
fn windows_that_do_not_fit_are_composed() {
    // 520 tokens need more columns than a unit has.
    let case = Case([2, 1, 520, 1, 2]);
    let inputs = case.inputs();
    let inputs = inputs.each_ref().map(|values| &**values);
    let expected = evaluate(case, inputs, &Device::flex(), DType::F64, window_attention);
    for (name, device) in gpu_devices() {
        let actual = evaluate(case, inputs, &device, DType::F32, window_attention);
        compare(&format!("{name} {case:?}"), actual, &expected, COMPOSED);
    }
}

#[test]
#[should_panic(expected = "windows of 4 tokens, bias 4x5, regions of 4")]
fn the_bias_must_fit() {
    let device = Device::flex();
    let qkv = Tensor::zeros([1, 4, 3], &device);
    window_attention(qkv, Tensor::zeros([1, 4, 5], &device), Tensor::zeros([1, 4], &device));
}
