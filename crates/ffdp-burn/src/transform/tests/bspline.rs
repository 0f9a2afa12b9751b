//! B-splines in space: SimpleITK's files and points, the dense field, the inverse.

use std::path::PathBuf;

use burn::tensor::{DType, Device};

use super::{grid, rotated};
use crate::ops::{ControlGrid, bspline};
use crate::transform::{
    BsplineTransform, Composite, Displacement, Step, read_transform, write_transform,
};
use ffdp_image::io::{LandmarkSpace, read_landmarks};
use ffdp_kit::testing::{assert_close, normal, tensor, to_f64};

/// Sums of 64 products of some mm in f64; numbers in the files have 17 digits.
const POINT_TOLERANCE_MM: f64 = 1e-5;

/// Written by `scripts/golden/transforms.py splines` with SimpleITK 2.5.7.
fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

fn points(name: &str) -> Vec<[f64; 3]> {
    read_landmarks(golden(name), &LandmarkSpace::Lps).expect(name)
}

fn largest_distance(a: &[[f64; 3]], b: &[[f64; 3]]) -> f64 {
    assert_eq!(a.len(), b.len());
    let distance =
        |(a, b): (&[f64; 3], &[f64; 3])| (0..3).map(|c| (a[c] - b[c]).powi(2)).sum::<f64>().sqrt();
    a.iter().zip(b).map(distance).fold(0.0, f64::max)
}

#[test]
fn splines_of_simpleitk_move_points_as_in_simpleitk() {
    let (from, to) = (points("bspline_points.csv"), points("bspline_mapped.csv"));
    // Some lie beyond the domain, where nothing moves.
    let still = from.iter().zip(&to).filter(|(a, b)| a == b).count();
    assert!((4..30).contains(&still), "{still}");
    for name in ["bspline.tfm", "bspline.h5"] {
        let phi = read_transform(golden(name), &Device::flex()).expect(name);
        let distance = largest_distance(&phi.map_points(&from).expect("readable"), &to);
        println!("{name}: {distance:.1e} mm");
        assert!(distance < POINT_TOLERANCE_MM, "{name}: {distance} mm");
    }
}

#[test]
fn splines_come_back_from_files_bit_by_bit() {
    let folder = tempfile::tempdir().expect("temporary");
    let read = |path: PathBuf| {
        let phi = read_transform(&path, &Device::flex()).expect("readable");
        match phi.steps() {
            [Step::Bspline(spline)] => spline.clone(),
            steps => panic!("{} steps", steps.len()),
        }
    };
    let spline = read(golden("bspline.tfm"));
    let transform = Composite::new(vec![Step::Bspline(spline.clone())]);
    for name in ["spline.tfm", "spline.txt", "spline.h5"] {
        let path = folder.path().join(name);
        write_transform(&path, &transform).expect(name);
        let again = read(path);
        assert_eq!(again.coefficients(), spline.coefficients(), "{name}");
        let grid = spline.geometry();
        grid.check_same_grid(again.geometry(), "what was read").expect("the same grid");
    }
    let inverse = transform.inverse().expect("symbolic");
    let message = write_transform(folder.path().join("inverse.h5"), &inverse);
    assert!(message.expect_err("no file holds it").to_string().contains("inverse"));
}

/// A smooth deformation of an oblique anisotropic grid, in voxels of it, with its control grid.
fn deformation() -> (Displacement, BsplineTransform) {
    let fixed = grid([21, 18, 15], [1.0, 1.2, 2.0], [-9.0, -10.0, -18.0], rotated(10.0));
    let size = fixed.dims();
    let (control_grid, [d, h, w]) = ControlGrid::covering(size, [5.0, 4.5, 3.5]);
    let values: Vec<f64> = normal(3 * d * h * w, 7).iter().map(|v| 0.5 * v).collect();
    let phi = tensor(&values, [1, 3, d, h, w], &Device::flex(), DType::F64);
    let field = bspline(phi.clone(), &control_grid, size);
    let dense = Displacement::new(field, fixed.clone()).expect("fits");
    let spline = BsplineTransform::from_control_grid(phi, &control_grid, &fixed).expect("four");
    (dense, spline)
}

#[test]
fn at_the_voxels_it_is_the_dense_field() {
    let (dense, spline) = deformation();
    let transform = Composite::new(vec![Step::Bspline(spline)]);
    let ours = transform.to_displacement(dense.geometry(), &Device::flex());
    // Positions of some tens of mm in f32.
    let expected = to_f64(dense.field().clone());
    assert_close("dense", &to_f64(ours.field().clone()), &expected, 1e-5);
}

#[test]
fn planes_get_a_cell() {
    let fixed = grid([21, 18, 1], [1.0, 1.2, 2.0], [-9.0, -10.0, -18.0], rotated(10.0));
    let (control_grid, [d, h, w]) = ControlGrid::covering(fixed.dims(), [5.0, 4.5, 3.5]);
    let phi = tensor(&normal(3 * d * h * w, 8), [1, 3, d, h, w], &Device::flex(), DType::F64);
    let expected = to_f64(bspline(phi.clone(), &control_grid, fixed.dims()));
    let spline = BsplineTransform::from_control_grid(phi, &control_grid, &fixed).expect("four");
    assert_eq!(spline.geometry().size[2], 4);
    let transform = Composite::new(vec![Step::Bspline(spline)]);
    let ours = transform.to_displacement(&fixed, &Device::flex());
    assert_close("plane", &to_f64(ours.field().clone()), &expected, 1e-5);
}

#[test]
fn the_inverse_undoes_it() {
    let (dense, spline) = deformation();
    let transform = Composite::new(vec![Step::Bspline(spline)]);
    let inverse = transform.inverse().expect("symbolic");
    let to_mm = dense.geometry().voxel_to_mm();
    let index =
        |k: usize| [2.0 + 0.7 * (k % 23) as f64, 3.0 + (k % 11) as f64, 2.0 + (k % 9) as f64];
    let points: Vec<[f64; 3]> = (0..60).map(|k| to_mm.apply(index(k))).collect();
    let there = transform.map_points(&points).expect("readable");
    assert!(largest_distance(&there, &points) > 0.3, "it moves");
    let back = inverse.map_points(&there).expect("readable");
    // Six corrections of a field sampled four times a spacing, in f64.
    let distance = largest_distance(&back, &points);
    println!("inverse: {distance:.1e} mm");
    assert!(distance < 1e-6, "{distance} mm");
}

#[test]
fn what_is_no_spline_is_refused() {
    let small = grid([4, 3, 4], [1.0; 3], [0.0; 3], rotated(0.0));
    let message = BsplineTransform::new(vec![0.0; 144], small).expect_err("three").to_string();
    assert!(message.contains("four or more"), "{message}");
    let fits = grid([4, 4, 4], [1.0; 3], [0.0; 3], rotated(0.0));
    assert!(BsplineTransform::new(vec![0.0; 5], fits).is_err());
}
