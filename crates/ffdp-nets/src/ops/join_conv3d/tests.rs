//! Against the composition of the two operations, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::ops::{conv3d, upsample_x2_join};
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// The same products in the same order but for blocks of channels, summed in f64 on the CPU or
/// in f32 over at most 27 * 19 products on a GPU.
const SINGLE: f64 = 5e-6;
/// Linear in each input: central differences are exact but for rounding.
const FINITE_DIFFERENCES: f64 = 1e-8;

/// (x, channels of the skip, outputs): TransMorph's last level, odd sizes, several samples.
const CASES: [([usize; 5], usize, usize); 3] =
    [([1, 3, 4, 5, 9], 16, 16), ([2, 2, 1, 3, 2], 1, 3), ([1, 5, 2, 2, 17], 7, 1)];

type Case = ([usize; 5], usize, usize);

fn inputs(([n, c, d, h, w], s, o): Case) -> [Vec<f64>; 4] {
    let voxels = 8 * d * h * w;
    let sizes = [n * c * d * h * w, n * s * voxels, o * (c + s) * 27, n * o * voxels];
    [0, 1, 2, 3].map(|i| normal(sizes[i], i as u64 + 1))
}

/// The result, and the gradients of `sum y r` to x, skip and weight.
fn evaluate(
    op: impl Fn(Tensor<5>, Tensor<5>, Tensor<5>) -> Tensor<5>,
    ([n, c, d, h, w], s, o): Case,
    [x, skip, weight, r]: [&[f64]; 4],
    device: &Device,
    dtype: DType,
) -> [Vec<f64>; 4] {
    let device = device.clone().autodiff();
    let doubled = |channels| [n, channels, 2 * d, 2 * h, 2 * w];
    let input = |values: &[f64], shape| -> Tensor<5> {
        tensor(values, shape, &device, dtype).require_grad()
    };
    let x = input(x, [n, c, d, h, w]);
    let skip = input(skip, doubled(s));
    let weight = input(weight, [o, c + s, 3, 3, 3]);
    let r: Tensor<5> = tensor(r, doubled(o), &device, dtype);
    let y = op(x.clone(), skip.clone(), weight.clone());
    assert_eq!(y.dims(), doubled(o));
    let gradients = (y.clone() * r).backward();
    let to = |input: &Tensor<5>| to_f64(input.grad(&gradients).expect("every input is tracked"));
    [to_f64(y.inner()), to(&x), to(&skip), to(&weight)]
}

fn joined(x: Tensor<5>, skip: Tensor<5>, weight: Tensor<5>) -> Tensor<5> {
    join_conv3d(x, skip, weight, Precision::Single)
}

fn two_operations(x: Tensor<5>, skip: Tensor<5>, weight: Tensor<5>) -> Tensor<5> {
    conv3d(upsample_x2_join(x, skip), weight, PADDING)
}

#[test]
fn it_is_the_two_operations() {
    for case in CASES {
        let values = inputs(case);
        let inputs = values.each_ref().map(Vec::as_slice);
        for (dtype, tolerance) in [(DType::F32, SINGLE), (DType::F64, 1e-13)] {
            let actual = evaluate(joined, case, inputs, &Device::flex(), dtype);
            let expected = evaluate(two_operations, case, inputs, &Device::flex(), dtype);
            for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                assert_close(&format!("{case:?} {dtype:?}: {i}"), actual, expected, tolerance);
            }
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let case = ([2, 2, 1, 2, 1], 1, 2);
    let [x, skip, weight, r] = inputs(case);
    let checks = gradcheck(&["x", "skip", "weight"], &[x, skip, weight], 1e-2, |inputs| {
        let all = [&inputs[0][..], &inputs[1], &inputs[2], &r];
        let [y, gradients @ ..] = evaluate(joined, case, all, &Device::flex(), DType::F64);
        (y.iter().zip(&r).map(|(y, r)| y * r).sum(), gradients.to_vec())
    });
    for check in checks {
        assert!(check.error < FINITE_DIFFERENCES, "{check:?}");
    }
}

#[test]
fn inputs_without_gradient_are_left_alone() {
    let device = Device::flex().autodiff();
    let x = Tensor::<5>::ones([1, 2, 2, 2, 2], &device);
    let skip = Tensor::<5>::ones([1, 3, 4, 4, 4], &device);
    let weight = Tensor::<5>::ones([1, 5, 3, 3, 3], &device);
    let tracked = skip.clone().require_grad();
    let gradients = joined(x.clone(), tracked.clone(), weight.clone()).backward();
    assert!(x.grad(&gradients).is_none() && weight.grad(&gradients).is_none());
    let to_skip = to_f64(tracked.grad(&gradients).expect("it is tracked"));
    // A corner is seen by 2^3 outputs, an inner voxel by 3^3.
    assert_eq!((to_skip[0], to_skip[16 + 4 + 1]), (8.0, 27.0));
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for case in CASES {
            let values = inputs(case);
            let inputs = values.each_ref().map(Vec::as_slice);
            let expected = evaluate(joined, case, inputs, &Device::flex(), DType::F64);
            let actual = evaluate(joined, case, inputs, &device, DType::F32);
            for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                assert_close(&format!("{name} {case:?}: {i}"), actual, expected, SINGLE);
            }
        }
    }
}

#[test]
#[should_panic(expected = "for 4 channels does not fit 3^3 and 2 + 3")]
fn the_weight_must_fit() {
    let device = Device::flex();
    let ones = |shape: [usize; 5]| Tensor::<5>::ones(shape, &device);
    joined(ones([1, 2, 1, 1, 1]), ones([1, 3, 2, 2, 2]), ones([1, 4, 3, 3, 3]));
}
