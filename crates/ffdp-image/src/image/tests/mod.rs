//! Tests of the module, one file per idea.

mod geometry;
mod space;
mod volume;

use super::Geometry;

/// An oblique, anisotropic, reflected grid with shear: nothing that could hide a mistake.
fn sheared_grid() -> Geometry {
    let affine = super::Affine::from_rows([
        [-1.1, 0.2, 0.1, 12.5],
        [0.3, 0.8, -0.4, -7.25],
        [0.1, 0.5, 2.3, 100.0],
    ]);
    Geometry::from_affine([5, 7, 3], affine).unwrap()
}

/// Largest difference of two points.
fn distance(a: [f64; 3], b: [f64; 3]) -> f64 {
    (0..3).map(|i| (a[i] - b[i]).abs()).fold(0.0, f64::max)
}
