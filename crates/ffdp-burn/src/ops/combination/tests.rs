//! Against sums in f64.

use burn::tensor::{DType, Device};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, normal, tensor, to_f64};

/// A dozen products and sums in f32, relative to the largest entry.
const F32: f64 = 1e-6;
const F64: f64 = 1e-14;

#[test]
fn sums_are_those_of_f64() {
    let gpus = gpu_devices().into_iter().map(|(_, device)| (device, DType::F32, F32));
    let cpu = [(Device::flex(), DType::F64, F64), (Device::flex(), DType::F32, F32)];
    for (device, dtype, tolerance) in cpu.into_iter().chain(gpus) {
        for shape in [[1, 3, 7, 9, 11], [2, 3, 4, 8, 16]] {
            let len = shape.iter().product();
            for count in [1, 2, 5, 6, 7, 13] {
                let values: Vec<Vec<f64>> = (0..count).map(|k| normal(len, k)).collect();
                let factors: Vec<f64> =
                    (0..count).map(|k| [1.0, -0.3, 0.0, 2.5][k as usize % 4]).collect();
                let sum = |p: usize| values.iter().zip(&factors).map(|(x, a)| a * x[p]).sum();
                let expected: Vec<f64> = (0..len).map(sum).collect();
                let fields: Vec<Tensor<5>> =
                    values.iter().map(|x| tensor(x, shape, &device, dtype)).collect();
                let terms: Vec<_> = factors.iter().copied().zip(&fields).collect();
                let label = format!("{device:?} {dtype:?} {shape:?} {count}");
                assert_close(&label, &to_f64(combination(&terms)), &expected, tolerance);
            }
        }
    }
}

#[test]
fn what_has_no_factor_is_not_looked_at() {
    let of = |value: f64| tensor(&[value; 4], [1, 1, 1, 2, 2], &Device::flex(), DType::F32);
    let (bad, good) = (of(f64::NAN), of(2.0));
    assert_eq!(to_f64(combination(&[(0.0, &bad), (3.0, &good)])), [6.0; 4]);
    assert_eq!(to_f64(combination(&[(0.0, &good)])), [0.0; 4]);
}
