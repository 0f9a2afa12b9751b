//! The definition, known inverses, steep fields, and devices against each other.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::ops::{GaussianOptions, GridSampleOptions, Padding, compose, gaussian, grid_sample};
use ffdp_kit::testing::{assert_close, gpu_devices, normal, tensor, to_f64, uniform};

const SIZE: [usize; 3] = [14, 18, 20];

/// A smooth field that stretches lengths up to twofold and shrinks them to a third, without folds; calm
/// at the border, where smoothed noise is strongest.
fn steep(size: [usize; 3], batch: usize, device: &Device, dtype: DType) -> Tensor<5> {
    let [d, h, w] = size;
    let noise = tensor::<5>(&normal(batch * 3 * d * h * w, 7), [batch, 3, d, h, w], device, dtype);
    let field = gaussian(noise, &GaussianOptions::isotropic(2.0)).mul_scalar(9.0);
    let window = |length: usize, shape: [usize; 5]| {
        let at = |i: usize| (std::f64::consts::PI * (i as f64 + 0.5) / length as f64).sin();
        tensor::<5>(&(0..length).map(at).collect::<Vec<_>>(), shape, device, dtype)
    };
    field * window(d, [1, 1, d, 1, 1]) * window(h, [1, 1, 1, h, 1]) * window(w, [1, 1, 1, 1, w])
}

/// Points on another array, some of them outside the grid.
fn points(batch: usize, device: &Device, dtype: DType) -> Tensor<5> {
    let [d, h, w] = SIZE;
    let extent = [5, 7, 9];
    let count: usize = extent.iter().product();
    let values: Vec<f64> = (0..batch * 3)
        .flat_map(|i| uniform(count, -2.0, [w, h, d][i % 3] as f64 + 2.0, i as u64))
        .collect();
    tensor::<5>(&values, [batch, 3, extent[0], extent[1], extent[2]], device, dtype)
}

/// `|s + u(y + s)|` at points, the largest.
fn residual(field: &Tensor<5>, y: Tensor<5>, s: &Tensor<5>) -> f64 {
    let nothing = Tensor::zeros([1, 3, 4], (&field.device(), field.dtype()));
    let options = GridSampleOptions { padding: Padding::Border, ..Default::default() };
    let u = grid_sample(field.clone(), Some(nothing), Some(y + s.clone()), &options);
    let f = s.clone() + u;
    to_f64((f.clone() * f).sum_dim(1).sqrt().max())[0]
}

#[test]
fn points_are_moved_back_to_where_they_came_from() {
    for batch in [1, 2] {
        let (device, dtype) = (Device::flex(), DType::F64);
        let field = steep(SIZE, batch, &device, dtype);
        let y = points(batch, &device, dtype);
        let s = inverse(field.clone(), Some(y.clone()));
        let left = residual(&field, y, &s);
        assert!(left <= 1e-9, "{left}");
    }
}

#[test]
fn without_points_both_compositions_are_the_identity() {
    let field = steep(SIZE, 2, &Device::flex(), DType::F64);
    let s = inverse(field.clone(), None);
    let left = to_f64(compose(field, s).abs().max())[0];
    assert!(left <= 1e-9, "{left}");
}

#[test]
fn a_stretch_has_the_inverse_that_it_has() {
    // u(p) = 1.5 (p - c) along x: (id + u)^-1 (y) = c + (y - c) / 2.5.
    let (device, centre) = (Device::flex(), 8.0);
    let row: Vec<f64> = (0..17).map(|x| 1.5 * (f64::from(x) - centre)).collect();
    let field: Vec<f64> =
        row.iter().copied().cycle().take(17 * 4).chain([0.0; 2 * 17 * 4]).collect();
    let field = tensor::<5>(&field, [1, 3, 2, 2, 17], &device, DType::F64);
    let s = to_f64(inverse(field, None));
    for x in 0..17 {
        let expected = (centre - f64::from(x)) * 0.6;
        assert!((s[x as usize] - expected).abs() < 1e-9, "{x}: {} {expected}", s[x as usize]);
    }
    assert!(s[17 * 4..].iter().all(|&s| s.abs() < 1e-9));
}

#[test]
fn translations_are_inverted_exactly_even_outside() {
    let (device, dtype) = (Device::flex(), DType::F32);
    let field = Tensor::<5>::full([1, 3, 3, 1, 4], 6.25, (&device, dtype));
    let y = points(1, &device, dtype);
    assert!(to_f64(inverse(field, Some(y))).iter().all(|&s| s == -6.25));
}

#[test]
fn where_the_field_folds_no_point_is_worse_than_unmoved() {
    let field = steep(SIZE, 1, &Device::flex(), DType::F64).mul_scalar(8.0);
    let s = inverse(field.clone(), None);
    let lengths = |f: Tensor<5>| to_f64((f.clone() * f).sum_dim(1));
    let (left, before) = (lengths(compose(field.clone(), s)), lengths(field));
    assert!(left.iter().zip(&before).all(|(left, before)| left <= before));
    let solved = left.iter().filter(|&&left| left <= 1e-18).count();
    assert!(solved > left.len() / 2 && solved < left.len(), "{solved} of {}", left.len());
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for size in [SIZE, [1, 9, 33], [17, 1, 40]] {
            let field = steep(size, 2, &Device::flex(), DType::F64);
            let y = points(2, &Device::flex(), DType::F64);
            let expected =
                [inverse(field.clone(), None), inverse(field.clone(), Some(y.clone()))].map(to_f64);
            let there = |t: &Tensor<5>| t.clone().cast(DType::F32).to_device(&device);
            let (field, y) = (there(&field), there(&y));
            let found = [inverse(field.clone(), None), inverse(field, Some(y))].map(to_f64);
            for (found, expected) in found.iter().zip(&expected) {
                // The GPU stops at a residual of 5e-4 voxels; where the map shrinks lengths to a third,
                // solutions lie three times as far apart. `assert_close` is relative to the largest.
                let largest = expected.iter().fold(0.0f64, |most, s| most.max(s.abs()));
                let bound = 3.0 * tolerance_voxels(DType::F32) / largest;
                let error = assert_close(&format!("{name} {size:?}"), found, expected, bound);
                println!("inverse {name} {size:?}: {error:.1e}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "inverse: displacement and points must be [N, 3, D, H, W] of one batch")]
fn batches_must_agree() {
    let zeros = |shape: [usize; 5]| Tensor::<5>::zeros(shape, (&Device::flex(), DType::F32));
    inverse(zeros([1, 3, 2, 2, 2]), Some(zeros([2, 3, 2, 2, 2])));
}
