//! Warps: inverse, folds, sampling, settings.

use super::*;

/// Points over the head, mm.
fn points() -> impl Iterator<Item = [f64; 3]> {
    (0..4000).map(|i| {
        // A low-discrepancy walk through the box.
        let t = |k: f64| (f64::from(i) * k).fract();
        [150.0 * t(0.8191) - 75.0, 190.0 * t(0.6710) - 110.0, 160.0 * t(0.5497) - 75.0]
    })
}

fn steep() -> WarpSettings {
    WarpSettings {
        scales: vec![
            WarpScale { knot_spacing_mm: 64.0, rms_mm: 6.0 },
            WarpScale { knot_spacing_mm: 30.0, rms_mm: 3.0 },
        ],
    }
}

fn distance(a: [f64; 3], b: [f64; 3]) -> f64 {
    (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn the_inverse_undoes_the_warp() {
    // Mean and 95th percentile, in voxels of 3.1 mm: splines on a lattice of 7.5 to 8 mm
    // resolve the warps to this.
    for (settings, mean_bound, p95_bound) in
        [(WarpSettings::default(), 4e-3, 1.5e-2), (steep(), 2e-2, 6e-2)]
    {
        let warp = Diffeomorphism::random(&settings, 3).expect("valid");
        let mut errors: Vec<f64> =
            points().map(|p| distance(warp.apply_inverse(warp.apply(p)), p) / 3.125).collect();
        errors.sort_unstable_by(f64::total_cmp);
        let (mean, p95) = (mean(errors.iter().copied()), errors[errors.len() * 95 / 100]);
        println!("inverse consistency, voxels: mean {mean:.2e}, p95 {p95:.2e}");
        assert!(mean < mean_bound && p95 < p95_bound, "mean {mean}, p95 {p95}");
        let moved = super::mean(points().map(|p| distance(warp.apply(p), p)));
        assert!(moved > 1.0, "the warp moves nothing: {moved} mm");
    }
}

#[test]
fn sampled_displacements_are_the_warp_in_voxels() {
    let settings = PhantomSettings {
        size: [20, 24, 18],
        spacing_mm: Some([8.0, 9.0, 10.0]),
        ..default_size()
    };
    let geometry = settings.geometry().expect("valid");
    let warp = Diffeomorphism::random(&settings.warp, 5).expect("valid");
    let (u, w) = (warp.displacement_voxels(&geometry), warp.inverse_displacement_voxels(&geometry));
    let count = geometry.len();
    for offset in (0..count).step_by(7) {
        let p = geometry.voxel_to_mm().apply(geometry.index_of(offset).map(|i| i as f64));
        for axis in 0..3 {
            let moved = (warp.apply(p)[axis] - p[axis]) / geometry.spacing_mm[axis];
            assert!((f64::from(u[axis * count + offset]) - moved).abs() < 1e-5);
            let moved = (warp.apply_inverse(p)[axis] - p[axis]) / geometry.spacing_mm[axis];
            assert!((f64::from(w[axis * count + offset]) - moved).abs() < 1e-5);
        }
    }
}

#[test]
fn no_voxel_folds() {
    for seed in 0..3 {
        for settings in [default_size(), PhantomSettings { warp: steep(), ..default_size() }] {
            let geometry = settings.geometry().expect("valid");
            let warp = Diffeomorphism::random(&settings.warp, seed).expect("valid");
            for field in
                [warp.displacement_voxels(&geometry), warp.inverse_displacement_voxels(&geometry)]
            {
                let report = jacobian(&field, settings.size).expect("sizes match");
                assert_eq!(report.true_folds, 0, "seed {seed}: {report:?}");
                assert!(report.sd_log > 0.03, "hardly a warp: {report:?}");
            }
        }
    }
}

#[test]
fn settings_without_meaning_are_refused_with_the_value() {
    for (knot_spacing_mm, rms_mm, part) in
        [(4.0, 0.1, "knot_spacing_mm"), (30.0, -1.0, "rms_mm"), (30.0, 9.0, "0.3")]
    {
        let scales = vec![WarpScale { knot_spacing_mm, rms_mm }];
        let message = WarpSettings { scales }.validate().expect_err("invalid").to_string();
        assert!(message.contains(part), "{message}");
    }
    let noisy = PhantomSettings { noise: f64::NAN, ..default_size() };
    assert!(noisy.validate().expect_err("NaN").to_string().contains("noise"));
    let empty = PhantomSettings::with_size([0, 4, 4]);
    assert!(subject(&empty, 0).is_err());
    assert!(subject(&PhantomSettings { spacing_mm: Some([1.0, 0.0, 1.0]), ..empty }, 0).is_err());
}

#[test]
fn no_warp_is_the_anatomy_itself() {
    let warp = Diffeomorphism::random(&WarpSettings::none(), 1).expect("valid");
    for p in points().take(50) {
        assert_eq!(warp.apply(p), p);
    }
}
