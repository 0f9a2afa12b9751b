//! Polynomials, levels, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::ops::{bending_energy, bspline, subdivide};
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// Sums of some hundred products in f64, of terms that partly cancel.
const F64_ROUNDING: f64 = 1e-11;
/// The energy is quadratic, so differences over any step are exact but for rounding divided by the step.
const FINITE_DIFFERENCES: f64 = 1e-8;
/// Three passes of seven products in f32, where neighbours nearly cancel.
const GPU: f64 = 5e-6;

const VOXEL_MM: [f64; 3] = [0.8, 1.5, 2.0];

fn coefficients(
    [d, h, w]: [usize; 3],
    grid: &ControlGrid,
    value: impl Fn([f64; 3]) -> [f64; 3],
) -> Tensor<5> {
    let count = d * h * w;
    let mut data = vec![0.0; 3 * count];
    for point in 0..count {
        let index = [point % w, point / w % h, point / w / h];
        let at = |a: usize| grid.origin_voxels[a] + index[a] as f64 * grid.spacing_voxels[a];
        let u = value([0, 1, 2].map(at));
        (0..3).for_each(|c| data[c * count + point] = u[c]);
    }
    tensor(&data, [1, 3, d, h, w], &Device::flex(), DType::F64)
}

#[test]
fn affine_fields_do_not_bend() {
    let (grid, controls) = ControlGrid::covering([9, 10, 14], [3.0, 2.5, 4.0]);
    let phi = coefficients(controls, &grid, |[x, y, z]| [x - 0.3 * y, 2.0 * z + 1.0, 0.4 * x]);
    let energy = to_f64(bspline_bending(phi, &grid, VOXEL_MM))[0];
    assert!(energy.abs() < 1e-12, "{energy}");
}

#[test]
fn quadratic_fields_have_their_second_derivatives() {
    let (grid, controls) = ControlGrid::covering([9, 10, 14], [3.0, 2.5, 4.0]);
    // The spline of x^2 has the coefficients x^2 - s^2 / 3: the constant does not bend.
    let phi = coefficients(controls, &grid, |[x, y, z]| [x * x + 3.0 * x * y, 0.0, y * z]);
    // u_x in mm is 0.8 (x^2 + 3 x y); by mm: 0.8 2 / 0.8^2 and 0.8 3 / (0.8 1.5); u_z: 2 / (1.5 2).
    let [xx, xy, yz] = [2.0 / 0.8, 2.0, 2.0 / 3.0];
    let expected = (xx * xx + 2.0 * xy * xy + 2.0 * yz * yz) / 3.0;
    let energy = to_f64(bspline_bending(phi, &grid, VOXEL_MM))[0];
    assert_close("quadratic", &[energy], &[expected], F64_ROUNDING);
}

#[test]
fn the_energy_is_the_same_on_every_level() {
    for size in [[9, 10, 14], [1, 12, 17]] {
        let (grid, controls) = ControlGrid::covering(size, [3.0, 2.5, 4.0]);
        let [d, h, w] = controls;
        let phi = tensor(&normal(3 * d * h * w, 3), [1, 3, d, h, w], &Device::flex(), DType::F64);
        let coarse = to_f64(bspline_bending(phi.clone(), &grid, VOXEL_MM))[0];
        let (fine, fine_grid) = subdivide(phi, &grid, [2, 3, 2]);
        let energy = to_f64(bspline_bending(fine, &fine_grid, VOXEL_MM))[0];
        assert_close("subdivided", &[energy], &[coarse], F64_ROUNDING);
    }
}

#[test]
fn it_is_the_energy_of_the_dense_field() {
    // Control points 12 voxels apart: differences of voxels are nearly derivatives.
    let size = [49, 49, 49];
    let (grid, [d, h, w]) = ControlGrid::covering(size, [12.0; 3]);
    let phi = tensor(&normal(3 * d * h * w, 4), [1, 3, d, h, w], &Device::flex(), DType::F64);
    let dense = to_f64(bending_energy(bspline(phi.clone(), &grid, size)))[0];
    let energy = to_f64(bspline_bending(phi, &grid, [1.0; 3]))[0];
    // Differences over a voxel miss some h^2 / 12 of the fourth derivative, and half a cell of border.
    assert!((energy / dense - 1.0).abs() < 0.03, "{energy} {dense}");
}

fn evaluate(phi: &[f64], shape: [usize; 5], on: (&Device, DType)) -> (f64, Vec<f64>) {
    let grid = ControlGrid {
        spacing_voxels: [3.0, 2.0, 2.5],
        origin_voxels: [0.0; 3],
        beyond: Default::default(),
    };
    let phi = tensor::<5>(phi, shape, &on.0.clone().autodiff(), on.1).require_grad();
    let energy = bspline_bending(phi.clone(), &grid, VOXEL_MM).mul_scalar(-3.0);
    let gradients = energy.backward();
    let gradient = to_f64(phi.grad(&gradients).expect("it was tracked"));
    (to_f64(energy.inner())[0], gradient)
}

const SHAPES: [[usize; 5]; 3] = [[1, 3, 4, 5, 6], [2, 3, 1, 4, 7], [1, 3, 6, 1, 1]];

#[test]
fn gradients_agree_with_finite_differences() {
    for shape in SHAPES {
        let phi = normal(shape.iter().product(), 5);
        let checks = gradcheck(&["coefficients"], &[phi], 1.0, |inputs| {
            let (loss, gradient) = evaluate(&inputs[0], shape, (&Device::flex(), DType::F64));
            (loss, vec![gradient])
        });
        assert!(checks[0].error < FINITE_DIFFERENCES, "{shape:?} {checks:?}");
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for shape in SHAPES.into_iter().chain([[1, 3, 17, 20, 33]]) {
            let phi = normal(shape.iter().product(), 6);
            let (expected, gradient) = evaluate(&phi, shape, (&Device::flex(), DType::F64));
            let (actual, other) = evaluate(&phi, shape, (&device, DType::F32));
            assert_close(&format!("{name} {shape:?} value"), &[actual], &[expected], GPU);
            assert_close(&format!("{name} {shape:?} gradient"), &other, &gradient, GPU);
        }
    }
}
