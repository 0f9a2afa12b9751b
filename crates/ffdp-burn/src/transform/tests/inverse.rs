//! Inverses undo maps: weak and strong ones, inside and outside the grid, with affine parts.

use burn::tensor::{DType, Device, Tensor};

use super::{grid, rotated};
use crate::ops::{GaussianOptions, exp, gaussian};
use crate::transform::{Composite, Displacement, Step};
use ffdp_image::image::{Affine, Geometry};
use ffdp_image::metrics::jacobian;
use ffdp_kit::testing::{normal, tensor};

fn oblique() -> Geometry {
    grid([34, 30, 26], [1.0, 1.2, 2.0], [-20.0, -10.0, -18.0], rotated(25.0))
}

/// A diffeomorphism: the flow of smooth noise; `strength` in voxels.
fn flow(geometry: &Geometry, strength: f64, sigma: f64) -> Displacement {
    let [d, h, w] = geometry.dims();
    let noise = normal(3 * geometry.len(), 11);
    let noise = tensor(&noise, [1, 3, d, h, w], &Device::flex(), DType::F64);
    let smooth = gaussian(noise, &GaussianOptions::isotropic(sigma));
    let rms = smooth.clone().powi_scalar(2).mean().sqrt().into_scalar::<f64>();
    let velocity = smooth.mul_scalar(strength / rms).cast(DType::F32);
    Displacement::new(exp(velocity, 7), geometry.clone()).expect("fits")
}

/// A map that stretches up to fourfold about the middle of the grid, with waves across: the slope of the
/// field reaches 3, and the fixed-point iteration for its inverse does not converge there. The
/// determinant is nowhere below 0.9.
fn stretch(geometry: &Geometry) -> Displacement {
    let middle = geometry.size.map(|n| (n as f64 - 1.0) / 2.0);
    let at = |c: usize, p: [f64; 3]| {
        let (width, slope) = (1.5, [3.0, 2.0, 0.8][c]);
        let waves = [(std::f64::consts::TAU * p[1] / 20.0).sin(), (0.35 * p[2]).cos(), 0.0][c];
        slope * width * ((p[c] - middle[c]) / width).tanh() + waves
    };
    let voxels = || (0..geometry.len()).map(|offset| geometry.index_of(offset).map(|i| i as f64));
    let values = (0..3).flat_map(|c| voxels().map(move |p| at(c, p) as f32)).collect();
    Displacement::from_vec(values, geometry.clone(), &Device::flex()).expect("fits")
}

/// The largest slope `|du_a / dx_b|` between neighbours; beyond 1 the fixed-point iteration of an
/// inverse need not converge.
fn steepest(step: &Displacement) -> f32 {
    let field = step.field().clone();
    (2..5)
        .map(|axis| {
            let n = field.dims()[axis];
            let difference =
                field.clone().narrow(axis, 1, n - 1) - field.clone().narrow(axis, 0, n - 1);
            difference.abs().max().into_scalar::<f32>()
        })
        .fold(0.0, f32::max)
}

fn composite(step: &Displacement) -> Composite {
    let affine = Affine::from_rows([
        [0.9, -0.3, 0.05, 4.0],
        [0.28, 1.1, 0.1, -3.0],
        [0.0, -0.12, 0.95, 2.0],
    ]);
    Composite::new(vec![Step::Displacement(step.clone()), Step::Affine(affine)])
}

/// Points in and around the grid, off its voxels.
fn points(geometry: &Geometry) -> Vec<[f64; 3]> {
    let to_mm = geometry.voxel_to_mm();
    let unit = normal(3 * 500, 5);
    let n = geometry.size.map(|n| n as f64);
    let point = |k: usize| std::array::from_fn(|c| n[c] * (0.5 + 0.3 * unit[3 * k + c]));
    (0..500).map(|k| to_mm.apply(point(k))).collect()
}

#[test]
fn points_come_back_through_strong_and_weak_maps() {
    let geometry = oblique();
    let (weak, strong) = (flow(&geometry, 1.0, 4.0), stretch(&geometry));
    assert!(steepest(&strong) > 2.0, "the fixed-point iteration alone would do");
    for (name, step) in [("weak", weak), ("strong", strong)] {
        let folds = jacobian(&step.to_vec().expect("readable"), geometry.size).expect("fits");
        assert_eq!(folds.true_folds, 0, "{name}: the map has an inverse");
        let phi = composite(&step);
        let points = points(&geometry);
        let inverse = phi.inverse().expect("regular");
        let back = inverse.map_points(&points).and_then(|there| phi.map_points(&there));
        let back = back.expect("readable");
        let distance =
            |i: usize| (0..3).map(|c| (back[i][c] - points[i][c]).powi(2)).sum::<f64>().sqrt();
        let largest = (0..points.len()).map(distance).fold(0.0, f64::max);
        println!("{name}: slopes to {}, {largest:.1e} mm", steepest(&step));
        // Solved to 1e-9 voxels of at most 2 mm, magnified a little by the affine map.
        assert!(largest < 1e-8, "{name}: {largest} mm");
    }
}

#[test]
fn an_inverse_stored_on_the_fixed_grid_is_good_to_a_part_of_a_voxel() {
    let device = Device::flex();
    let geometry = oblique();
    let step = flow(&geometry, 1.0, 4.0);
    let phi = composite(&step);
    let exact = phi.inverse().expect("regular");
    // On a grid of its own, in the moving space.
    let moving = grid([30, 30, 30], [1.5, 1.5, 1.5], [-25.0, -15.0, -20.0], rotated(0.0));
    let error = phi.round_trip(&exact, &moving, &device).expect("readable");
    println!("solved where needed: {error:?}");
    assert!(error.max_voxels < 2e-3, "{error:?}");

    // As ANTs has it: the inverse warp on the fixed grid, after the inverse of the matrix.
    let warp = Composite::new(vec![Step::Displacement(step.clone())]);
    let stored = warp.inverse().expect("regular").to_displacement(&geometry, &device);
    let stored = Composite::new(vec![Step::Displacement(stored)]);
    let error = warp.round_trip(&stored, &geometry, &device).expect("readable");
    println!("stored: {error:?}");
    // The promise is half a voxel.
    assert!(error.p95_voxels < 0.5 && error.mean_mm < error.p95_mm, "{error:?}");
    // It is no identity that is compared with itself.
    let none = warp.round_trip(&Composite::default(), &geometry, &device).expect("readable");
    assert!(none.p95_voxels > 3.0 * error.p95_voxels && none.max_mm > none.p95_mm, "{none:?}");
}

#[test]
fn the_inverse_of_the_inverse_is_the_map() {
    let step = flow(&oblique(), 2.0, 3.5);
    let phi = composite(&step);
    let twice = phi.inverse().and_then(|inverse| inverse.inverse()).expect("regular");
    let points = points(&oblique());
    let [a, b] = [phi, twice].map(|phi| phi.map_points(&points).expect("readable"));
    for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
        assert!((a - b).abs() < 1e-9, "{a} {b}");
    }
}

#[test]
fn translations_have_exact_inverses_everywhere() {
    let geometry = oblique();
    let [d, h, w] = geometry.dims();
    let by = tensor(&[2.0, -3.5, 1.25], [1, 3, 1, 1, 1], &Device::flex(), DType::F32);
    let field = by.expand([1, 3, d, h, w]);
    let step = Displacement::new(field, geometry.clone()).expect("fits");
    let inverse = Composite::new(vec![Step::Inverse(step)]);
    let back = inverse.to_displacement(&geometry, &Device::flex()).to_vec().expect("readable");
    for (c, expected) in [-2.0, 3.5, -1.25].into_iter().enumerate() {
        let component = &back[c * geometry.len()..(c + 1) * geometry.len()];
        // Indices of some tens in f32.
        assert!(component.iter().all(|v: &f32| (v - expected).abs() < 1e-5), "component {c}");
    }
}

#[test]
fn folds_leave_an_error_that_is_reported_and_nothing_infinite() {
    let geometry = grid([16, 12, 10], [1.0; 3], [0.0; 3], rotated(0.0));
    let values = normal(3 * geometry.len(), 2).into_iter().map(|v| 2.0 * v as f32).collect();
    let step = Displacement::from_vec(values, geometry.clone(), &Device::flex()).expect("fits");
    let phi = Composite::new(vec![Step::Displacement(step)]);
    let inverse = phi.inverse().expect("symbolic").to_displacement(&geometry, &Device::flex());
    assert!(inverse.to_vec().expect("readable").iter().all(|v| v.is_finite()));
    let inverse = Composite::new(vec![Step::Displacement(inverse)]);
    let error = phi.round_trip(&inverse, &geometry, &Device::flex()).expect("readable");
    assert!(error.max_voxels > 0.5, "{error:?}");
}

#[test]
fn a_single_slice_is_inverted_in_its_plane() {
    let geometry = grid([20, 18, 1], [1.0, 1.5, 3.0], [0.0; 3], rotated(10.0));
    let [d, h, w] = geometry.dims();
    let plane = flow(&grid([20, 18, 8], [1.0; 3], [0.0; 3], rotated(0.0)), 1.0, 3.0);
    let in_plane = plane.field().clone().narrow(2, 4, 1).narrow(1, 0, 2);
    let flat = Tensor::zeros([1, 1, d, h, w], (&Device::flex(), DType::F32));
    let step = Displacement::new(Tensor::cat(vec![in_plane, flat], 1), geometry.clone());
    let phi = Composite::new(vec![Step::Displacement(step.expect("fits"))]);
    let inverse = phi.inverse().expect("symbolic");
    let error = phi.round_trip(&inverse, &geometry, &Device::flex()).expect("readable");
    assert!(error.max_voxels < 2e-3, "{error:?}");
}
