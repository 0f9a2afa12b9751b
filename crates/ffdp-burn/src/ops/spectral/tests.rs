//! Waves of known eigenvalue on anisotropic voxels, inverses, projections, symmetry, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, field, gpu_devices, normal, tensor, to_f64};

/// Sums of hundreds of numbers in f64, times wavenumbers squared.
const F64_ROUNDING: f64 = 1e-12;
/// Two transforms of ten stages in f32, and divisions by wavenumbers squared.
const GPU: f64 = 2e-6;

const VOXEL_MM: [f64; 3] = [0.8, 1.5, 2.0];
const BETA: f64 = 0.3;
const GAMMA: f64 = 0.7;
const A: Symbol = Symbol::Regularizer { beta: BETA, gamma: GAMMA };
const INVERSE: Symbol = Symbol::InverseRegularizer { beta: BETA, gamma: GAMMA };
const SMOOTH: Symbol = Symbol::Smooth { sigma_mm: 1.3 };

const DIMS: [[usize; 5]; 4] = [[1, 3, 5, 6, 7], [2, 3, 4, 1, 10], [1, 3, 1, 1, 1], [1, 3, 8, 9, 2]];

fn random(dims: [usize; 5], device: &Device, dtype: DType) -> Tensor<5> {
    tensor(&normal(dims.iter().product(), 3), dims, device, dtype)
}

fn dot(a: &Tensor<5>, b: &Tensor<5>) -> f64 {
    to_f64((a.clone() * b.clone()).sum())[0]
}

#[test]
fn waves_are_multiplied_by_their_wavenumbers() {
    // Mode (1, 0, -2) of 8 x 5 x 9 voxels: k and direction in mm.
    let (size, modes) = ([9, 5, 8], [1.0, 0.0, -2.0]);
    let k = [0, 1, 2].map(|a| TAU * modes[a] / (size[2 - a] as f64 * VOXEL_MM[a]));
    let along = [0.5, -1.0, 2.0];
    let square: f64 = k.iter().map(|k| k * k).sum();
    let slope: f64 = (0..3).map(|c| k[c] * along[c]).sum();
    let wave = |amplitude: [f64; 3]| {
        field(size, |p| {
            let phase: f64 = (0..3).map(|a| k[a] * p[a] * VOXEL_MM[a]).sum();
            amplitude.map(|a| a * (phase + 0.3).cos())
        })
    };
    let v = wave(along);
    let expected = [0, 1, 2].map(|c| BETA * square * along[c] + GAMMA * k[c] * slope);
    let check = |name: &str, symbol, expected: [f64; 3]| {
        let actual = to_f64(spectral(v.clone(), symbol, VOXEL_MM));
        assert_close(name, &actual, &to_f64(wave(expected)), F64_ROUNDING);
    };
    check("A", A, expected);
    check("Leray", Symbol::Leray, [0, 1, 2].map(|c| along[c] - k[c] * slope / square));
    check("smooth", SMOOTH, along.map(|a| a * (-0.5 * 1.69 * square).exp()));
}

#[test]
fn the_inverse_undoes_all_but_the_mean() {
    for dims in DIMS {
        let v = random(dims, &Device::flex(), DType::F64);
        let back = spectral(spectral(v.clone(), A, VOXEL_MM), INVERSE, VOXEL_MM);
        let mean = v.clone().mean_dims(&[2, 3, 4]);
        assert_close(&format!("{dims:?}"), &to_f64(back + mean), &to_f64(v), F64_ROUNDING);
        let constant = Tensor::full(dims, 3.0, (&Device::flex(), DType::F64));
        let divided = to_f64(spectral(constant, INVERSE, VOXEL_MM));
        assert_close("mean", &divided, &vec![3.0 / BETA; divided.len()], F64_ROUNDING);
    }
}

#[test]
fn operators_are_symmetric_and_projections_project() {
    for dims in DIMS {
        let v = random(dims, &Device::flex(), DType::F64);
        let w = v.clone().flip([3, 4]);
        for symbol in [A, INVERSE, Symbol::Leray, SMOOTH] {
            let of = |x: &Tensor<5>| spectral(x.clone(), symbol, VOXEL_MM);
            let [left, right] = [dot(&of(&v), &w), dot(&v, &of(&w))];
            let size = (dot(&of(&v), &of(&v)) * dot(&w, &w)).sqrt().max(1e-3);
            assert!((left - right).abs() < F64_ROUNDING * size, "{dims:?} {symbol:?}");
        }
        let once = spectral(v, Symbol::Leray, VOXEL_MM);
        let twice = spectral(once.clone(), Symbol::Leray, VOXEL_MM);
        assert_close(&format!("{dims:?}"), &to_f64(twice), &to_f64(once), F64_ROUNDING);
    }
}

#[test]
fn gradients_go_through_the_same_operator() {
    let device = Device::flex().autodiff();
    let v = random(DIMS[0], &device, DType::F64).require_grad();
    let w = random(DIMS[0], &Device::flex(), DType::F64).flip([2, 3]);
    let gradients = (spectral(v.clone(), A, VOXEL_MM) * w.clone().autodiff()).backward();
    let gradient = to_f64(v.grad(&gradients).expect("it was tracked"));
    assert_close("A", &gradient, &to_f64(spectral(w, A, VOXEL_MM)), F64_ROUNDING);
}

#[test]
fn sizes_change_by_the_modes_that_both_have() {
    // A wave of mode 2 along x, 1 along z is known at any size that has it.
    let wave = |size: [usize; 3]| {
        field(size, |[x, y, z]| {
            let phase = TAU * (2.0 * x / size[2] as f64 - z / size[0] as f64);
            [phase.cos(), phase.sin(), 1.0 + (TAU * y / size[1] as f64).sin()]
        })
    };
    for [from, to] in [[[8, 6, 10], [4, 3, 5]], [[4, 3, 5], [8, 6, 10]], [[7, 5, 9], [9, 4, 6]]] {
        let resized = spectral_resize(wave(from), to);
        assert_close(&format!("{from:?}"), &to_f64(resized), &to_f64(wave(to)), F64_ROUNDING);
    }
    let (fine, coarse) = ([1, 3, 8, 6, 9], [1, 3, 4, 3, 4]);
    let v = random(fine, &Device::flex(), DType::F64);
    let w = random(coarse, &Device::flex(), DType::F64);
    let down = dot(&spectral_resize(v.clone(), [4, 3, 4]), &w) * (8 * 6 * 9) as f64 / 48.0;
    let up = dot(&v, &spectral_resize(w, [8, 6, 9]));
    assert!((down - up).abs() < F64_ROUNDING * dot(&v, &v), "{down} {up}");
}

/// Lines along z in two halves of y: what a device has of a volume.
fn halves_multiplied(field: Tensor<5>, symbol: Symbol) -> Tensor<5> {
    let [_, _, d, h, w] = field.dims();
    let modes = fft(field);
    let half = |first: usize, count: usize| {
        let block = ModeBlock { size: [d, h, w], first: [0, first] };
        multiply_modes(modes.clone().narrow(3, first, count), symbol, VOXEL_MM, block)
    };
    let parts = vec![half(0, h / 2), half(h / 2, h - h / 2)];
    inverse_fft(Tensor::cat(parts, 3), w)
}

#[test]
fn parts_of_the_modes_know_their_place() {
    for symbol in [A, INVERSE, Symbol::Leray, SMOOTH] {
        let of = |device: &Device, dtype| random([1, 3, 6, 7, 10], device, dtype);
        let v = of(&Device::flex(), DType::F64);
        let expected = to_f64(spectral(v.clone(), symbol, VOXEL_MM));
        let actual = to_f64(halves_multiplied(v, symbol));
        assert_close(&format!("{symbol:?}"), &actual, &expected, F64_ROUNDING);
        for (name, device) in gpu_devices() {
            let actual = to_f64(halves_multiplied(of(&device, DType::F32), symbol));
            assert_close(&format!("{name} {symbol:?}"), &actual, &expected, GPU);
        }
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        // Rows that are filled up, planes that one pass along z holds, and lines too long for that.
        let larger = [[1, 3, 24, 30, 35], [2, 3, 6, 5, 70], [1, 3, 1024, 2, 3]];
        for dims in DIMS.into_iter().chain(larger) {
            for symbol in [A, INVERSE, Symbol::Leray, SMOOTH] {
                let of = |device: &Device, dtype| {
                    to_f64(spectral(random(dims, device, dtype), symbol, VOXEL_MM))
                };
                let [actual, expected] = [(&device, DType::F32), (&Device::flex(), DType::F64)]
                    .map(|(device, dtype)| of(device, dtype));
                // `A` of a single voxel is 0, but for rounding.
                let (some, label) = (
                    1e-6 * f64::from(u8::from(dims[4] == 1)),
                    format!("{name} {dims:?} {symbol:?}"),
                );
                let expected: Vec<f64> = expected.iter().map(|v| v + some).collect();
                let actual: Vec<f64> = actual.iter().map(|v| v + some).collect();
                assert_close(&label, &actual, &expected, GPU);
            }
        }
        let of = |device: &Device, dtype| {
            to_f64(spectral_resize(random([1, 3, 8, 9, 10], device, dtype), [4, 5, 5]))
        };
        let expected = of(&Device::flex(), DType::F64);
        assert_close(name, &of(&device, DType::F32), &expected, GPU);
    }
}
