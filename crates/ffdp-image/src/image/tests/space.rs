use super::distance;
use crate::error::Error;
use crate::image::{Affine, Physical, Voxel};

/// Rounding of a few f64 products of numbers up to 100.
const ROUNDING: f64 = 1e-12;

fn a() -> Affine<Voxel, Physical> {
    Affine::from_rows([[2.0, 0.5, 0.0, 10.0], [0.0, -3.0, 0.25, -4.0], [1.0, 0.0, 1.5, 7.0]])
}

#[test]
fn then_applies_the_left_map_first() {
    let b: Affine<Physical, Physical> =
        Affine::from_rows([[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 2.0], [0.0, 0.0, 2.0, 3.0]]);
    let p = [3.0, -2.0, 5.0];
    // a p = (15, 3.25, 17.5); b swaps x and y and doubles z.
    assert_eq!(a().apply(p), [15.0, 3.25, 17.5]);
    assert_eq!(a().then(&b).apply(p), [4.25, 17.0, 38.0]);
}

#[test]
fn inverse_undoes_a_map_on_both_sides() {
    let inverse = a().inverse().unwrap();
    for p in [[0.0; 3], [1.0, 2.0, 3.0], [-17.5, 80.25, 3.0]] {
        assert!(distance(inverse.apply(a().apply(p)), p) < ROUNDING, "{p:?}");
        assert!(distance(a().apply(inverse.apply(p)), p) < ROUNDING, "{p:?}");
    }
}

#[test]
fn vectors_ignore_the_translation() {
    assert_eq!(a().apply_vector([1.0, 0.0, 0.0]), [2.0, 0.0, 1.0]);
    assert_eq!(Affine::<Voxel, Voxel>::identity().apply([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]);
}

#[test]
fn condition_is_the_ratio_of_singular_values() {
    // Rotations do not change singular values: R1 diag(4, 2, 0.5) R2 has condition 8.
    let (s, c) = 0.7f64.sin_cos();
    let rotate_z: Affine<Voxel, Voxel> =
        Affine::from_rows([[c, -s, 0.0, 0.0], [s, c, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]);
    let rotate_x: Affine<Voxel, Voxel> =
        Affine::from_rows([[1.0, 0.0, 0.0, 0.0], [0.0, c, -s, 0.0], [0.0, s, c, 0.0]]);
    let stretch: Affine<Voxel, Voxel> =
        Affine::from_rows([[4.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.0]]);
    let condition = rotate_x.then(&stretch).then(&rotate_z).condition();
    assert!((condition - 8.0).abs() < ROUNDING, "{condition}");
    assert!((rotate_z.condition() - 1.0).abs() < ROUNDING);
    assert!((stretch.determinant() - 4.0).abs() < ROUNDING);
}

#[test]
fn nearly_singular_maps_are_refused_by_their_condition() {
    let stretched = |s: f64| {
        Affine::<Voxel, Physical>::from_rows([
            [1.0, 0.0, 0.0, 0.0],
            [0.0, s, 0.0, 0.0],
            [0.0, 0.0, 1.0, 0.0],
        ])
    };
    assert!(stretched(1.1e-6).inverse().is_ok());
    for (s, name) in [(0.9e-6, "thin"), (0.0, "flat"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let error = stretched(s).inverse().unwrap_err();
        assert!(matches!(error, Error::Singular { .. }), "{name}: {error}");
        assert!(error.to_string().contains("exceeds 1e6"), "{name}: {error}");
    }
    // The scale alone is no reason to refuse.
    assert!(
        Affine::<Voxel, Physical>::from_parts(
            [[1e-9, 0., 0.], [0., 1e-9, 0.], [0., 0., 1e-9]],
            [0.0; 3]
        )
        .inverse()
        .is_ok()
    );
}
