//! Voxels, whole shifts, order of convergence, symmetry, and GPU against CPU.

use std::f64::consts::TAU;

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, field, gpu_devices, normal, tensor, to_f64};

/// Sums of some dozens of products in f64, and the end of the inverse at 28 neighbours.
const F64_ROUNDING: f64 = 1e-13;
/// Noise has coefficients up to 27 times its values, rounded to f32 along three axes; displacements of some ten
/// voxels are rounded to 5e-7 and noise changes by more than 1 a voxel.
const GPU: f64 = 1e-5;

const DIMS: [[usize; 5]; 8] = [
    [1, 1, 5, 6, 7],
    [2, 3, 4, 1, 9],
    [1, 2, 1, 1, 1],
    [1, 1, 2, 3, 8],
    [1, 1, 30, 27, 26],
    [1, 1, 64, 4, 2],
    [1, 1, 3, 70, 100],
    [1, 1, 2, 3, 1000],
];

fn random(dims: [usize; 5], device: &Device, dtype: DType) -> Tensor<5> {
    tensor(&normal(dims.iter().product(), 11), dims, device, dtype)
}

/// A displacement of a volume, `of` the voxels.
fn displacement(
    [n, _, d, h, w]: [usize; 5],
    scale: f64,
    device: &Device,
    dtype: DType,
) -> Tensor<5> {
    let values: Vec<f64> = normal(n * 3 * d * h * w, 12).iter().map(|v| scale * v).collect();
    tensor(&values, [n, 3, d, h, w], device, dtype)
}

#[test]
fn whole_shifts_around_the_circle_move_voxels() {
    for dims in DIMS {
        let volume = random(dims, &Device::flex(), DType::F64);
        let [n, _, d, h, w] = dims;
        // One voxel up along x, two down along y, and once around along z.
        let shifts: Vec<f64> =
            [1.0, -2.0, d as f64].iter().flat_map(|s| vec![*s; d * h * w]).collect();
        let shift: Tensor<5> = tensor(&shifts, [1, 3, d, h, w], &Device::flex(), DType::F64);
        let moved = cubic_sample(cubic_coefficients(volume.clone()), shift.repeat_dim(0, n));
        let values = to_f64(volume);
        let from = |element: usize| {
            let (x, y) = (element % w, element / w % h);
            values[element - x - y * w + (x + 1) % w + (y + 2 * h - 2) % h * w]
        };
        let expected: Vec<f64> = (0..values.len()).map(from).collect();
        assert_close(&format!("{dims:?}"), &to_f64(moved), &expected, F64_ROUNDING);
    }
}

/// What [`periodic_sample`] reads.
fn values(volume: Tensor<5>, between: PeriodicInterpolation) -> Tensor<5> {
    if between == PeriodicInterpolation::BSpline { cubic_coefficients(volume) } else { volume }
}

/// The largest error of `exp(sin x)` on the circle, by `n` voxels, between them.
fn error(n: usize, kind: PeriodicInterpolation) -> f64 {
    let value = |x: f64| (TAU * x / n as f64).sin().exp();
    let image = field([1, 1, n], |[x, _, _]| [value(x), 0.0, 0.0]).narrow(1, 0, 1);
    let between = field([1, 1, n], |[x, _, _]| [0.3 + 0.4 * (x % 2.0), 0.0, 0.0]);
    let expected =
        to_f64(field([1, 1, n], |[x, _, _]| [value(x + 0.3 + 0.4 * (x % 2.0)), 0.0, 0.0]));
    let actual = to_f64(periodic_sample(values(image, kind), between, [0; 3], kind));
    actual.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// A cubic polynomial through points `h` apart is off by `3/128 h^4` of the fourth derivative, a straight line by `h^2 / 8`
/// of the second; those of `exp(sin x)` are `4 e` and `e` at most. Of the spline the bound is what was measured.
#[test]
fn the_order_is_four_of_cubics_and_two_of_straight_lines() {
    use PeriodicInterpolation::{BSpline, Lagrange, Linear};
    let (h, e) = (TAU / 128.0, 1f64.exp());
    let bounds = [5e-7, 3.0 / 128.0 * h.powi(4) * 4.0 * e, h.powi(2) / 8.0 * e];
    for ((kind, order), bound) in
        [(BSpline, 4.0), (Lagrange, 4.0), (Linear, 2.0)].into_iter().zip(bounds)
    {
        let slope = (error(64, kind) / error(128, kind)).log2();
        assert!((slope - order).abs() < 0.1, "{kind:?}: {slope}");
        assert!(error(128, kind) < bound, "{kind:?}: {:e}, {bound:e}", error(128, kind));
    }
}

#[test]
fn finding_coefficients_is_its_own_gradient() {
    let dims = DIMS[1];
    let device = Device::flex().autodiff();
    let v = random(dims, &device, DType::F64).require_grad();
    let w = random(dims, &Device::flex(), DType::F64).flip([2, 4]);
    let gradients = (cubic_coefficients(v.clone()) * w.clone().autodiff()).backward();
    let gradient = to_f64(v.grad(&gradients).expect("it was tracked"));
    let left = to_f64((cubic_coefficients(v.clone().inner()) * w.clone()).sum())[0];
    let right = to_f64((v.inner() * cubic_coefficients(w.clone())).sum())[0];
    assert!((left - right).abs() < 1e-10, "{left} {right}");
    assert_close("gradient", &gradient, &to_f64(cubic_coefficients(w)), F64_ROUNDING);
}

/// Voxels of a part, from voxel (z, y, x) on, by the coefficients of all.
#[test]
fn a_part_is_sampled_as_in_the_whole() {
    let dims = [2, 3, 6, 7, 9];
    for (first, size) in [([0, 0, 0], [6, 7, 9]), ([2, 0, 3], [3, 7, 4]), ([5, 6, 8], [1, 1, 1])] {
        let mut devices = vec![("cpu".to_string(), Device::flex(), DType::F64, F64_ROUNDING)];
        devices.extend(
            gpu_devices()
                .into_iter()
                .map(|(name, device)| (name.to_string(), device, DType::F32, GPU)),
        );
        for (name, device, dtype, tolerance) in devices {
            let coefficients = cubic_coefficients(random(dims, &device, dtype));
            let u = displacement(dims, 3.0, &device, dtype);
            let part =
                |x: Tensor<5>| [0, 1, 2].iter().fold(x, |x, &a| x.narrow(a + 2, first[a], size[a]));
            let [z, y, x] = first;
            let actual = periodic_sample(
                coefficients.clone(),
                part(u.clone()),
                [x, y, z],
                PeriodicInterpolation::BSpline,
            );
            let expected = part(cubic_sample(coefficients, u));
            let label = format!("{name} {first:?} {size:?}");
            assert_close(&label, &to_f64(actual), &to_f64(expected), tolerance);
        }
    }
}

#[test]
fn axes_are_solved_in_any_order() {
    let volume = random(DIMS[1], &Device::flex(), DType::F64);
    let axes = [[false, true, false], [true, false, false], [false, false, true]];
    let each = axes.into_iter().fold(volume.clone(), cubic_coefficients_along);
    let expected = to_f64(cubic_coefficients(volume));
    assert_close("axes", &to_f64(each), &expected, F64_ROUNDING);
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for dims in DIMS {
            let of = |device: &Device, dtype| {
                use PeriodicInterpolation::{BSpline, Lagrange, Linear};
                let sampled = |kind| {
                    let values = values(random(dims, device, dtype), kind);
                    let u = displacement(dims, 5.0, device, dtype);
                    to_f64(periodic_sample(values, u, [0; 3], kind))
                };
                let coefficients = to_f64(cubic_coefficients(random(dims, device, dtype)));
                [coefficients, sampled(BSpline), sampled(Lagrange), sampled(Linear)]
            };
            let (actual, expected) = (of(&device, DType::F32), of(&Device::flex(), DType::F64));
            for (actual, expected) in actual.iter().zip(&expected) {
                assert_close(&format!("{name} {dims:?}"), actual, expected, GPU);
            }
        }
    }
}
