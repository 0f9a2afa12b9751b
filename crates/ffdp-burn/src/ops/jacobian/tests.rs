//! Exact fields, the metrics on the host, the baseline, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::baseline;
use ffdp_image::metrics::{Difference, jacobian_determinants};
use ffdp_kit::testing::{
    FIELD_SHAPES, assert_close, field, gpu_devices, gradcheck, normal, tensor, to_f64,
    value_and_gradient,
};

/// A polynomial of degree three, between the kinks of the penalty.
const FINITE_DIFFERENCES: f64 = 1e-7;
/// The same f64 sums in another order.
const F64_ROUNDING: f64 = 1e-12;
/// Products of three sums of f32 differences, which cancel.
const GPU: f64 = 5e-6;
const MARGIN: f64 = 0.4;

/// Rough enough to fold here and there.
fn random(shape: [usize; 5]) -> Vec<f64> {
    normal(shape.iter().product(), 5).iter().map(|u| 0.7 * u).collect()
}

/// Determinants weighted voxel by voxel.
fn weighted(dets: Tensor<5>) -> Tensor<1> {
    let shape = dets.dims();
    let weights = normal(shape.iter().product(), 6);
    let weights = tensor(&weights, shape, &dets.device(), dets.dtype());
    (dets * weights).sum()
}

type Op = fn(Tensor<5>) -> Tensor<1>;

/// Each op with its counterpart of tensor operations.
const OPS: [(&str, Op, Op); 2] = [
    ("jacobian", |u| weighted(jacobian(u)), |u| weighted(baseline::jacobian(u))),
    (
        "jacobian penalty",
        |u| jacobian_penalty(u, MARGIN).mul_scalar(-3.0),
        |u| baseline::jacobian_penalty(u, MARGIN).mul_scalar(-3.0),
    ),
];

/// `u = (A - 1) p`.
fn affine(matrix: [[f64; 3]; 3], size: [usize; 3]) -> Tensor<5> {
    field(size, |p| [0, 1, 2].map(|c| (0..3).map(|a| matrix[c][a] * p[a]).sum::<f64>() - p[c]))
}

#[test]
fn affine_fields_have_the_determinant_of_their_matrix() {
    let matrix = [[1.2, 0.1, 0.0], [-0.2, 0.9, 0.3], [0.05, 0.0, 1.1]];
    let dets = jacobian(affine(matrix, [3, 4, 5]));
    assert_eq!(dets.dims(), [1, 1, 3, 4, 5]);
    assert_close("affine", &to_f64(dets), &[1.2115; 60], F64_ROUNDING);
    // A reflection folds everywhere: by 1 below 0.
    let reflection = affine([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [3, 4, 5]);
    assert_close("fold", &to_f64(jacobian_penalty(reflection, 0.0)), &[1.0], F64_ROUNDING);
    // An axis of one voxel does not deform.
    let flat = affine([[1.5, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 2.0]], [4, 1, 5]);
    assert_close("flat", &to_f64(jacobian(flat)), &[3.0; 20], F64_ROUNDING);
}

#[test]
fn maps_that_do_not_fold_cost_nothing() {
    let growing = affine([[1.5, 0.0, 0.0], [0.0, 1.5, 0.0], [0.0, 0.0, 1.5]], [3, 3, 3]);
    let (growing, cpu) = (to_f64(growing), Device::flex());
    let (value, gradient) =
        value_and_gradient(&growing, [1, 3, 3, 3, 3], &cpu, DType::F64, OPS[1].1);
    assert_eq!((value.abs(), gradient), (0.0, vec![0.0; 81]));
}

#[test]
fn determinants_are_those_of_the_metrics() {
    // The metrics round to f32.
    const F32_ROUNDING: f64 = 1e-6;
    for [n, _, d, h, w] in FIELD_SHAPES {
        for n in 0..n as u64 {
            let u: Vec<f32> = normal(3 * d * h * w, n).iter().map(|u| *u as f32).collect();
            let wide: Vec<f64> = u.iter().map(|u| f64::from(*u)).collect();
            let field = tensor(&wide, [1, 3, d, h, w], &Device::flex(), DType::F64);
            let expected = jacobian_determinants(&u, [w, h, d], Difference::Central);
            let expected: Vec<f64> =
                expected.expect("sizes match").into_iter().map(f64::from).collect();
            assert_close("metrics", &to_f64(jacobian(field)), &expected, F32_ROUNDING);
        }
    }
}

#[test]
fn values_and_gradients_are_those_of_tensor_operations() {
    let cpu = Device::flex();
    // Of a single voxel the baseline makes a constant, which has no gradient to compare. The last
    // shape is deeper than two tasks of the CPU.
    let shapes = FIELD_SHAPES.into_iter().filter(|shape| shape[2..] != [1, 1, 1]);
    for shape in shapes.chain([[1, 3, 35, 3, 4]]) {
        for (name, fused, by_tensors) in OPS {
            let u = random(shape);
            let (expected, gradient) = value_and_gradient(&u, shape, &cpu, DType::F64, by_tensors);
            let (actual, other) = value_and_gradient(&u, shape, &cpu, DType::F64, fused);
            let label = format!("{name} {shape:?}");
            let value = assert_close(&label, &[actual], &[expected], F64_ROUNDING);
            let slope = assert_close(&label, &other, &gradient, F64_ROUNDING);
            println!("{label} agrees with the baseline: value {value:.1e} gradient {slope:.1e}");
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    for shape in FIELD_SHAPES {
        for (name, op, _) in OPS {
            // Small against the distance of the determinants from the margin.
            let checks = gradcheck(&[name], &[random(shape)], 1e-4, |inputs| {
                let (loss, gradient) =
                    value_and_gradient(&inputs[0], shape, &Device::flex(), DType::F64, op);
                (loss, vec![gradient])
            });
            for check in checks {
                assert!(check.error < FINITE_DIFFERENCES, "{shape:?}: {check:?}");
            }
        }
    }
}

#[test]
fn descending_the_penalty_unfolds() {
    let shape = [1, 3, 6, 6, 6];
    let mut u = random(shape);
    let penalty: Op = |u| jacobian_penalty(u, 0.1);
    let cpu = Device::flex();
    let (before, _) = value_and_gradient(&u, shape, &cpu, DType::F64, penalty);
    for _ in 0..200 {
        let (_, gradient) = value_and_gradient(&u, shape, &cpu, DType::F64, penalty);
        u.iter_mut().zip(gradient).for_each(|(u, g)| *u -= 5.0 * g);
    }
    let (after, _) = value_and_gradient(&u, shape, &cpu, DType::F64, penalty);
    assert!(before > 0.05 && after < 0.01 * before, "{before} {after}");
}

#[test]
fn gpu_agrees_with_cpu() {
    for (device_name, device) in gpu_devices() {
        // Several tiles along each axis, and several marches along z.
        let large = [[2, 3, 37, 13, 35], [1, 3, 33, 48, 40], [1, 3, 9, 21, 131]];
        for shape in FIELD_SHAPES.into_iter().chain(large) {
            for (name, op, _) in OPS {
                let u = random(shape);
                let (expected, gradient) =
                    value_and_gradient(&u, shape, &Device::flex(), DType::F64, op);
                let (actual, other) = value_and_gradient(&u, shape, &device, DType::F32, op);
                let label = format!("{name} {device_name} {shape:?}");
                // A signed sum may cancel to nothing; its terms are compared below.
                let value = (actual - expected).abs() / expected.abs().max(1.0);
                assert!(value < GPU, "{label}: {actual} instead of {expected}");
                let slope = assert_close(&label, &other, &gradient, GPU);
                println!("{label}: value {value:.1e} gradient {slope:.1e}");
            }
            let u = tensor(&random(shape), shape, &device, DType::F32);
            let dets = to_f64(jacobian(u.clone()));
            let exact = tensor(&random(shape), shape, &Device::flex(), DType::F64);
            assert_close("determinants", &dets, &to_f64(jacobian(exact)), GPU);
            let stored = u.permute([4, 3, 2, 1, 0]).into_data();
            let strided = Tensor::<5>::from_data(stored, &device).permute([4, 3, 2, 1, 0]);
            assert_eq!(to_f64(jacobian(strided)), dets, "{device_name} {shape:?} strided");
        }
    }
}
