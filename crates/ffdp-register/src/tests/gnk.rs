//! Gauss-Newton-Krylov as a stage: known warps, other similarities, masks, shards, earlier stages, refusals.

use burn::tensor::Device;

use super::{found, half_heads, mean_error, pair_of, register, warp};
use crate::methods::gnk::{DeterminantBounds, Preconditioner};
use crate::{
    LevelSettings, Problem, Registration, Settings, Silent, Similarity, Stage,
    methods::{GnkSettings, GreedySettings},
    report::Outcome,
    settings::{LnccSettings, MiSettings},
};
use ffdp_image::metrics::{dice, jacobian};
use ffdp_parallel::DeviceMesh;

/// Two levels, as few steps as they take.
fn settings() -> GnkSettings {
    let level = |shrink| LevelSettings { shrink, iterations: 20 };
    GnkSettings { levels: vec![level(2.0), level(1.0)], beta: 1e-3, ..GnkSettings::default() }
}

fn lncc() -> Similarity {
    Similarity::Lncc(LnccSettings::default())
}

/// Least and largest determinant, and folds.
fn determinants(result: &Registration, size: [usize; 3]) -> ([f64; 2], u64) {
    let report = jacobian(&warp(result).to_vec().expect("readable"), size).expect("sizes match");
    ([report.central.min, report.central.max], report.true_folds)
}

#[test]
fn a_known_warp_is_found_and_unfolded() {
    const SIZE: usize = 32;
    let pair = pair_of(SIZE, 3);
    let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
    let before = mean_error(&vec![0.0; 3 * pair.fixed.image.data.len()], &pair);
    for (similarity, matched) in [(Similarity::Mse, 0.5), (lncc(), 0.5)] {
        let stage = Stage::Gnk(GnkSettings { similarity: similarity.clone(), ..settings() });
        let result = found(&problem, stage);
        let after = mean_error(&warp(&result).to_vec().expect("readable"), &pair);
        let ([low, high], folds) = determinants(&result, [SIZE; 3]);
        let moved = warp(&result).warp_labels(&pair.moving.labels).expect("readable");
        let overlap = dice(&pair.fixed.labels.data, &moved.data).expect("sizes match").mean();
        println!(
            "{similarity:?}: error {before:.3} -> {after:.3}, Dice {overlap:.3}, loss {:.4} -> {:.4}, det \
             {low:.2}..{high:.2}",
            result.loss_before, result.loss_after
        );
        for level in &result.stages[0].levels {
            // Of a level that begins where it ends, the loss alone.
            assert!(level.newton.len() == level.losses.len() || level.losses.len() == 1);
            for step in &level.newton {
                println!(
                    "  beta {:.0e} loss {:.5} gradient {:.3} krylov {} inner {} step {:?}",
                    step.beta,
                    step.loss,
                    step.gradient,
                    step.krylov_iterations(),
                    step.inner_iterations,
                    step.step
                );
            }
        }
        assert_eq!((result.outcome, folds), (Outcome::Improved, 0), "{similarity:?}");
        assert!(low > 0.0, "{similarity:?}");
        assert!(after < matched * before, "{similarity:?}: {before} -> {after}");
        // The flow back is the inverse: there and back is nowhere.
        assert!(result.velocity.is_some() && result.inverse.is_some());
    }
}

#[test]
fn information_finds_a_warp_of_two_modalities_too() {
    let size = 28;
    let pair = pair_of(size, 3);
    let mut moving = pair.moving.image.clone();
    let most = moving.data.iter().copied().fold(0.0, f32::max);
    // Another order of the same tissues.
    moving.data.iter_mut().for_each(|v| *v = (*v / most) * (1.3 - *v / most));
    let problem = Problem::new(&pair.fixed.image, &moving);
    let before = mean_error(&vec![0.0; 3 * moving.data.len()], &pair);
    // As smooth as two modalities need: with a tenth of it some voxels at the edge of the head fold.
    let (similarity, beta) = (Similarity::Nmi(MiSettings::default()), 1e-2);
    let mut stage = GnkSettings { similarity, beta, ..settings() };
    stage.levels[1].iterations = 5;
    let result = found(&problem, Stage::Gnk(stage));
    let after = mean_error(&warp(&result).to_vec().expect("readable"), &pair);
    println!("{before:.3} -> {after:.3}");
    assert!(after < 0.75 * before, "{before} -> {after}");
    assert_eq!(determinants(&result, [size; 3]).1, 0);
}

#[test]
fn shards_find_what_the_whole_finds() {
    /// Sums in another order, over some ten systems: a tenth of a percent of a voxel.
    const FIELD_VOXELS: f32 = 1e-3;
    let pair = pair_of(32, 3);
    let masks = half_heads(&pair);
    // Levels of squares, which cost the least; of the others only the coarse one.
    let cases = [(lncc(), false, 2, 1), (Similarity::Mse, true, 3, 2)];
    for (similarity, masked, shards, levels) in cases {
        let problem = Problem {
            fixed_mask: masked.then(|| (&masks[0]).into()),
            moving_mask: masked.then(|| (&masks[1]).into()),
            ..Problem::new(&pair.fixed.image, &pair.moving.image)
        };
        let mut gnk = GnkSettings { similarity: similarity.clone(), ..settings() };
        gnk.levels.truncate(levels);
        // What the order of sums changes on the fine level shows in the first steps, from which the others go on.
        gnk.levels.iter_mut().skip(1).for_each(|level| level.iterations = 3);
        let stage = Stage::Gnk(gnk);
        let whole = found(&problem, stage.clone());
        let field = warp(&whole).to_vec().expect("readable");
        assert!(field.iter().any(|u| u.abs() > 0.5), "it moves");
        let mesh = DeviceMesh::new(&[Device::flex()], shards).expect("a device and a shard");
        let settings = Settings { stages: vec![stage.clone()], ..Settings::default() };
        let cut = register(&problem, &settings, &mesh, &mut Silent).expect("good input");
        // Steps are the same; of their iterations, which sums in another order may end sooner or later, a tenth.
        let counts = |result: &Registration| -> [usize; 2] {
            let steps = result.stages[0].levels.iter().flat_map(|level| &level.newton);
            [steps.clone().count(), steps.map(|step| step.krylov_iterations()).sum()]
        };
        let [of_whole, of_cut] = [&whole, &cut].map(counts);
        assert_eq!(of_whole[0], of_cut[0], "{similarity:?} {shards}");
        let apart = of_whole[1].abs_diff(of_cut[1]);
        assert!(10 * apart <= of_whole[1], "{similarity:?} {shards}: {of_whole:?} {of_cut:?}");
        let parts = warp(&cut).to_vec().expect("readable");
        let off = field.iter().zip(&parts).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        println!("{similarity:?} in {shards} shards: {off:.1e} voxels");
        assert!(off < FIELD_VOXELS, "{similarity:?} in {shards} shards: {off}");
    }
}

#[test]
fn it_goes_on_from_an_earlier_deformation() {
    let pair = pair_of(32, 3);
    let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let greedy = GreedySettings {
        levels: vec![level(2.0, 30)],
        similarity: Similarity::Mse,
        ..GreedySettings::default()
    };
    let gnk = GnkSettings { levels: vec![level(1.0, 4)], ..settings() };
    let stages = vec![Stage::Greedy(greedy), Stage::Gnk(gnk.clone())];
    let both = register(
        &problem,
        &Settings { stages, ..Settings::default() },
        &Device::flex(),
        &mut Silent,
    );
    let both = both.expect("good input");
    let alone = found(&problem, Stage::Gnk(gnk));
    let first =
        |result: &Registration, stage: usize| result.stages[stage].levels[0].newton[0].clone();
    // It begins where the other has ended, with its own weight.
    assert!(first(&both, 1).loss < 0.7 * first(&alone, 0).loss);
    assert_eq!(first(&both, 1).beta, 1e-3);
    assert!(both.loss_after < 1.1 * alone.loss_after, "{} {}", both.loss_after, alone.loss_after);
}

#[test]
fn bounds_of_the_determinant_are_kept() {
    let pair = pair_of(24, 3);
    let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
    let bounds = DeterminantBounds { least: 0.6, most: 1.7 };
    let gnk = GnkSettings { determinant: Some(bounds), ..settings() };
    let result = found(&problem, Stage::Gnk(gnk));
    let ([low, high], _) = determinants(&result, [24; 3]);
    // That of the exponential, and by differences of another order, is a little other than that of the transport.
    assert!(low > 0.9 * bounds.least && high < 1.1 * bounds.most, "{low} {high}");
    assert!(result.loss_after < result.loss_before);
}

#[test]
fn planes_are_registered() {
    let pair = pair_of(48, 3);
    let plane = |image: &ffdp_image::image::Volume| {
        let [x, y, _] = image.geometry.size;
        let middle = 24 * x * y;
        let geometry =
            ffdp_image::image::Geometry::new([x, y, 1], image.geometry.spacing_mm).expect("valid");
        let data = image.data[middle..middle + x * y].to_vec();
        ffdp_image::image::Volume::new(data, geometry).expect("one value a voxel")
    };
    let [fixed, moving] = [&pair.fixed.image, &pair.moving.image].map(plane);
    let result = found(&Problem::new(&fixed, &moving), Stage::Gnk(settings()));
    assert!(
        result.loss_after < 0.7 * result.loss_before,
        "{} {}",
        result.loss_before,
        result.loss_after
    );
    let field = warp(&result).to_vec().expect("readable");
    // Nothing leaves the plane.
    assert!(field[2 * 48 * 48..].iter().all(|u| u.abs() < 1e-6));
}

#[test]
fn settings_without_meaning_are_refused() {
    let wrong = [
        GnkSettings { beta: 0.0, ..settings() },
        GnkSettings { beta_div: -1.0, ..settings() },
        GnkSettings { time_steps: 0, ..settings() },
        GnkSettings { tolerance: f64::NAN, ..settings() },
        GnkSettings {
            determinant: Some(DeterminantBounds { least: 1.5, most: 4.0 }),
            ..settings()
        },
    ];
    for gnk in wrong {
        let settings = Settings { stages: vec![Stage::Gnk(gnk.clone())], ..Settings::default() };
        assert!(settings.validate().is_err(), "{gnk:?}");
    }
}

#[test]
fn settings_survive_a_file() {
    let gnk = GnkSettings {
        preconditioner: Preconditioner::InvH0,
        determinant: Some(DeterminantBounds::default()),
        ..settings()
    };
    for stage in [Stage::Gnk(gnk), Stage::Gnk(settings())] {
        let text = serde_json::to_string(&stage).expect("written");
        assert_eq!(serde_json::from_str::<Stage>(&text).expect("read"), stage, "{text}");
    }
}
