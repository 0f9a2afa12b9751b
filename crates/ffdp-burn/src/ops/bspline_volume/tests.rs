//! Known volumes, folds, levels, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::ops::{Beyond, subdivide};
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64};

/// Products of three numbers and a logarithm in f64.
const F64_ROUNDING: f64 = 1e-12;
/// Smooth over a step of 1e-3 for determinants well above the least one: rounding divided by the step.
const FINITE_DIFFERENCES: f64 = 1e-8;
/// A determinant in f32 is rounded to some 1e-7 where it is about 1, and so is its logarithm, which is
/// itself about 0.1.
const GPU: f64 = 1e-5;

const VOXEL_MM: [f64; 3] = [0.8, 1.5, 2.0];

fn grid(size: [usize; 3]) -> (ControlGrid, [usize; 5]) {
    let (grid, [d, h, w]) = ControlGrid::covering(size, [3.0, 2.5, 4.0]);
    (grid, [1, 3, d, h, w])
}

/// A stretch along the axes, in mm per mm, by its coefficients.
fn stretch(factors: [f64; 3], grid: &ControlGrid, shape: [usize; 5]) -> Tensor<5> {
    let [_, _, d, h, w] = shape;
    let count = d * h * w;
    let value = |element: usize| {
        let (c, point) = (element / count, element % count);
        let index = [point % w, point / w % h, point / w / h][c];
        (factors[c] - 1.0) * (grid.origin_voxels[c] + index as f64 * grid.spacing_voxels[c])
    };
    let data: Vec<f64> = (0..3 * count).map(value).collect();
    tensor(&data, shape, &Device::flex(), DType::F64)
}

fn penalty(coefficients: Tensor<5>, grid: &ControlGrid) -> f64 {
    to_f64(bspline_volume(coefficients, grid, VOXEL_MM, LEAST_DETERMINANT))[0]
}

#[test]
fn stretches_have_the_square_of_the_log_of_their_volume() {
    let (grid, shape) = grid([9, 10, 14]);
    for factors in [[1.0; 3], [1.2, 0.9, 1.5], [1.0 / 1.2, 1.0 / 0.9, 1.0 / 1.5]] {
        let expected = factors.iter().product::<f64>().ln().powi(2);
        let actual = penalty(stretch(factors, &grid, shape), &grid);
        assert!((actual - expected).abs() < F64_ROUNDING, "{factors:?}: {actual} {expected}");
    }
}

#[test]
fn folds_are_worse_than_any_shrinkage_and_pushed_back() {
    let (grid, shape) = grid([9, 10, 14]);
    let of = |factor: f64| penalty(stretch([factor, 1.0, 1.0], &grid, shape), &grid);
    // At the guard both branches meet; below it every step down costs the same.
    assert_close("guard", &[of(0.01)], &[0.01f64.ln().powi(2)], 1e-9);
    let slope = 2.0 * 0.01f64.ln() / 0.01;
    for factor in [0.0, -0.5, -2.0] {
        let expected = 0.01f64.ln().powi(2) + slope * (factor - 0.01);
        assert_close(&format!("{factor}"), &[of(factor)], &[expected], 1e-9);
    }
}

#[test]
fn planes_change_their_area() {
    let (grid, shape) = grid([1, 10, 14]);
    let expected = (1.2f64 * 0.9).ln().powi(2);
    let actual = penalty(stretch([1.2, 0.9, 3.0], &grid, shape), &grid);
    assert!((actual - expected).abs() < F64_ROUNDING, "{actual} {expected}");
}

#[test]
fn the_penalty_is_nearly_the_same_on_every_level() {
    let (grid, shape) = grid([13, 16, 21]);
    let values: Vec<f64> = normal(shape.iter().product(), 3).iter().map(|v| 0.3 * v).collect();
    let phi = tensor(&values, shape, &Device::flex(), DType::F64);
    let (fine, fine_grid) = subdivide(phi.clone(), &grid, [2; 3]);
    let (coarse, fine) = (penalty(phi, &grid), penalty(fine, &fine_grid));
    // The midpoint rule with two points a cell: of second order, and better over many cells.
    assert!((coarse / fine - 1.0).abs() < 0.02, "{coarse} {fine}");
}

fn evaluate(phi: &[f64], shape: [usize; 5], on: (&Device, DType)) -> (f64, Vec<f64>) {
    let grid = ControlGrid {
        spacing_voxels: [3.0, 2.0, 2.5],
        origin_voxels: [0.0; 3],
        beyond: Beyond::Fade,
    };
    let phi = tensor::<5>(phi, shape, &on.0.clone().autodiff(), on.1).require_grad();
    let value = bspline_volume(phi.clone(), &grid, VOXEL_MM, 0.4).mul_scalar(-3.0);
    let gradients = value.backward();
    let gradient = to_f64(phi.grad(&gradients).expect("it was tracked"));
    (to_f64(value.inner())[0], gradient)
}

const SHAPES: [[usize; 5]; 3] = [[1, 3, 4, 5, 6], [2, 3, 1, 4, 7], [1, 3, 6, 1, 1]];

/// Large enough that some determinants lie below the least one, 0.4.
fn random(shape: [usize; 5]) -> Vec<f64> {
    normal(shape.iter().product(), 5).iter().map(|v| 0.6 * v).collect()
}

#[test]
fn gradients_agree_with_finite_differences() {
    for shape in SHAPES {
        let checks = gradcheck(&["coefficients"], &[random(shape)], 1e-3, |inputs| {
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
            let (expected, gradient) =
                evaluate(&random(shape), shape, (&Device::flex(), DType::F64));
            let (actual, other) = evaluate(&random(shape), shape, (&device, DType::F32));
            assert_close(&format!("{name} {shape:?} value"), &[actual], &[expected], GPU);
            assert_close(&format!("{name} {shape:?} gradient"), &other, &gradient, GPU);
        }
    }
}
