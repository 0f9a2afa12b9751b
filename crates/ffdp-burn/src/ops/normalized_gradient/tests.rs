//! Exact cases, invariance to contrast, voxel sizes, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// Smooth: Richardson differences with step 1e-3.
const FINITE_DIFFERENCES: f64 = 1e-8;
/// A dozen roundings in f32.
const GPU: f64 = 2e-6;

const VOXEL: [f64; 3] = [0.8, 1.5, 2.0];
const SHAPES: [[usize; 5]; 6] = [
    [1, 1, 4, 5, 3],
    [2, 1, 3, 2, 4],
    [1, 1, 1, 1, 1],
    [1, 1, 1, 6, 1],
    [1, 1, 2, 2, 2],
    [1, 1, 9, 10, 70],
];

fn cpu(values: &[f64], shape: [usize; 5]) -> Tensor<5> {
    tensor(values, shape, &Device::flex(), DType::F64)
}

#[test]
fn a_plane_has_its_normal_everywhere() {
    let shape = [1, 1, 4, 5, 6];
    let slope = [2.0, -3.0, 0.5];
    let value = |p: usize| {
        let at = [p % 6, p / 6 % 5, p / 30];
        (0..3).map(|a| slope[a] * VOXEL[a] * at[a] as f64).sum::<f64>()
    };
    let image: Vec<f64> = (0..120).map(value).collect();
    let eta = 0.7;
    let length = (slope.iter().map(|s: &f64| s * s).sum::<f64>() + eta * eta).sqrt();
    let expected: Vec<f64> = slope.iter().flat_map(|s| [s / length; 120]).collect();
    let actual = to_f64(normalized_gradient(cpu(&image, shape), VOXEL, eta));
    assert_close("plane", &actual, &expected, 1e-12);
}

#[test]
fn contrast_changes_the_sign_at_most() {
    let shape = [1, 1, 4, 5, 6];
    let image = normal(120, 1);
    let expected = to_f64(normalized_gradient(cpu(&image, shape), VOXEL, 0.1));
    for factor in [-1.0, 4.0] {
        let other: Vec<f64> = image.iter().map(|value| factor * value + 3.0).collect();
        // The edge parameter is in units of intensity.
        let eta = 0.1 * factor.abs();
        let actual = to_f64(normalized_gradient(cpu(&other, shape), VOXEL, eta));
        let expected: Vec<f64> = expected.iter().map(|n| n * factor.signum()).collect();
        assert_close(&format!("{factor}"), &actual, &expected, 1e-12);
    }
}

#[test]
fn an_axis_of_one_voxel_and_a_constant_have_no_slope() {
    let image = cpu(&[1.0, 2.0, 4.0], [1, 1, 1, 1, 3]);
    let actual = to_f64(normalized_gradient(image, [1.0; 3], 1e-3));
    assert!(actual[..3].iter().all(|n| *n > 0.99) && actual[3..] == [0.0; 6], "{actual:?}");
    let flat = cpu(&[0.3; 8], [1, 1, 2, 2, 2]);
    assert_eq!(to_f64(normalized_gradient(flat, VOXEL, 0.1)), [0.0; 24]);
}

fn evaluate(
    image: &[f64],
    shape: [usize; 5],
    (device, dtype): (&Device, DType),
) -> (f64, Vec<f64>, Vec<f64>) {
    let device = device.clone().autodiff();
    let image: Tensor<5> = tensor(image, shape, &device, dtype).require_grad();
    let normals = normalized_gradient(image.clone(), VOXEL, 0.4);
    let upstream = normal(normals.shape().num_elements(), 9);
    let upstream = tensor::<5>(&upstream, normals.dims(), &device, dtype);
    let loss = (normals.clone() * upstream).sum();
    let gradients = loss.backward();
    let gradient = to_f64(image.grad(&gradients).expect("it is tracked"));
    (to_f64(loss.inner())[0], to_f64(normals.inner()), gradient)
}

#[test]
fn gradients_agree_with_finite_differences() {
    for shape in &SHAPES[..5] {
        let image = normal(shape.iter().product(), 2);
        let checks = gradcheck(&["image"], &[image], 1e-3, |inputs| {
            let (loss, _, to) = evaluate(&inputs[0], *shape, (&Device::flex(), DType::F64));
            (loss, vec![to])
        });
        for check in checks {
            assert!(check.error < FINITE_DIFFERENCES, "{shape:?}: {check:?}");
        }
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for shape in SHAPES {
            let image = normal(shape.iter().product(), 3);
            let (_, expected, to) = evaluate(&image, shape, (&Device::flex(), DType::F64));
            let (_, actual, other) = evaluate(&image, shape, (&device, DType::F32));
            let label = format!("{name} {shape:?}");
            let value = assert_close(&label, &actual, &expected, GPU);
            let gradient = assert_close(&label, &other, &to, GPU);
            println!("normalized_gradient {label}: value {value:.1e} gradient {gradient:.1e}");
        }
    }
}
