//! Against sums in f64, where terms cancel as well, and the gradient against Burn's own sum.

use burn::tensor::{DType, Device};

use super::*;
use ffdp_kit::testing::{gpu_devices, normal, tensor, to_f64};

/// One vector and more a unit, one cube and more, parts that are no whole vectors.
const SHAPES: [[usize; 5]; 4] =
    [[1, 1, 1, 1, 3], [2, 3, 7, 9, 11], [3, 2, 4, 8, 16], [1, 3, 60, 64, 65]];
/// Of the sum of sizes: each unit's sum is compensated, eight additions of a tree and those of lanes are not.
const F32: f64 = 2e-7;
const F64: f64 = 1e-15;

#[test]
fn sums_are_those_of_f64() {
    let on = |dtype: DType, tolerance: f64| (Device::flex(), dtype, tolerance);
    let gpus = gpu_devices().into_iter().map(|(_, device)| (device, DType::F32, F32));
    for (device, dtype, tolerance) in
        [on(DType::F64, F64), on(DType::F32, F32)].into_iter().chain(gpus)
    {
        for shape in SHAPES {
            let values: Vec<f64> = normal(shape.iter().product(), 1)
                .into_iter()
                .map(|value| f64::from(value as f32))
                .collect();
            let x = || tensor(&values, shape, &device, dtype);
            let found = [
                to_f64(sum_of_all(x())),
                to_f64(sum_of_fields(x())),
                to_f64(sum_of_channels(x()).reshape([shape[0] * shape[1]])),
            ];
            for (found, parts) in found.iter().zip([1, shape[0], shape[0] * shape[1]]) {
                assert_eq!(found.len(), parts);
                for (found, part) in found.iter().zip(values.chunks(values.len() / parts)) {
                    let size: f64 = part.iter().map(|value| value.abs()).sum();
                    let error = (found - part.iter().sum::<f64>()).abs() / size;
                    assert!(error < tolerance, "{device:?} {dtype:?} {shape:?}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn the_gradient_is_that_of_burns_sum() {
    let shape = [2, 3, 4, 5, 6];
    let devices = gpu_devices().into_iter().map(|(_, device)| device);
    for device in std::iter::once(Device::flex()).chain(devices) {
        let device = device.autodiff();
        let values = normal(shape.iter().product(), 2);
        let gradient = |loss: &dyn Fn(Tensor<5>) -> Tensor<1>| {
            let x = tensor(&values, shape, &device, DType::F32).require_grad();
            to_f64(x.grad(&loss(x.clone()).backward()).expect("it is tracked"))
        };
        let ours = gradient(&|x| {
            let sums = sum_of_channels(x);
            sum_of_all(sums.clone() * sums)
        });
        let burns = gradient(&|x| {
            let sums = x.sum_dim(4).sum_dim(3).sum_dim(2);
            (sums.clone() * sums).sum()
        });
        for (ours, burns) in ours.iter().zip(&burns) {
            // Sums of 120 normal numbers, in f32.
            assert!((ours - burns).abs() < 1e-5, "{device:?}: {ours} {burns}");
        }
    }
}

#[test]
fn halves_are_summed_in_f32() {
    let x = tensor(&[1e4; 600], [1, 1, 6, 10, 10], &Device::flex(), DType::F32).cast(DType::BF16);
    let sum = sum_of_all(x);
    // Far above what f16 holds, in one of 256 steps of bf16.
    assert_eq!(sum.dtype(), DType::F32);
    assert!((to_f64(sum)[0] / 6e6 - 1.0).abs() < 1.0 / 256.0);
}
