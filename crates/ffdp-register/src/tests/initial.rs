//! A registration that goes on from a transform which deforms.

use burn::tensor::Device;

use super::slabs::{FIELD_VOXELS, LOSS};
use super::{brief, mean_error, methods, only, pair_of, register, register_slabs, short, warp};
use crate::{
    LevelSettings, Placement, Problem, Registration, Settings, Silent, Stage,
    methods::{FfdSettings, GreedySettings},
    settings::LinearSettings,
};
use ffdp_burn::transform::{Composite, Displacement, Step};
use ffdp_image::error::Error;
use ffdp_image::image::{Affine, Volume};
use ffdp_image::synth::Pair;
use ffdp_parallel::DeviceMesh;

/// The answer of a pair as a transform, after a shift that the header of the moving image was given as well.
fn answer(pair: &Pair, shift_mm: [f64; 3]) -> (Composite, Volume) {
    let geometry = pair.fixed.image.geometry.clone();
    let values = pair.displacement.clone();
    let w = Displacement::from_vec(values, geometry, &Device::flex()).expect("its grid");
    let shift = Affine::from_parts([[1., 0., 0.], [0., 1., 0.], [0., 0., 1.]], shift_mm);
    let mut moving = pair.moving.image.clone();
    let origin = moving.geometry.origin_mm;
    moving.geometry.origin_mm = [0, 1, 2].map(|i| origin[i] + shift_mm[i]);
    (Composite::new(vec![Step::Displacement(w), Step::Affine(shift)]), moving)
}

fn error_of(found: &Registration, pair: &Pair) -> f64 {
    mean_error(&warp(found).to_vec().expect("readable"), pair)
}

/// One iteration of a thousandth of a voxel: what comes out is where it began.
fn hardly_any() -> GreedySettings {
    let level = |shrink| LevelSettings { shrink, iterations: 1 };
    GreedySettings {
        levels: vec![level(2.0), level(1.0)],
        learning_rate_voxels: 1e-3,
        sigma_warp_voxels: 0.0,
        ..GreedySettings::default()
    }
}

#[test]
fn every_method_begins_where_a_given_deformation_leads() {
    let pair = pair_of(32, 5);
    let (initial, moving) = answer(&pair, [40.0, 0.0, -25.0]);
    let problem = Problem { initial, ..Problem::new(&pair.fixed.image, &moving) };
    let still = vec![0.0; pair.displacement.len()];
    let away = mean_error(&still, &pair);
    let level = |shrink| LevelSettings { shrink, iterations: 1 };
    let ffd = FfdSettings {
        levels: vec![level(2.0), level(1.0)],
        learning_rate_voxels: 1e-3,
        ..FfdSettings::default()
    };
    // From the coarse level on, what is not known exactly is read between its voxels.
    for (stage, bound) in
        methods(&hardly_any()).into_iter().chain([Stage::Ffd(ffd)]).zip([0.05, 0.3, 0.3, 0.3])
    {
        let name = stage.name();
        let settings = Settings { stages: vec![stage], ..Settings::default() };
        let found =
            register(&problem, &settings, &Device::flex(), &mut Silent).expect("good input");
        let error = error_of(&found, &pair);
        println!("{name}: {error:.3} voxels from the answer, {away:.3} at rest");
        assert!(error < bound * away, "{name}: {error} voxels of {away}");
        // The loss before is that of the start, not of the images as they lie.
        let difference = (found.loss_before - found.loss_after).abs();
        assert!(difference < 0.02, "{name}: {} {}", found.loss_before, found.loss_after);
    }
}

#[test]
fn a_given_deformation_is_improved_alike_whole_in_shards_and_in_slabs() {
    let pair = pair_of(32, 5);
    let (answer, moving) = answer(&pair, [0.0; 3]);
    // Half of it.
    let half = |step: &Step| match step {
        Step::Displacement(w) => {
            let w = Displacement::new(w.field().clone().mul_scalar(0.5), w.geometry().clone());
            Step::Displacement(w.expect("its grid"))
        }
        other => other.clone(),
    };
    let initial = Composite::new(answer.steps().iter().map(half).collect());
    let problem =
        || Problem { initial: initial.clone(), ..Problem::new(&pair.fixed.image, &moving) };
    let settings = only(brief());
    let whole = register(&problem(), &settings, &Device::flex(), &mut Silent).expect("good input");
    let rest = register(
        &Problem::new(&pair.fixed.image, &moving),
        &settings,
        &Device::flex(),
        &mut Silent,
    );
    let at_rest = rest.expect("good input").loss_before;
    assert!(whole.loss_before < at_rest - 0.02, "{} {at_rest}", whole.loss_before);
    assert!(whole.loss_after < whole.loss_before - 0.02);
    let field = warp(&whole).to_vec().expect("readable");
    let mesh = DeviceMesh::new(&[Device::flex()], 3).expect("shards");
    let cut = register(&problem(), &settings, &mesh, &mut Silent).expect("good input");
    let (mut fixed, mut other) = (pair.fixed.image.clone(), moving.clone());
    let planes = Problem { initial: initial.clone(), ..Problem::new(&mut fixed, &mut other) };
    let placement = Placement::from(&mesh);
    let slabs = register_slabs(planes, &settings, &placement, &mut Silent).expect("good input");
    for (name, found) in [("shards", cut), ("slabs", slabs)] {
        let parts = warp(&found).to_vec().expect("readable");
        let off = field.iter().zip(&parts).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(off <= FIELD_VOXELS, "{name}: {off} voxels");
        for (a, b) in [(whole.loss_before, found.loss_before), (whole.loss_after, found.loss_after)]
        {
            assert!((a - b).abs() <= LOSS, "{name}: losses {a} {b}");
        }
        let points = [[10.0, -20.0, 5.0], [0.0, 30.0, -12.0]];
        let there = initial.map_points(&points).expect("readable");
        let began = found.before().and_then(|before| before.map_points(&points)).expect("readable");
        for (a, b) in there.iter().flatten().zip(began.iter().flatten()) {
            // Interpolated from the same values, on another grid.
            assert!((a - b).abs() < 0.5, "{name}: {there:?} {began:?}");
        }
    }
}

#[test]
fn a_given_deformation_before_linear_stages_is_refused_with_a_way_out() {
    let pair = pair_of(16, 5);
    let (initial, moving) = answer(&pair, [0.0; 3]);
    let problem = Problem { initial, ..Problem::new(&pair.fixed.image, &moving) };
    let stages = vec![Stage::Rigid(LinearSettings::default()), Stage::Greedy(short())];
    let settings = Settings { stages, ..Settings::default() };
    let error = register(&problem, &settings, &Device::flex(), &mut Silent).expect_err("rigid");
    assert!(error.to_string().contains("--aligned"), "{error}");
}

#[test]
fn a_given_deformation_that_leads_out_of_the_image_is_refused() {
    let pair = pair_of(16, 5);
    let (initial, _) = answer(&pair, [4000.0, 0.0, 0.0]);
    let problem = Problem { initial, ..Problem::new(&pair.fixed.image, &pair.moving.image) };
    let error = register(&problem, &only(short()), &Device::flex(), &mut Silent);
    assert!(matches!(error, Err(Error::NoOverlap { .. })), "{error:?}");
}
