//! Against sums in f64, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device};

use super::*;
use ffdp_kit::testing::{
    FIELD_SHAPES, assert_close, gpu_devices, gradcheck, normal, tensor, to_f64, value_and_gradient,
};

const POSITIONS: [[f64; 4]; 3] =
    [[0.9, -0.1, 0.2, -5.0], [0.3, 1.1, 0.0, 2.5], [-0.2, 0.05, 0.8, 11.0]];
const VECTORS: [[f64; 3]; 3] = [[0.5, -1.5, 0.25], [2.0, 0.0, -0.75], [0.1, 0.2, -3.0]];

/// Seven products in f32 of positions of some tens of voxels, relative to the largest.
const F32: f64 = 1e-6;
const F64: f64 = 1e-14;
/// Of a linear map, whatever the step.
const FINITE_DIFFERENCES: f64 = 1e-8;

fn vectors(shape: [usize; 5]) -> Vec<f64> {
    normal(shape.iter().product(), 3)
}

fn expected(values: &[f64], [n, _, d, h, w]: [usize; 5]) -> Vec<f64> {
    let len = d * h * w;
    let mut expected = Vec::with_capacity(values.len());
    for (n, c) in (0..n).flat_map(|n| (0..3).map(move |c| (n, c))) {
        expected.extend((0..len).map(|p| {
            let at = [p % w, p / w % h, p / (w * h)].map(|index| index as f64);
            let u = [0, 1, 2].map(|c| values[(3 * n + c) * len + p]);
            let straight: f64 = (0..3).map(|a| POSITIONS[c][a] * at[a]).sum();
            straight + POSITIONS[c][3] + (0..3).map(|a| VECTORS[c][a] * u[a]).sum::<f64>()
        }));
    }
    expected
}

#[test]
fn fields_are_those_of_f64() {
    let gpus = gpu_devices().into_iter().map(|(_, device)| (device, DType::F32, F32));
    let cpu = [(Device::flex(), DType::F64, F64), (Device::flex(), DType::F32, F32)];
    for (device, dtype, tolerance) in cpu.into_iter().chain(gpus) {
        for shape in FIELD_SHAPES.into_iter().chain([[2, 3, 1, 5, 37]]) {
            let values = vectors(shape);
            let field = tensor(&values, shape, &device, dtype);
            let label = format!("affine_field {device:?} {dtype:?} {shape:?}");
            let found = to_f64(affine_field(&POSITIONS, &VECTORS, field));
            assert_close(&label, &found, &expected(&values, shape), tolerance);
        }
    }
}

#[test]
fn views_are_read_as_what_they_show() {
    let shape = [1, 3, 4, 5, 6];
    let values = vectors(shape);
    for device in [Device::flex()].into_iter().chain(gpu_devices().into_iter().map(|(_, d)| d)) {
        let field = tensor(&values, shape, &device, DType::F32);
        let flipped = field.clone().swap_dims(2, 4);
        let dense = Tensor::from_data(flipped.clone().into_data(), (&device, DType::F32));
        let [a, b] =
            [flipped, dense].map(|field| to_f64(affine_field(&POSITIONS, &VECTORS, field)));
        assert_eq!(a, b);
    }
}

#[test]
fn gradient_is_that_of_finite_differences() {
    let shape = [1, 3, 3, 4, 5];
    let weights = normal(shape.iter().product(), 8);
    let loss = |field: Tensor<5>| {
        let weights = tensor(&weights, shape, &field.device(), field.dtype());
        (affine_field(&POSITIONS, &VECTORS, field) * weights).sum()
    };
    let cpu = Device::flex();
    let checks = gradcheck(&["affine_field"], &[vectors(shape)], 1e-2, |inputs| {
        let (loss, gradient) = value_and_gradient(&inputs[0], shape, &cpu, DType::F64, loss);
        (loss, vec![gradient])
    });
    for check in checks {
        assert!(check.error < FINITE_DIFFERENCES, "{check:?}");
    }
}

#[test]
#[should_panic(expected = "the field must be [N, 3, D, H, W]")]
fn other_fields_are_refused() {
    let _ = affine_field(&POSITIONS, &VECTORS, Tensor::zeros([1, 2, 3, 3, 3], &Device::flex()));
}
