use super::{distance, sheared_grid};
use crate::error::Error;
use crate::image::{Affine, Geometry, index_affine, index_linear};

/// Rounding of a few f64 products of numbers up to 100.
const ROUNDING: f64 = 1e-12;

#[test]
fn a_full_affine_survives_the_split_into_spacing_and_direction() {
    let affine = Affine::from_rows([
        [-1.1, 0.2, 0.1, 12.5],
        [0.3, 0.8, -0.4, -7.25],
        [0.1, 0.5, 2.3, 100.0],
    ]);
    let grid = Geometry::from_affine([5, 7, 3], affine).unwrap();
    for j in 0..3 {
        let length: f64 = (0..3).map(|i| grid.direction[i][j].powi(2)).sum();
        assert!((length - 1.0).abs() < ROUNDING, "column {j}");
    }
    for p in [[0.0, 0.0, 0.0], [4.0, 6.0, 2.0], [-3.0, 2.5, 9.0]] {
        assert!(distance(grid.voxel_to_mm().apply(p), affine.apply(p)) < ROUNDING, "{p:?}");
        assert!(distance(grid.mm_to_voxel().apply(affine.apply(p)), p) < ROUNDING, "{p:?}");
    }
}

#[test]
fn constructors_place_the_grid() {
    let grid = Geometry::new([4, 5, 6], [1.0, 2.0, 3.0])
        .unwrap()
        .with_origin([10.0, 20.0, 30.0])
        .unwrap()
        .with_direction([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        .unwrap();
    assert_eq!((grid.len(), grid.dims()), (120, [6, 5, 4]));
    // Voxel x runs along physical y, voxel y along minus physical x.
    assert_eq!(grid.voxel_to_mm().apply([1.0, 1.0, 1.0]), [8.0, 21.0, 33.0]);
    assert_eq!(grid.axis_codes(), "ALS");
    assert_eq!(grid.voxel_volume_mm3(), 6.0);
    assert_eq!(grid.index_of(4 * 5 * 2 + 4 * 3 + 1), [1, 3, 2]);
}

#[test]
fn senseless_grids_are_refused_with_the_value() {
    let overflow = [usize::MAX / 2, 3, 1];
    let cases: [([usize; 3], [f64; 3], &str); 9] = [
        ([0, 5, 5], [1.0; 3], "[0, 5, 5]"),
        (overflow, [1.0; 3], "addressable"),
        ([1 << 61, 1, 1], [1.0; 3], "addressable"),
        ([5; 3], [1.0, 0.0, 1.0], "[1.0, 0.0, 1.0]"),
        ([5; 3], [1.0, -2.0, 1.0], "-2.0"),
        ([5; 3], [f64::NAN, 1.0, 1.0], "NaN"),
        ([5; 3], [f64::INFINITY, 1.0, 1.0], "inf"),
        ([5; 3], [1.0, 1.0, 0.9e-9], "1e-9..1e6"),
        ([5; 3], [1.1e6, 1.0, 1.0], "1e-9..1e6"),
    ];
    for (size, spacing, expected) in cases {
        let error = Geometry::new(size, spacing).unwrap_err().to_string();
        assert!(error.contains(expected), "{size:?} {spacing:?}: {error}");
    }
    assert!(Geometry::new([5; 3], [1.0; 3]).unwrap().with_origin([0.0, f64::NAN, 0.0]).is_err());
}

#[test]
fn degenerate_directions_are_refused() {
    let grid = || Geometry::new([5; 3], [1.0; 3]).unwrap();
    let long = grid().with_direction([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    assert!(long.unwrap_err().to_string().contains("unit vectors"));
    let flat = grid().with_direction([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]);
    assert!(matches!(flat, Err(Error::Singular { .. })));
    let zero_column = Affine::from_rows([[1.0, 0.0, 0.0, 0.0], [0.0; 4], [0.0, 0.0, 1.0, 0.0]]);
    assert!(Geometry::from_affine([5; 3], zero_column).is_err());
}

#[test]
fn sameness_is_measured_at_the_corners_in_voxels() {
    let grid = sheared_grid();
    assert!(grid.grid_distance_voxels(&grid) < ROUNDING);
    // A shift by 0.01 voxel along x.
    let shift = grid.voxel_to_mm().apply([0.01, 0.0, 0.0]);
    let shifted = grid.clone().with_origin(shift).unwrap();
    assert!((grid.grid_distance_voxels(&shifted) - 0.01).abs() < ROUNDING);
    assert!(grid.same_grid(&shifted, 0.011) && !grid.same_grid(&shifted, 0.009));
    assert!(grid.check_same_grid(&grid, "mask").is_ok());
    assert!(grid.check_same_grid(&shifted, "mask").is_ok(), "headers are rounded");
    let far = grid.clone().with_origin(grid.voxel_to_mm().apply([0.06, 0.0, 0.0])).unwrap();
    let error = grid.check_same_grid(&far, "mask").unwrap_err().to_string();
    assert!(error.starts_with("mask is on another grid") && error.contains("0.060"), "{error}");
    // A spacing off by 1 % moves the far corner of axis y by 6 * 0.01 voxels.
    let mut stretched = grid.clone();
    stretched.spacing_mm[1] *= 1.01;
    assert!((grid.grid_distance_voxels(&stretched) - 0.06).abs() < ROUNDING);
    let smaller = grid.cropped([0; 3], [5, 7, 2]).unwrap();
    assert!(!grid.same_grid(&smaller, 1e9));
}

#[test]
fn parts_and_resized_grids_stay_in_place() {
    let grid = sheared_grid();
    let part = grid.cropped([1, 2, 1], [2, 3, 2]).unwrap();
    let whole = grid.voxel_to_mm().apply([2.0, 4.0, 2.0]);
    assert!(distance(part.voxel_to_mm().apply([1.0, 2.0, 1.0]), whole) < ROUNDING);
    for (start, size) in [([0; 3], [6, 1, 1]), ([5, 0, 0], [1; 3]), ([usize::MAX, 0, 0], [1; 3])] {
        assert!(grid.cropped(start, size).is_err(), "{start:?} {size:?}");
    }
    assert!(grid.cropped([0; 3], [1, 0, 1]).is_err());
    let coarse = grid.resized([2, 4, 1]).unwrap();
    assert!(distance(coarse.center_mm(), grid.center_mm()) < ROUNDING);
    // Outer faces coincide: voxel coordinate -0.5 and n - 0.5 are the same points.
    let face = |g: &Geometry, far: bool| {
        g.voxel_to_mm().apply(g.size.map(|n| if far { n as f64 - 0.5 } else { -0.5 }))
    };
    assert!(distance(face(&coarse, false), face(&grid, false)) < ROUNDING);
    assert!(distance(face(&coarse, true), face(&grid, true)) < ROUNDING);
    assert!(grid.resized([0, 1, 1]).is_err());
}

#[test]
fn overlap_counts_fixed_points_inside_moving() {
    let fixed = Geometry::new([10; 3], [1.0; 3]).unwrap();
    for (origin_x, expected) in [(0.0, 100.0), (4.0, 60.0), (-7.0, 30.0), (9.4, 10.0), (20.0, 0.0)]
    {
        let moving = fixed.clone().with_origin([origin_x, 0.0, 0.0]).unwrap();
        assert!((fixed.overlap_percent(&moving) - expected).abs() < ROUNDING, "{origin_x}");
    }
    let half = fixed.clone().with_origin([5.0, 0.0, 0.0]).unwrap();
    assert!(fixed.check_overlap(&half, 50.0).is_ok());
    assert!(fixed.check_overlap(&half, 51.0).is_err());
    let away = fixed.clone().with_origin([500.0, 0.0, 0.0]).unwrap();
    let error = fixed.check_overlap(&away, 0.0).unwrap_err().to_string();
    assert!(error.contains("0.00 %") && error.contains("[509.0, 9.0, 9.0]"), "{error}");
}

#[test]
fn index_space_maps_agree_with_the_way_through_millimetres() {
    let fixed = sheared_grid();
    let moving = Geometry::new([9, 8, 7], [0.5, 1.5, 3.0])
        .unwrap()
        .with_origin([-3.0, 4.0, 60.0])
        .unwrap()
        .with_direction([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
        .unwrap();
    let transform =
        Affine::from_rows([[0.9, 0.1, 0.0, 3.0], [-0.1, 1.1, 0.05, -2.0], [0.0, 0.0, 1.0, 5.0]]);
    let index = index_affine(&fixed, &moving, &transform);
    let linear = index_linear(&fixed, &moving);
    for (p, u) in [([0.0; 3], [1.0, 0.0, 0.0]), ([4.0, 2.5, 1.0], [-0.5, 2.0, 0.25])] {
        let sent = transform.apply(fixed.voxel_to_mm().apply(p));
        let direct = index.apply(p);
        assert!(distance(direct, moving.mm_to_voxel().apply(sent)) < 1e-10, "{p:?}");
        // A displacement in fixed voxels, added in mm after the transform.
        let pushed: [f64; 3] = {
            let mm = fixed.voxel_to_mm().apply_vector(u);
            std::array::from_fn(|i| sent[i] + mm[i])
        };
        let step = linear.map(|row| row[0] * u[0] + row[1] * u[1] + row[2] * u[2]);
        let direct: [f64; 3] = std::array::from_fn(|i| direct[i] + step[i]);
        assert!(distance(direct, moving.mm_to_voxel().apply(pushed)) < 1e-10, "{p:?} {u:?}");
    }
    let rows = index.to_f32();
    assert_eq!(rows[3], index.translation()[0] as f32);
    assert_eq!(rows[8], index.linear()[2][0] as f32);
}
