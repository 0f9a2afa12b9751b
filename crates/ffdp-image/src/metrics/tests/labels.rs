//! Surface distances, the distance transform and Learn2Reg's evaluation, compared with `surface-distance`
//! 0.1 (DeepMind) and scipy 1.13.1.

use serde_json::Value;

use super::inputs::{Lcg, grid, landmarks, noise_labels, shape_labels, smooth_field};
use super::*;

/// Distances are kept in f32.
const F32_ROUNDING: f64 = 1e-6;
/// Sums of thousands of them.
const F32_SUMS: f64 = 1e-6;

#[test]
fn distance_transform_agrees_with_scipy() {
    for case in golden()["distance_transforms"].as_array().expect("a list") {
        let (size, spacing) = (size_of(case), triple(case, "/spacing"));
        let mut draw = Lcg(number(case, "/seed") as u32);
        let every = number(case, "/every") as u32;
        let marked: Vec<bool> = (0..size.iter().product::<usize>())
            .map(|_| draw.next().is_multiple_of(every))
            .collect();
        let distances = distance_transform(&marked, size, spacing).expect("sizes match");
        let weighted = |(i, &d): (usize, &f32)| (i % 17) as f64 * f64::from(d);
        let sum: f64 = distances.iter().map(|&d| f64::from(d)).sum();
        let max = distances.iter().fold(0f32, |m, &d| m.max(d));
        assert_agrees("sum", sum, number(case, "/sum"), F32_SUMS);
        let weighted: f64 = distances.iter().enumerate().map(weighted).sum();
        assert_agrees("weighted sum", weighted, number(case, "/weighted"), F32_SUMS);
        assert_agrees("max", f64::from(max), number(case, "/max"), F32_ROUNDING);
    }
}

#[test]
fn surface_distances_agree_with_deepmind() {
    for case in golden()["surfaces"].as_array().expect("a list") {
        let name = case["name"].as_str().expect("a name");
        let geometry = grid(size_of(case), triple(case, "/spacing"));
        let [fixed, moved] = match name {
            "noise" => [1, 2].map(|seed| noise_labels(geometry.clone(), seed)),
            _ => [0, 1].map(|shift| shape_labels(geometry.clone(), shift)),
        };
        let rows = case["labels"].as_array().expect("a list");
        let ids: Vec<i32> = rows.iter().map(|row| number(row, "/id") as i32).collect();
        let ours = surface_distances(&fixed, &moved, &ids, DistanceUnit::Millimetres);
        let dice = dice_of(&fixed.data, &moved.data, &ids).expect("one grid");
        for (label, row) in ours.expect("one grid").iter().zip(rows) {
            for (measure, value) in measures(label) {
                let what = format!("{name} {:?} label {} {measure}", geometry.spacing_mm, label.id);
                assert_agrees(&what, value, number(row, &format!("/{measure}")), F32_ROUNDING);
            }
            let dice = dice.get(label.id).expect("asked for").dice;
            assert_agrees("dice", dice, number(row, "/dice"), 1e-15);
        }
    }
}

fn measures(label: &LabelSurface) -> [(&'static str, f64); 7] {
    [
        ("hd100", label.hd100),
        ("hd95", label.hd95),
        ("hd90", label.hd90),
        ("hd90_cumulative", label.hd90_cumulative),
        ("assd", label.assd),
        ("fixed_to_moved", label.fixed_to_moved),
        ("moved_to_fixed", label.moved_to_fixed),
    ]
}

#[test]
fn the_learn2reg_mode_agrees_with_its_evaluation() {
    let golden = &golden()["learn2reg"];
    let size = [24, 20, 18];
    let geometry = grid(size, [1.75, 1.25, 1.5]);
    let [fixed, moving] = [0, 1].map(|shift| shape_labels(geometry.clone(), shift));
    let displacement = smooth_field(size, 2.5);
    let ids: Vec<i32> = (1..12).collect();
    let [fixed_points, moving_points] = landmarks(size, 25, 31);
    let report = learn2reg(&Learn2RegCase {
        fixed: &fixed,
        moving: &moving,
        displacement: &displacement,
        ids: &ids,
        landmarks: Some(VoxelLandmarks {
            fixed: &fixed_points,
            moving: &moving_points,
            spacing_mm: geometry.spacing_mm,
        }),
    })
    .expect("all fits");
    let value = |value: &Value| match value {
        Value::Null => f64::NAN,
        Value::String(_) => f64::INFINITY,
        number => number.as_f64().expect("a number"),
    };
    let rows = golden["labels"].as_array().expect("a list");
    assert!(
        rows.iter().any(|row| row["dice"].is_null()) && rows.iter().any(|r| r["hd95"] == "inf")
    );
    for (ours, row) in report.labels.iter().zip(rows) {
        let pairs = [(ours.dice, value(&row["dice"])), (ours.hd95_voxels, value(&row["hd95"]))];
        for (ours, golden) in pairs {
            let same = ours == golden || (ours.is_nan() && golden.is_nan());
            assert!(same || (ours - golden).abs() < F32_ROUNDING, "{row}: {ours}");
        }
    }
    assert_eq!(report.mean_hd95_voxels, f64::INFINITY, "a label was lost");
    // f32 determinants; the deviation is of the order of 0.1.
    assert_agrees("SDlogJ", report.sd_log_jacobian, number(golden, "/sdlogj"), F32_ROUNDING);
    let ours = report.tre_mm.expect("landmarks were given");
    // f64 throughout; scipy's spline filter stops where its powers are below 1e-15.
    assert_agrees("mean TRE", ours.mean, number(golden, "/tre/mean"), 1e-12);
    assert_agrees("p95 of TRE", ours.p95, number(golden, "/tre/p95"), 1e-12);
    assert_agrees("sd of TRE", ours.sd, number(golden, "/tre/sd"), 1e-12);
}
