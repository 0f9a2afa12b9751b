//! Free-form deformation: splines are found, go from level to level as they are, and are results.

use burn::tensor::Device;

use super::{found, mean_distance, mean_error, pair_of, register, warp};
use crate::{
    LevelSettings, Problem, Registration, Settings, Silent, Similarity, Stage,
    methods::{FfdSettings, GreedySettings, SplineGradient},
    report::Stop,
    settings::{AdamSettings, OptimizerSettings},
};
use ffdp_burn::transform::{BsplineTransform, Composite, Displacement, Step};
use ffdp_image::image::{Volume, upload};
use ffdp_image::metrics::jacobian;
use ffdp_image::synth::{PhantomSettings, subject};

/// Of what was measured: rounding decides which of several similar minima is found.
const MORE: f64 = 1.2;

fn level(shrink: f64, iterations: usize) -> LevelSettings {
    LevelSettings { shrink, iterations }
}

/// The acceptance of the specification is 48^3 voxels, waves of 3 voxels, control points 6 voxels apart in the end; on
/// fewer voxels, waves are as long and as high in proportion.
const ACCEPTANCE: usize = 48;

/// Of the other optimisers and gradients.
const SMALL: usize = 32;

fn waves(size: usize) -> ([Volume; 2], Vec<f32>) {
    let settings = PhantomSettings { noise: 0.0, ..PhantomSettings::with_size([size; 3]) };
    let moving = subject(&settings, 4).expect("valid settings").image;
    let wave = |along: usize| {
        let phase = move |i: usize| std::f64::consts::TAU * i as f64 / (size - 1) as f64;
        let high = size as f64 / 16.0;
        move |p: [usize; 3]| (high * phase(p[along]).sin()) as f32
    };
    let geometry = moving.geometry.clone();
    let component = |c: usize| {
        let wave = wave((c + 1) % 3);
        let geometry = geometry.clone();
        (0..geometry.len()).map(move |offset| wave(geometry.index_of(offset)))
    };
    let field: Vec<f32> = (0..3).flat_map(component).collect();
    let tensor = upload(field.clone(), [1, 3, size, size, size], &Device::flex());
    let displacement = Displacement::new(tensor, geometry.clone()).expect("sizes match");
    let warps = Composite::new(vec![Step::Displacement(displacement)]);
    let fixed = warps.warp(&moving, &geometry, &Device::flex()).expect("good input");
    ([fixed, moving], field)
}

fn of_waves(size: usize) -> FfdSettings {
    let [fixed, _] = waves(size).0;
    FfdSettings {
        levels: vec![level(4.0, 60), level(2.0, 60), level(1.0, 60)],
        spacing_mm: fixed.geometry.spacing_mm.map(|mm| 6.0 * mm),
        ..FfdSettings::default()
    }
}

/// Mean error in voxels where the fixed image is not empty, and the result.
fn error_of(size: usize, settings: FfdSettings) -> (f64, Registration) {
    let ([fixed, moving], field) = waves(size);
    let result = found(&Problem::new(&fixed, &moving), Stage::Ffd(settings));
    let got = warp(&result).to_vec().expect("readable");
    let inside = |p: usize| fixed.data[p] > 0.05;
    println!(
        "error {:.3} -> {:.3} voxels, folds {}, loss {:.5} -> {:.5}, iterations {:?}",
        mean_distance(&vec![0.0; got.len()], &field, inside),
        mean_distance(&got, &field, inside),
        jacobian(&got, [size; 3]).expect("sizes match").true_folds,
        result.loss_before,
        result.loss_after,
        result.stages[0].levels.iter().map(|level| level.losses.len()).collect::<Vec<_>>(),
    );
    (mean_distance(&got, &field, inside), result)
}

#[test]
fn waves_are_found_and_by_three_levels_better_than_by_one() {
    let (error, result) = error_of(ACCEPTANCE, of_waves(ACCEPTANCE));
    for level in &result.stages[0].levels {
        assert!(level.losses.is_sorted_by(|a, b| a > b), "{:?}", level.losses);
    }
    // 0.039 as measured without penalties; the specification asks for 0.15.
    assert!(error < 0.15, "{error}");
    // The valley is the same; on the finest level alone the way there is longer.
    let levels = vec![level(4.0, 15), level(2.0, 15), level(1.0, 5)];
    let (of_three, _) = error_of(ACCEPTANCE, FfdSettings { levels, ..of_waves(ACCEPTANCE) });
    let (of_one, _) =
        error_of(ACCEPTANCE, FfdSettings { levels: vec![level(1.0, 5)], ..of_waves(ACCEPTANCE) });
    assert!(of_three < of_one, "{of_three} {of_one}");
}

#[test]
fn the_steepest_descent_of_the_paper_goes_downhill() {
    let settings = FfdSettings { optimizer: OptimizerSettings::Sgd, ..of_waves(SMALL) };
    let (error, result) = error_of(SMALL, settings);
    for level in &result.stages[0].levels {
        assert!(level.losses.is_sorted_by(|a, b| a > b), "{:?}", level.losses);
    }
    // Measured: 0.249 of 2.47 before.
    assert!(error < MORE * 0.249, "{error}");
}

#[test]
fn a_level_ends_by_the_norm_of_its_gradient_whatever_moves_the_control_points() {
    let adam = OptimizerSettings::Adam(AdamSettings::default());
    let ([fixed, moving], _) = waves(SMALL);
    for optimizer in [OptimizerSettings::Sgd, FfdSettings::default().optimizer, adam] {
        let of = |gradient_tolerance: f64| {
            let levels = vec![level(2.0, 12)];
            let settings = FfdSettings { levels, optimizer, gradient_tolerance, ..of_waves(SMALL) };
            let result = found(&Problem::new(&fixed, &moving), Stage::Ffd(settings));
            let level = &result.stages[0].levels[0];
            (level.losses.clone(), level.stop)
        };
        let (free, _) = of(0.0);
        assert!(free.len() > 1, "{optimizer:?}: {free:?}");
        // Of no loss that lies between 0 and 1: it ends where it begins.
        assert_eq!(of(1e6), (vec![free[0]], Stop::Converged), "{optimizer:?}");
        // Shorter than rounding.
        assert_eq!(of(1e-12).0, free, "{optimizer:?}");
    }
    for gradient_tolerance in [-1.0, f64::NAN] {
        let stage = Stage::Ffd(FfdSettings { gradient_tolerance, ..FfdSettings::default() });
        let settings = Settings { stages: vec![stage], ..Settings::default() };
        let message = settings.validate().expect_err("it means nothing").to_string();
        assert!(message.contains("gradient_tolerance"), "{message}");
    }
}

#[test]
fn adam_moves_control_points() {
    let optimizer = OptimizerSettings::Adam(AdamSettings::default());
    let (error, result) =
        error_of(SMALL, FfdSettings { optimizer, learning_rate_voxels: 0.25, ..of_waves(SMALL) });
    assert!(result.exact().is_some());
    // Measured: 0.035 of 2.47 before.
    assert!(error < MORE * 0.035, "{error}");
}

#[test]
fn the_finite_differences_of_the_paper_find_the_waves_too() {
    let settings = FfdSettings {
        levels: vec![level(4.0, 12), level(2.0, 8)],
        gradient: SplineGradient::FiniteDifferences,
        optimizer: OptimizerSettings::Sgd,
        ..of_waves(SMALL)
    };
    let (error, result) = error_of(SMALL, settings);
    for level in &result.stages[0].levels {
        assert!(level.losses.is_sorted_by(|a, b| a > b), "{:?}", level.losses);
    }
    // Measured: 0.594 of 2.47 before.
    assert!(error < MORE * 0.594, "{error}");
}

#[test]
fn finite_differences_of_what_they_cannot_count_are_refused() {
    let pair = pair_of(24, 3);
    let mask = Volume { data: vec![1.0; pair.fixed.image.data.len()], ..pair.fixed.image.clone() };
    let plain = || Problem::new(&pair.fixed.image, &pair.moving.image);
    let masked = Problem { fixed_mask: Some((&mask).into()), ..plain() };
    let of = |similarity| FfdSettings {
        levels: vec![level(1.0, 2)],
        spacing_mm: [20.0; 3],
        gradient: SplineGradient::FiniteDifferences,
        similarity,
        ..FfdSettings::default()
    };
    for (problem, similarity) in
        [(plain(), Similarity::Mse), (masked, FfdSettings::default().similarity)]
    {
        let stages = vec![Stage::Ffd(of(similarity))];
        let settings = Settings { stages, ..Settings::default() };
        let refused = register(&problem, &settings, &Device::flex(), &mut Silent);
        let message = refused.expect_err("it is refused").to_string();
        assert!(message.contains("inite"), "{message}");
    }
}

/// The dense warp is what the spline is, in mm; f32 against f64.
const SAME_MM: f64 = 1e-3;

#[test]
fn the_spline_is_the_warp() {
    let pair = pair_of(40, 3);
    let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
    // The last level is not the full grid: there the spline is evaluated, not interpolated.
    for levels in [vec![level(4.0, 10), level(2.0, 10)], vec![level(2.0, 10), level(1.0, 5)]] {
        let settings = FfdSettings { levels, spacing_mm: [20.0; 3], ..FfdSettings::default() };
        let result = found(&problem, Stage::Ffd(settings));
        let spline = result.exact().and_then(|exact| exact.downcast::<BsplineTransform>());
        let spline = spline.cloned().expect("it began from rest");
        let geometry = &pair.fixed.image.geometry;
        let points: Vec<[f64; 3]> = (0..geometry.len())
            .step_by(997)
            .map(|i| geometry.voxel_to_mm().apply(geometry.index_of(i).map(|i| i as f64)))
            .collect();
        let [exact, dense] = [Step::Bspline(spline), Step::Displacement(warp(&result))]
            .map(|step| Composite::new(vec![step]).map_points(&points).expect("readable"));
        let off =
            exact.iter().zip(&dense).flat_map(|(a, b)| [0, 1, 2].map(|i| (a[i] - b[i]).abs()));
        let off = off.fold(0.0, f64::max);
        let moved = points.iter().zip(&dense).map(|(a, b)| (a[0] - b[0]).abs()).fold(0.0, f64::max);
        println!("{off:.2e} mm, moved {moved}");
        assert!(off < SAME_MM && moved > 1.0, "{off} {moved}");
    }
}

#[test]
fn splines_are_added_to_what_another_stage_found() {
    let pair = pair_of(40, 3);
    let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
    let greedy = GreedySettings { levels: vec![level(2.0, 30)], ..GreedySettings::default() };
    let similarity = greedy.similarity.clone();
    let ffd = FfdSettings {
        levels: vec![level(2.0, 20), level(1.0, 20)],
        similarity,
        spacing_mm: [15.0; 3],
        ..FfdSettings::default()
    };
    let stages = vec![Stage::Greedy(greedy.clone()), Stage::Ffd(ffd)];
    let settings = Settings { stages, ..Settings::default() };
    let both = register(&problem, &settings, &Device::flex(), &mut Silent).expect("good input");
    let one = found(&problem, Stage::Greedy(greedy));
    let error =
        |result: &Registration| mean_error(&warp(result).to_vec().expect("readable"), &pair);
    println!("{} -> {}", error(&one), error(&both));
    assert!(both.exact().is_none() && error(&both) < error(&one));
}

#[test]
fn a_known_warp_is_found_by_every_similarity() {
    const SIZE: usize = 36;
    let pair = pair_of(SIZE, 3);
    // Error in voxels, of 1.53, as measured.
    for (similarity, measured) in [
        (GreedySettings::default().similarity, 0.400),
        (Similarity::Mse, 0.342),
        (FfdSettings::default().similarity, 0.514),
    ] {
        let settings = FfdSettings {
            levels: vec![level(4.0, 40), level(2.0, 40), level(1.0, 30)],
            similarity: similarity.clone(),
            spacing_mm: [12.0; 3],
            ..FfdSettings::default()
        };
        let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
        let result = found(&problem, Stage::Ffd(settings));
        let field = warp(&result).to_vec().expect("readable");
        let error = mean_error(&field, &pair);
        let report = jacobian(&field, [SIZE; 3]).expect("sizes match");
        println!("{similarity:?}: {error:.3} voxels, folds {}", report.true_folds);
        assert!(error < MORE * measured, "{similarity:?}: {error}");
        assert_eq!(report.true_folds, 0, "{similarity:?}");
    }
}
