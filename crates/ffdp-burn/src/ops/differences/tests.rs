//! Order of convergence, transposes, anisotropic voxels, gradients, and GPU against CPU.

use std::f64::consts::TAU;

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, field, gpu_devices, normal, tensor, to_f64};

/// Sums of 24 products in f64.
const F64_ROUNDING: f64 = 1e-13;
/// The same in f32.
const GPU: f64 = 1e-6;

const VOXEL: [f64; 3] = [0.8, 1.5, 2.0];
/// Axes shorter than the reach of the differences too.
const SIZES: [[usize; 3]; 6] =
    [[9, 10, 11], [4, 5, 3], [1, 2, 8], [1, 1, 1], [17, 3, 40], [70, 9, 33]];

fn random([d, h, w]: [usize; 3], channels: usize, device: &Device, dtype: DType) -> Tensor<5> {
    tensor(&normal(2 * channels * d * h * w, 5), [2, channels, d, h, w], device, dtype)
}

/// The largest error of the gradient of `exp(sin x)` on the circle, by `n` voxels along each axis.
fn error(n: usize) -> f64 {
    let h = TAU / n as f64;
    let value = |x: f64| (h * x).sin().exp();
    let image = field([n; 3], |[x, y, z]| [value(x) + value(y) + value(z), 0.0, 0.0]);
    let slope = |x: f64| (h * x).cos() * value(x);
    let expected = to_f64(field([n; 3], |p| p.map(slope)));
    let actual = to_f64(periodic_gradient(image.narrow(1, 0, 1), [h; 3]));
    actual.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn the_order_of_the_differences_is_eight() {
    let slope = (error(32) / error(48)).ln() / 1.5f64.ln();
    assert!((slope - 8.0).abs() < 0.3, "{slope}");
}

#[test]
fn divergence_is_minus_the_transpose_of_the_gradient() {
    for size in SIZES {
        let m = random(size, 1, &Device::flex(), DType::F64);
        let v = random(size, 3, &Device::flex(), DType::F64);
        let left = to_f64((periodic_gradient(m.clone(), VOXEL) * v.clone()).sum())[0];
        let right = -to_f64((m * periodic_divergence(v, VOXEL)).sum())[0];
        assert!((left - right).abs() < 1e-10, "{size:?}: {left} {right}");
    }
}

#[test]
fn divergence_adds_the_slopes_of_the_components() {
    let v = random([5, 6, 7], 3, &Device::flex(), DType::F64);
    let part = |a: usize| periodic_gradient(v.clone().narrow(1, a, 1), VOXEL).narrow(1, a, 1);
    let expected = to_f64(part(0) + part(1) + part(2));
    assert_close("div", &to_f64(periodic_divergence(v.clone(), VOXEL)), &expected, F64_ROUNDING);
}

#[test]
fn gradients_on_the_tape_are_transposes() {
    let device = Device::flex().autodiff();
    let m = random([5, 6, 7], 1, &device, DType::F64).require_grad();
    let v = random([5, 6, 7], 3, &device, DType::F64).require_grad();
    let sum = (periodic_gradient(m.clone(), VOXEL) * v.clone().detach()).sum()
        + (periodic_divergence(v.clone(), VOXEL) * m.clone().detach()).sum();
    let gradients = sum.backward();
    let of_m = to_f64(m.grad(&gradients).expect("tracked"));
    let of_v = to_f64(v.grad(&gradients).expect("tracked"));
    let (m, v) = (m.inner(), v.inner());
    assert_close("m", &of_m, &to_f64(periodic_divergence(v, VOXEL).neg()), F64_ROUNDING);
    assert_close("v", &of_v, &to_f64(periodic_gradient(m, VOXEL).neg()), F64_ROUNDING);
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for size in SIZES {
            let of = |device: &Device, dtype| {
                let gradient = periodic_gradient(random(size, 1, device, dtype), VOXEL);
                let divergence = periodic_divergence(random(size, 3, device, dtype), VOXEL);
                [to_f64(gradient), to_f64(divergence)]
            };
            let (actual, expected) = (of(&device, DType::F32), of(&Device::flex(), DType::F64));
            for (actual, expected) in actual.iter().zip(&expected) {
                assert_close(&format!("{name} {size:?}"), actual, expected, GPU);
            }
        }
    }
}
