//! Jacobian statistics, inverse consistency and landmark errors, compared with numpy 1.26.4, scipy 1.13.1
//! and SimpleITK 2.5.7.

use super::inputs::{field, grid, landmarks, smooth_field};
use super::*;

/// Determinants of magnitude 10 are kept in f32.
const F32_DETERMINANTS: f64 = 1e-6;
/// Distances of a few mm are kept in f32.
const F32_MM: f64 = 1e-6;
/// f64 throughout.
const F64: f64 = 1e-12;

#[test]
fn jacobian_statistics_agree_with_numpy_and_itk() {
    let golden = &golden()["jacobian"];
    let (size, seed) = (size_of(golden), number(golden, "/seed") as u32);
    let report = jacobian(&field(size, seed, 1.0), size).expect("sizes match");
    for (name, ours) in
        [("forward", report.forward), ("backward", report.backward), ("central", report.central)]
    {
        let golden = &golden[name];
        assert_eq!(ours.folds as f64, number(golden, "/folds"), "{name}");
        for (measure, value) in [
            ("min", ours.min),
            ("p1", ours.p1),
            ("p50", ours.p50),
            ("p99", ours.p99),
            ("max", ours.max),
        ] {
            let what = format!("{name} {measure}");
            assert_agrees(&what, value, number(golden, &format!("/{measure}")), F32_DETERMINANTS);
        }
    }
    let golden_sd = number(golden, "/sd_log_learn2reg");
    assert_agrees("SDlogJ", report.sd_log_learn2reg, golden_sd, F32_DETERMINANTS);
    let quarter = jacobian(&field(size, seed, 0.25), size).expect("sizes match");
    assert_agrees(
        "SD of log",
        quarter.sd_log,
        number(golden, "/sd_log_of_quarter"),
        F32_DETERMINANTS,
    );
}

#[test]
fn inverse_consistency_agrees_with_itk() {
    let golden = &golden()["inverse_consistency"];
    let inverse_grid =
        grid([14, 12, 10], [1.0, 1.5, 2.0]).with_origin([-3.0, 2.0, 5.0]).expect("valid");
    let forward_grid =
        grid([13, 15, 12], [1.25, 1.0, 1.5]).with_origin([-2.13, 1.07, 5.91]).expect("valid");
    let inverse = smooth_field(inverse_grid.size, 1.0);
    let forward = smooth_field(forward_grid.size, -0.5);
    let ours = inverse_consistency(
        &Warp::new(&forward, &forward_grid).expect("sizes match"),
        &Warp::new(&inverse, &inverse_grid).expect("sizes match"),
    );
    assert_eq!(ours.voxels as f64, number(golden, "/inside"));
    assert_eq!(ours.outside as f64, number(golden, "/outside"));
    assert_agrees("mean", ours.mean_mm, number(golden, "/mean"), F32_MM);
    assert_agrees("p95", ours.p95_mm, number(golden, "/p95"), F32_MM);
    assert_agrees("max", ours.max_mm, number(golden, "/max"), F32_MM);
}

#[test]
fn a_translation_and_its_opposite_are_consistent() {
    let geometry = grid([6, 5, 4], [2.0, 1.0, 0.5]);
    let field = |u: [f32; 3]| -> Vec<f32> { u.iter().flat_map(|&u| vec![u; 120]).collect() };
    let (there, back) = (field([1.0, 0.0, -1.0]), field([-1.0, 0.0, 1.0]));
    let there = Warp::new(&there, &geometry).expect("sizes match");
    let back = Warp::new(&back, &geometry).expect("sizes match");
    let report = inverse_consistency(&there, &back);
    assert!(report.max_mm < F64, "{report:?}");
    // A column of 4 x 5 voxels at one side, a layer of 6 x 5 at another, five in both.
    assert_eq!((report.outside, report.voxels), (20 + 30 - 5, 120 - 45));
    // Applied twice in one direction, every point is off by twice (2, 0, 0.5) mm.
    let twice = inverse_consistency(&there, &there);
    assert!((twice.mean_mm - 2.0 * 4.25f64.sqrt()).abs() < F32_MM, "{twice:?}");
    let short = vec![0f32; 119 * 3];
    assert!(Warp::new(&short, &geometry).is_err());
}

#[test]
fn landmark_errors_agree_with_scipy() {
    let golden = &golden()["tre"];
    let geometry = grid([14, 12, 10], [1.0, 1.5, 2.0]);
    let displacement = smooth_field(geometry.size, 1.0);
    let to_mm = geometry.voxel_to_mm();
    let [fixed, moving] = landmarks(geometry.size, 40, 21)
        .map(|points| points.iter().map(|&p| to_mm.apply(p)).collect::<Vec<_>>());
    let warp = Warp::new(&displacement, &geometry).expect("sizes match");
    let ours = tre(&fixed, &moving, |p| warp.apply(p)).expect("as many");
    assert_eq!(ours.errors_mm.len(), 40);
    for (when, ours) in [("before", ours.before), ("after", ours.after)] {
        for (measure, value) in [
            ("mean", ours.mean),
            ("sd", ours.sd),
            ("p25", ours.p25),
            ("median", ours.median),
            ("p75", ours.p75),
            ("p95", ours.p95),
            ("max", ours.max),
        ] {
            let golden = number(golden, &format!("/{when}/{measure}"));
            assert_agrees(&format!("{when} {measure}"), value, golden, F64);
        }
    }
    assert_agrees("TRE30", ours.tre30_mm, number(golden, "/tre30"), F64);
}

#[test]
fn landmarks_that_do_not_belong_together_are_refused() {
    let points = [[0.0; 3]; 2];
    let message = tre(&points, &points[1..], |p| p).expect_err("lengths differ").to_string();
    assert!(message.contains("[2]") && message.contains("[1]"), "{message}");
    assert!(tre(&[], &[], |p| p).is_err());
    let one = tre(&points[..1], &[[3.0, 4.0, 0.0]], |p| p).expect("one pair");
    assert_eq!((one.after.mean, one.after.sd, one.after.p95, one.tre30_mm), (5.0, 0.0, 5.0, 5.0));
}
