//! Transforms of SimpleITK give here what they give there.
//!
//! The files in `tests/golden` and their results come from SimpleITK 2.5.7, by
//! `scripts/golden/transforms.py make`; the same script lets SimpleITK read what `ffdp` writes.

use std::path::PathBuf;

use burn::tensor::Device;
use ffdp::image::{Affine, Volume};
use ffdp::io::images::{header, read_volume};
use ffdp::io::{LandmarkSpace, read_landmarks};
use ffdp::ops::Interpolation;
use ffdp::transform::{Composite, Step, read_transform, write_transform};

/// Of the range of the image: coordinates of some tens of voxels in f32, and mm in f32 in files.
const IMAGE_TOLERANCE: f64 = 1e-4;

/// Vectors are kept in f32 voxels here.
const POINT_TOLERANCE_MM: f64 = 1e-5;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn transform(name: &str) -> Composite {
    read_transform(golden(name), &Device::flex()).expect(name)
}

fn points(name: &str) -> Vec<[f64; 3]> {
    read_landmarks(golden(name), &LandmarkSpace::Lps).expect(name)
}

/// The chain from its parts, and as one file.
fn chains() -> [(&'static str, Composite); 3] {
    let warp = || transform("warp.nii.gz");
    [
        ("affine.txt, warp.nii.gz", warp().then(transform("affine.txt"))),
        ("affine.mat, warp.nii.gz", warp().then(transform("affine.mat"))),
        ("composite.h5", transform("composite.h5")),
    ]
}

fn largest_distance(a: &[[f64; 3]], b: &[[f64; 3]]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |p: &[f64; 3], q: &[f64; 3]| (0..3).map(|c| (p[c] - q[c]).powi(2)).sum::<f64>();
    a.iter().zip(b).map(|(p, q)| square(p, q).sqrt()).fold(0.0, f64::max)
}

/// Largest difference in parts of the range of `image`, where the map stays inside it; half a voxel
/// from the border ITK repeats it while images fade to zero here.
fn largest_difference(phi: &Composite, image: &Volume, expected: &Volume) -> (f64, usize) {
    let device = Device::flex();
    let grid = &expected.geometry;
    let map = phi.on_grid(grid, &device);
    let seen = |image: &Volume| map.warp(image, Interpolation::Linear).expect("readable").data;
    let ones = Volume { data: vec![1.0; image.data.len()], geometry: image.geometry.clone() };
    let (warped, inside) = (seen(image), seen(&ones));
    let (low, high) = image.min_max().expect("voxels");
    let whole: Vec<usize> = (0..warped.len()).filter(|&p| inside[p] > 0.99999).collect();
    let difference = |&p: &usize| f64::from((warped[p] - expected.data[p]).abs() / (high - low));
    (whole.iter().map(difference).fold(0.0, f64::max), whole.len())
}

#[test]
fn images_warped_through_files_of_simpleitk_are_those_of_simpleitk() {
    let moving = read_volume(golden("moving.nii.gz")).expect("golden");
    let expected = read_volume(golden("warped.nii.gz")).expect("golden");
    assert_eq!(
        (moving.geometry.axis_codes(), expected.geometry.axis_codes()),
        ("LAS".into(), "LIA".into())
    );
    for (name, phi) in chains() {
        let (difference, voxels) = largest_difference(&phi, &moving, &expected);
        println!("{name}: {difference:.1e} of the range over {voxels} voxels");
        assert!(difference < IMAGE_TOLERANCE, "{name}: {difference}");
        assert!(2 * voxels > expected.data.len(), "{name}: only {voxels} voxels are compared");
    }
    // The tolerance would show a missing part, or a wrong order.
    for wrong in [transform("warp.nii.gz"), transform("affine.txt").then(transform("warp.nii.gz"))]
    {
        assert!(largest_difference(&wrong, &moving, &expected).0 > 100.0 * IMAGE_TOLERANCE);
    }
}

#[test]
fn points_go_where_simpleitk_sends_them_and_come_back() {
    let (points, mapped) = (points("points.csv"), points("mapped.csv"));
    for (name, phi) in chains() {
        let distance = largest_distance(&phi.map_points(&points).expect("readable"), &mapped);
        assert!(distance < POINT_TOLERANCE_MM, "{name}: {distance} mm");
        let back = phi.inverse().and_then(|inverse| inverse.map_points(&mapped)).expect("regular");
        let distance = largest_distance(&back, &points);
        assert!(distance < POINT_TOLERANCE_MM, "{name}, inverse: {distance} mm");
    }
}

#[test]
fn stored_inverses_are_those_of_simpleitk() {
    let device = Device::flex();
    let warp = transform("warp.nii.gz");
    let grid = header(golden("warp.nii.gz")).expect("golden").geometry;
    let stored = warp.inverse().expect("symbolic").to_displacement(&grid, &device);
    let inverse = transform("affine.txt")
        .inverse()
        .expect("regular")
        .then(Composite::new(vec![Step::Displacement(stored)]));
    let ours = inverse.map_points(&points("mapped.csv")).expect("readable");
    let theirs = points("back.csv");
    // SimpleITK's iteration ends at 1e-4 voxels of 4.4 mm; ours at 5e-4.
    let distance = largest_distance(&ours, &theirs);
    println!("largest difference: {distance:.1e} mm");
    assert!(distance < 3e-3, "{distance} mm");
    // Both are off by the interpolation of an inverse on a grid of 4.4 mm, and not by nothing.
    let error = largest_distance(&ours, &points("points.csv"));
    assert!(error > 0.1 && error < 1.0, "{error} mm");
}

#[test]
fn files_that_are_written_say_the_same_as_those_that_were_read() {
    let folder = tempfile::tempdir().expect("temporary");
    let points = points("points.csv");
    for (from, to) in [
        ("affine.txt", "affine.mat"),
        ("affine.mat", "affine.txt"),
        ("warp.nii.gz", "warp.nii"),
        ("composite.h5", "again.h5"),
        ("affine.txt", "affine.h5"),
    ] {
        let path = folder.path().join(to);
        let original = transform(from);
        write_transform(&path, &original).expect(to);
        let again = read_transform(&path, &Device::flex()).expect(to);
        let [a, b] = [original, again].map(|phi| phi.map_points(&points).expect("readable"));
        assert!(largest_distance(&a, &b) < POINT_TOLERANCE_MM, "{from} > {to}");
    }
    // What SimpleITK wrote about a centre, without one: the same map.
    let Some(affine) = transform("affine.txt").as_affine() else { panic!("no affine") };
    assert_ne!(affine, Affine::identity());
}
