//! Surface distances that are known by hand, and labels that are hardly there.

use serde_json::Value;

use super::*;

/// Distances are kept in f32.
const F32_ROUNDING: f64 = 1e-6;

fn map(size: [usize; 3], spacing: [f64; 3], label: impl Fn([usize; 3]) -> i32) -> LabelMap {
    let geometry = Geometry::new(size, spacing).expect("valid");
    let data = (0..geometry.len()).map(|offset| label(geometry.index_of(offset))).collect();
    LabelMap::new(data, geometry).expect("one label per voxel")
}

fn measure(fixed: &LabelMap, moved: &LabelMap, id: i32) -> LabelSurface {
    let unit = DistanceUnit::Millimetres;
    surface_distances(fixed, moved, &[id], unit).expect("one grid")[0]
}

#[test]
fn areas_of_all_codes_agree_with_deepmind() {
    let golden: Value =
        serde_json::from_str(include_str!("../tests/golden.json")).expect("the script writes JSON");
    for case in golden["surfel_checksums"].as_array().expect("a list") {
        let number = |list: &str, i: usize| case[list][i].as_f64().expect("a number");
        let areas = surfel_areas([0, 1, 2].map(|i| number("spacing", i)));
        for power in 0..3 {
            let terms = areas.iter().enumerate().map(|(code, a)| a * (code as f64).powi(power));
            let (ours, golden) = (terms.sum::<f64>(), number("sums", power as usize));
            assert!((ours - golden).abs() < 1e-12 * golden, "power {power}: {ours} {golden}");
        }
    }
}

#[test]
fn areas_know_flat_faces_and_complements() {
    let areas = surfel_areas([2.0, 3.0, 5.0]);
    assert_eq!((areas[0], areas[255]), (0.0, 0.0));
    // All vertices with x = 0 inside: the face between, 3 x 5.
    let half: usize = (0..4).map(|v| 1 << surfel::bit([0, v & 1, v >> 1])).sum();
    assert!((areas[half] - 15.0).abs() < 1e-12, "{}", areas[half]);
    for code in 0..256 {
        assert!((areas[code] - areas[255 - code]).abs() < 1e-12, "code {code}");
        assert!(areas[code] > 0.0 || code == 0 || code == 255, "code {code}");
    }
}

#[test]
fn a_shift_along_an_axis_is_the_distance_of_the_faces_across_it() {
    let size = [30, 20, 20];
    let block = |shift: usize| {
        map(size, [2.0, 1.0, 1.0], move |[x, y, z]| {
            i32::from((4 + shift..10 + shift).contains(&x) && y.min(z) > 4 && y.max(z) < 15)
        })
    };
    let surface = measure(&block(0), &block(3), 1);
    assert_eq!((surface.hd100, surface.hd95), (6.0, 6.0), "{surface:?}");
    // The same by symmetry, but added in another order.
    assert!((surface.fixed_to_moved - surface.moved_to_fixed).abs() < 1e-12, "{surface:?}");
    assert!(surface.hd90_cumulative < surface.hd90, "{surface:?}");
    let same = measure(&block(2), &block(2), 1);
    assert_eq!((same.hd100, same.assd, same.hd90_cumulative), (0.0, 0.0, 0.0));
}

#[test]
fn single_voxels_are_as_far_apart_as_they_lie() {
    let voxel = |at: [usize; 3]| map([9, 8, 7], [1.0, 2.0, 0.5], move |p| 7 * i32::from(p == at));
    let surface = measure(&voxel([0, 0, 0]), &voxel([4, 7, 6]), 7);
    // Corner to corner: one voxel less along each axis.
    let (far, near) = ([4.0, 14.0, 3.0], [3.0, 12.0, 2.5]);
    let length = |v: [f64; 3]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
    assert!((surface.hd100 - length(far)).abs() < 1e-5, "{surface:?}");
    assert!(surface.assd < length(far) && surface.assd > length(near), "{surface:?}");
    // Eight elements in each direction: the mean of the seven smallest, the largest left out.
    let all = |sx: f64, sy: f64, sz: f64| length([3.0 + sx, 12.0 + 2.0 * sy, 2.5 + 0.5 * sz]);
    let sum: f64 =
        (1..8).map(|k| all(f64::from(k & 1), f64::from(k >> 1 & 1), f64::from(k >> 2))).sum();
    let expected = (sum + length(near) - length(far)) / 7.0;
    assert!((surface.hd90_cumulative - expected).abs() < F32_ROUNDING * 10.0, "{surface:?}");
}

#[test]
fn absent_labels_are_nan_and_stay_out_of_the_mean() {
    let size = [6, 5, 4];
    let fixed = map(size, [1.0; 3], |[x, _, _]| if x == 0 { 1 } else { i32::from(x == 5) * 2 });
    let moved = map(size, [1.0; 3], |[x, _, _]| if x == 1 { 1 } else { i32::from(x == 5) * 3 });
    let unit = DistanceUnit::Millimetres;
    let labels = surface_distances(&fixed, &moved, &[1, 2, 3, 4], unit).expect("one grid");
    for label in &labels[1..] {
        assert!(label.hd95.is_nan() && label.assd.is_nan() && label.hd90_cumulative.is_nan());
    }
    assert_eq!(surface_mean(&labels, |label| label.hd100), 1.0);
    assert!(surface_mean(&labels[1..], |label| label.hd100).is_nan());
}

#[test]
fn a_label_that_fills_the_image_ends_where_the_image_does() {
    let full = map([5, 4, 3], [1.0; 3], |_| 1);
    let less = map([5, 4, 3], [1.0; 3], |[x, _, _]| i32::from(x < 4));
    assert_eq!(measure(&full, &full, 1).hd100, 0.0);
    assert_eq!(measure(&full, &less, 1).hd100, 1.0);
}

#[test]
fn voxels_as_a_unit_ignore_the_spacing() {
    let voxel = |x: usize| map([8, 3, 3], [3.0, 2.0, 1.0], move |p| i32::from(p == [x, 1, 1]));
    let (a, b) = (voxel(1), voxel(6));
    let surface = surface_distances(&a, &b, &[1], DistanceUnit::Voxels).expect("one grid");
    assert_eq!(surface[0].hd100, 5.0);
    assert_eq!(measure(&a, &b, 1).hd100, 15.0);
}

#[test]
fn other_grids_and_shear_are_refused() {
    let a = map([4, 3, 3], [1.0; 3], |_| 1);
    let b = map([4, 3, 3], [1.5, 1.0, 1.0], |_| 1);
    let unit = DistanceUnit::Millimetres;
    let message = surface_distances(&a, &b, &[1], unit).expect_err("other grid").to_string();
    assert!(message.contains("another grid"), "{message}");
    let rows = [[1.0, 0.2, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]];
    let sheared = Geometry::from_affine([4, 3, 3], crate::image::Affine::from_rows(rows));
    let sheared = LabelMap::new(vec![1; 36], sheared.expect("valid")).expect("fits");
    let message = surface_distances(&sheared, &sheared, &[1], unit).expect_err("shear").to_string();
    assert!(message.contains("right angles"), "{message}");
    assert!(surface_distances(&sheared, &sheared, &[1], DistanceUnit::Voxels).is_ok());
}

/// Surfaces near each other (rows) and far apart (the map of all distances), compared with a search of all pairs.
#[test]
fn distances_are_those_to_the_nearest_element() {
    let (size, spacing) = ([9, 70, 8], [1.0, 0.75, 2.0]);
    // Rough plates, so that distances differ.
    let plate = |at: usize| {
        map(size, spacing, move |[x, y, z]| i32::from(y >= at && y < at + 2 + (3 * x + 5 * z) % 4))
    };
    let within = Box3 { low: [0; 3], high: size.map(|n| n - 1) };
    let areas = surfel_areas(spacing);
    for at in [3, 60] {
        let [a, b] = [plate(0), plate(at)].map(|map| Codes::of(1, &map.data, size, within));
        let points = |codes: &Codes| -> Vec<[f64; 3]> {
            let [nx, ny, _] = codes.size;
            let of = |i: usize| [i % nx, i / nx % ny, i / nx / ny].map(|v| v as f64);
            (0..codes.data.len()).filter(|&i| codes.is_surface(i)).map(of).collect()
        };
        let (from, to) = (points(&a), points(&b));
        let apart = |p: &[f64; 3], q: &[f64; 3]| -> f64 {
            (0..3).map(|i| (spacing[i] * (p[i] - q[i])).powi(2)).sum::<f64>().sqrt()
        };
        let nearest = |p: &[f64; 3]| to.iter().map(|q| apart(p, q)).fold(f64::INFINITY, f64::min);
        let expected = from.iter().map(nearest).fold(0.0, f64::max);
        let mean = from.iter().map(nearest).sum::<f64>() / from.len() as f64;
        let found = Directed::between(&a, &b, spacing, &areas);
        assert!((found.percentile(100.0) - expected).abs() < 1e-5 * expected, "{at}");
        assert!((found.mean_of_smallest(1.0) - mean).abs() < 1e-5 * mean, "{at}");
    }
}
