//! Exact fields, the baseline, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::baseline;
use ffdp_kit::testing::{
    FIELD_SHAPES, assert_close, field, gpu_devices, gradcheck, normal, tensor, to_f64,
    value_and_gradient,
};

/// Quadratic, or smooth over a step: rounding divided by the step.
const FINITE_DIFFERENCES: f64 = 1e-8;
/// The same f64 sums in another order.
const F64_ROUNDING: f64 = 1e-12;
/// f32 sums of up to 1e5 positive terms in trees; a gradient is a dozen roundings of differences,
/// with signs.
const GPU: f64 = 2e-6;
const EPSILON: f64 = 0.5;

type Energy = fn(Tensor<5>) -> Tensor<1>;

/// Each energy with its counterpart of tensor operations.
const ENERGIES: [(&str, Energy, Energy); 3] = [
    ("diffusion", diffusion, baseline::diffusion),
    ("bending energy", bending_energy, baseline::bending_energy),
    ("total variation", |u| total_variation(u, EPSILON), |u| baseline::total_variation(u, EPSILON)),
];

/// The energy, scaled so that the chain rule is seen, and its gradient.
fn evaluate(u: &[f64], shape: [usize; 5], on: (&Device, DType), energy: Energy) -> (f64, Vec<f64>) {
    value_and_gradient(u, shape, on.0, on.1, |u| energy(u).mul_scalar(-3.0))
}

fn random(shape: [usize; 5]) -> Vec<f64> {
    normal(shape.iter().product(), 3)
}

fn close(actual: Tensor<1>, expected: f64) {
    assert_close("exact", &to_f64(actual), &[expected], F64_ROUNDING);
}

#[test]
fn translations_are_smooth_and_affine_fields_do_not_bend() {
    let shifted = field([3, 4, 5], |_| [1.5, -2.0, 0.25]);
    for (name, energy, _) in ENERGIES {
        assert_eq!(to_f64(energy(shifted.clone())), [0.0], "{name}");
    }
    let affine = field([3, 4, 5], |[x, y, z]| [0.5 * x + 0.25 * z, -0.75 * y, x - z]);
    assert_eq!(to_f64(bending_energy(affine)), [0.0]);
}

#[test]
fn linear_fields_have_the_mean_square_of_their_slopes() {
    let u = field([4, 5, 6], |[x, y, z]| [0.5 * x + 0.2 * z, -0.3 * y, 1.0]);
    close(diffusion(u), (0.25 + 0.04 + 0.09) / 9.0);
    close(diffusion(field([1, 1, 5], |[x, ..]| [2.0 * x; 3])), 4.0 / 3.0);
}

#[test]
fn quadratic_fields_have_their_second_derivatives() {
    // u_x = x^2 + 3 x y: u_xx = 2, u_xy = 3; u_z = z^2 / 2 - y z: u_zz = 1, u_yz = -1.
    let u = field([4, 5, 6], |[x, y, z]| [x * x + 3.0 * x * y, x, 0.5 * z * z - y * z]);
    close(bending_energy(u), (4.0 + 2.0 * 9.0 + 1.0 + 2.0) / 3.0);
}

#[test]
fn total_variation_is_the_length_of_a_step_not_its_square() {
    // One step of height s across the middle of x; a quarter of the voxels see it.
    let step = |s: f64| field([2, 3, 4], |[x, ..]| [0.0, if x > 1.5 { s } else { 0.0 }, 0.0]);
    for height in [1.0, 10.0] {
        let expected = ((height * height + 1e-6f64).sqrt() - 1e-3) / 4.0;
        close(total_variation(step(height), 1e-3), expected);
    }
    // All axes and components count in one length: slopes 3 and 4 make 5.
    let u = field([1, 2, 2], |[x, y, _]| [3.0 * x, 4.0 * y, 0.0]);
    let e = 1e-3f64;
    let length = |s: f64| (s * s + e * e).sqrt() - e;
    close(total_variation(u, e), (length(5.0) + length(3.0) + length(4.0)) / 4.0);
}

#[test]
fn axes_may_be_exchanged() {
    // Voxel axes and components turned together: (x, y, z) -> (z, x, y).
    let shape = [1, 3, 4, 3, 5];
    let u = tensor(&random(shape), shape, &Device::flex(), DType::F64);
    let turned = u.clone().permute([0, 1, 4, 2, 3]).flip([1]);
    for (name, energy, _) in ENERGIES {
        let (a, b) = (to_f64(energy(u.clone())), to_f64(energy(turned.clone())));
        assert_close(name, &a, &b, F64_ROUNDING);
    }
}

#[test]
fn values_and_gradients_are_those_of_tensor_operations() {
    let cpu = (&Device::flex(), DType::F64);
    // Of a single voxel the baseline makes a constant, which has no gradient to compare.
    for shape in FIELD_SHAPES.into_iter().filter(|shape| shape[2..] != [1, 1, 1]) {
        for (name, fused, by_tensors) in ENERGIES {
            let u = random(shape);
            let (expected, gradient) = evaluate(&u, shape, cpu, by_tensors);
            let (actual, other) = evaluate(&u, shape, cpu, fused);
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
        for (name, energy, _) in ENERGIES {
            let checks = gradcheck(&[name], &[random(shape)], 1e-2, |inputs| {
                let cpu = (&Device::flex(), DType::F64);
                let (loss, gradient) = evaluate(&inputs[0], shape, cpu, energy);
                (loss, vec![gradient])
            });
            for check in checks {
                assert!(check.error < FINITE_DIFFERENCES, "{shape:?}: {check:?}");
            }
        }
    }
}

#[test]
fn strided_fields_give_the_same_result() {
    let mut devices = gpu_devices();
    devices.push(("cpu", Device::flex()));
    for (device_name, device) in devices {
        let u = tensor(&normal(180, 4), [1, 3, 3, 4, 5], &device, DType::F32);
        let stored = u.clone().permute([4, 3, 2, 1, 0]).into_data();
        let strided = Tensor::<5>::from_data(stored, &device).permute([4, 3, 2, 1, 0]);
        for (name, energy, _) in ENERGIES {
            let (a, b) = (to_f64(energy(strided.clone())), to_f64(energy(u.clone())));
            assert_eq!(a, b, "{name} {device_name}");
        }
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (device_name, device) in gpu_devices() {
        // Several tiles along each axis, and several marches along z.
        let large = [[2, 3, 37, 13, 35], [1, 3, 33, 48, 40], [1, 3, 9, 21, 131]];
        for shape in FIELD_SHAPES.into_iter().chain(large) {
            for (name, energy, _) in ENERGIES {
                let u = random(shape);
                let cpu = (&Device::flex(), DType::F64);
                let (expected, gradient) = evaluate(&u, shape, cpu, energy);
                let (actual, other) = evaluate(&u, shape, (&device, DType::F32), energy);
                let label = format!("{name} {device_name} {shape:?}");
                let value = assert_close(&label, &[actual], &[expected], GPU);
                let slope = assert_close(&label, &other, &gradient, GPU);
                println!("{label}: value {value:.1e} gradient {slope:.1e}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "epsilon must be positive")]
fn total_variation_without_epsilon_is_refused() {
    total_variation(Tensor::zeros([1, 3, 2, 2, 2], &Device::flex()), 0.0);
}
