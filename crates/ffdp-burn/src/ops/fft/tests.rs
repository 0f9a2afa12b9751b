//! Known spectra, the sum by its definition, any size, there and back, and GPU against CPU.

use std::f64::consts::TAU;

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, normal, tensor, to_f64};

/// Sums of some hundreds of numbers in f64.
const F64_ROUNDING: f64 = 1e-13;
/// Each of some ten stages rounds to 6e-8.
const GPU: f64 = 1e-6;

const DIMS: [[usize; 5]; 7] = [
    [1, 1, 4, 5, 6],
    [2, 3, 3, 7, 5],
    [1, 2, 1, 1, 1],
    [1, 1, 1, 8, 1],
    [1, 1, 11, 13, 17],
    [1, 1, 2, 1, 9],
    [1, 1, 6, 1, 2],
];

fn random(dims: [usize; 5], device: &Device, dtype: DType) -> Tensor<5> {
    tensor(&normal(dims.iter().product(), 7), dims, device, dtype)
}

/// The definition, mode by mode.
fn by_definition(values: &[f64], [n, c, d, h, w]: [usize; 5]) -> Vec<f64> {
    let mut modes = Vec::new();
    for volume in values.chunks(d * h * w).take(n * c) {
        for part in 0..2 {
            for mode in 0..d * h * (w / 2 + 1) {
                let half = w / 2 + 1;
                let k = [mode % half, mode / half % h, mode / half / h];
                let term = |(voxel, value): (usize, &f64)| {
                    let p = [voxel % w, voxel / w % h, voxel / w / h];
                    let turns: f64 =
                        (0..3).map(|a| (k[a] * p[a]) as f64 / [w, h, d][a] as f64).sum();
                    value * if part == 0 { (TAU * turns).cos() } else { -(TAU * turns).sin() }
                };
                modes.push(volume.iter().enumerate().map(term).sum());
            }
        }
    }
    modes
}

#[test]
fn spectra_are_the_sums_of_the_definition() {
    for dims in DIMS.into_iter().filter(|dims| dims.iter().product::<usize>() < 1000) {
        let image = random(dims, &Device::flex(), DType::F64);
        let expected = by_definition(&to_f64(image.clone()), dims);
        let spectrum = fft(image);
        assert_eq!(spectrum.dims(), spectrum_dims(dims));
        assert_close(&format!("{dims:?}"), &to_f64(spectrum), &expected, F64_ROUNDING);
    }
}

#[test]
fn the_way_back_gives_the_volume() {
    for dims in DIMS {
        let image = random(dims, &Device::flex(), DType::F64);
        let back = inverse_fft(fft(image.clone()), dims[4]);
        assert_eq!(back.dims(), dims);
        assert_close(&format!("{dims:?}"), &to_f64(back), &to_f64(image), F64_ROUNDING);
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        let smooth =
            DIMS.into_iter().filter(|dims| dims[2..].iter().all(|n| radices(*n).is_some()));
        for dims in smooth.chain([
            [1, 3, 30, 49, 64],
            [1, 1, 128, 3, 250],
            [1, 1, 14, 256, 512],
            [1, 1, 1024, 2, 105],
            [2, 1, 5, 343, 96],
        ]) {
            let expected = fft(random(dims, &Device::flex(), DType::F64));
            let image = random(dims, &device, DType::F32);
            let spectrum = fft(image.clone());
            let label = format!("{name} {dims:?}");
            assert_close(&label, &to_f64(spectrum.clone()), &to_f64(expected), GPU);
            let back = inverse_fft(spectrum.clone(), dims[4]);
            assert_close(&label, &to_f64(back), &to_f64(image), GPU);
            // The spectrum was not spent: it is still held here.
            assert_close(
                &label,
                &to_f64(spectrum),
                &to_f64(fft(random(dims, &device, DType::F32))),
                0.0,
            );
        }
    }
}

/// [`fft`] and [`inverse_fft`], step by step.
fn stepwise(image: Tensor<5>) -> [Tensor<5>; 2] {
    let [_, _, d, h, w] = image.dims();
    let along = |modes, axes: [usize; 2], to| {
        axes.into_iter().fold(modes, |modes, axis| fft_lines(modes, axis, to))
    };
    let modes = along(fft_rows(image), [2, 3], Direction::Forward);
    let back = along(modes.clone(), [3, 2], Direction::Inverse);
    [modes, inverse_fft_rows(back, w, 1.0 / (d * h * w) as f64)]
}

#[test]
fn steps_make_the_transform() {
    for dims in DIMS {
        let image = random(dims, &Device::flex(), DType::F64);
        let expected = to_f64(fft(image.clone()));
        let [modes, back] = stepwise(image.clone()).map(to_f64);
        assert_close(&format!("{dims:?}"), &modes, &expected, F64_ROUNDING);
        assert_close(&format!("{dims:?}"), &back, &to_f64(image), F64_ROUNDING);
        for (name, device) in gpu_devices() {
            if dims[2..].iter().all(|n| radices(*n).is_some()) {
                let [on_gpu, back_on_gpu] = stepwise(random(dims, &device, DType::F32)).map(to_f64);
                assert_close(&format!("{name} {dims:?}"), &on_gpu, &modes, GPU);
                assert_close(&format!("{name} {dims:?}"), &back_on_gpu, &back, GPU);
            }
        }
    }
}

#[test]
fn lengths_split_into_small_primes() {
    for (n, next) in [(1, 1), (11, 12), (13, 14), (121, 125), (211, 216), (513, 525)] {
        assert_eq!(smooth_size(n), next);
        assert_eq!(radices(next).unwrap().iter().product::<usize>(), next);
    }
    assert_eq!(radices(512), Some(vec![8, 8, 8]));
    assert_eq!(radices(11), None);
}
