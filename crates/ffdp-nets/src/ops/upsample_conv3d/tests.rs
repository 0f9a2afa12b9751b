//! Against the two operations, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device};

use super::*;
use crate::ops::{conv3d, upsample_x2};
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};
use ffdp_parallel::parts::narrow;

/// The same products in the same order, summed in f32 over at most 27 * 5.
const SINGLE: f64 = 5e-6;
/// Linear in each input: central differences are exact but for rounding.
const FINITE_DIFFERENCES: f64 = 1e-8;

/// (x, outputs, dimension, planes of the result); of some, all channels are upsampled at once, of others not.
type Case = ([usize; 5], usize, usize, Range<usize>);

fn cases() -> [Case; 5] {
    [
        ([1, 3, 4, 5, 9], 4, 2, 0..8),
        ([1, 3, 4, 5, 9], 4, 2, 2..7),
        ([2, 5, 3, 4, 2], 3, 3, 0..5),
        ([1, 2, 3, 2, 6], 1, 4, 7..12),
        ([1, 1, 2, 2, 2], 2, 4, 1..2),
    ]
}

fn inputs(([n, c, d, h, w], o, _, _): &Case) -> [Vec<f64>; 3] {
    let sizes = [n * c * d * h * w, o * c * 27, n * o * 8 * d * h * w];
    [0, 1, 2].map(|i| normal(sizes[i], i as u64 + 1))
}

/// The result, and the gradients of `sum y r` to x and weight.
fn evaluate(
    op: impl Fn(Tensor<5>, Tensor<5>) -> Tensor<5>,
    (shape, o, dim, planes): &Case,
    [x, weight, r]: [&[f64]; 3],
    device: &Device,
    dtype: DType,
) -> [Vec<f64>; 3] {
    let device = device.clone().autodiff();
    let [n, c, d, h, w] = *shape;
    let x: Tensor<5> = tensor(x, *shape, &device, dtype).require_grad();
    let weight: Tensor<5> = tensor(weight, [*o, c, 3, 3, 3], &device, dtype).require_grad();
    let r: Tensor<5> = tensor(r, [n, *o, 2 * d, 2 * h, 2 * w], &device, dtype);
    let r = narrow(r, *dim, planes.clone());
    let y = op(x.clone(), weight.clone());
    assert_eq!(y.dims(), r.dims());
    let gradients = (y.clone() * r).backward();
    let grad = |tensor: &Tensor<5>| to_f64(tensor.grad(&gradients).expect("it is tracked"));
    [to_f64(y.inner()), grad(&x), grad(&weight)]
}

fn fused((_, _, dim, planes): &Case) -> impl Fn(Tensor<5>, Tensor<5>) -> Tensor<5> + use<> {
    let (dim, planes) = (*dim, planes.clone());
    move |x, weight| upsample_conv3d(x, weight, dim, planes.clone(), Precision::Single)
}

fn two_operations(
    (_, _, dim, planes): &Case,
) -> impl Fn(Tensor<5>, Tensor<5>) -> Tensor<5> + use<> {
    let (dim, planes) = (*dim, planes.clone());
    move |x, weight| narrow(conv3d(upsample_x2(x), weight, PADDING), dim, planes.clone())
}

#[test]
fn it_is_the_two_operations() {
    for case in cases() {
        let values = inputs(&case);
        let inputs = values.each_ref().map(Vec::as_slice);
        for (dtype, tolerance) in [(DType::F32, SINGLE), (DType::F64, 1e-13)] {
            let actual = evaluate(fused(&case), &case, inputs, &Device::flex(), dtype);
            let expected = evaluate(two_operations(&case), &case, inputs, &Device::flex(), dtype);
            for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                assert_close(&format!("{case:?} {dtype:?}: {i}"), actual, expected, tolerance);
            }
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let case: Case = ([2, 2, 2, 2, 1], 2, 2, 1..4);
    let [x, weight, r] = inputs(&case);
    let checks = gradcheck(&["x", "weight"], &[x, weight], 1e-2, |inputs| {
        let all = [&inputs[0][..], &inputs[1], &r];
        let [y, gradients @ ..] = evaluate(fused(&case), &case, all, &Device::flex(), DType::F64);
        let weights = narrow(tensor(&r, [2, 2, 4, 4, 2], &Device::flex(), DType::F64), 2, 1..4);
        (y.iter().zip(to_f64(weights)).map(|(y, r)| y * r).sum(), gradients.to_vec())
    });
    for check in checks {
        assert!(check.error < FINITE_DIFFERENCES, "{check:?}");
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for case in cases() {
            let values = inputs(&case);
            let inputs = values.each_ref().map(Vec::as_slice);
            let expected = evaluate(fused(&case), &case, inputs, &Device::flex(), DType::F64);
            let actual = evaluate(fused(&case), &case, inputs, &device, DType::F32);
            for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                assert_close(&format!("{name} {case:?}: {i}"), actual, expected, SINGLE);
            }
        }
    }
}

#[test]
#[should_panic(expected = "planes 3..9 along dimension 2")]
fn planes_must_be_there() {
    let ones = |shape: [usize; 5]| Tensor::<5>::ones(shape, &Device::flex());
    upsample_conv3d(ones([1, 2, 4, 2, 2]), ones([1, 2, 3, 3, 3]), 2, 3..9, Precision::Single);
}
