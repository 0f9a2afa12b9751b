//! Landmarks that drive a registration, and orientations that are searched.

use burn::tensor::Device;

use super::slabs::{FIELD_VOXELS, LOSS};
use super::{brief, methods, pair_of, register, register_slabs, short, warp};
use crate::{
    LevelSettings, Placement, Problem, Registration, Settings, Silent, Stage,
    methods::{DiscreteRound, DiscreteSettings, FfdSettings, GnkSettings, GreedySettings},
    settings::{LinearSettings, MomentsSettings, OptimizerSettings, OrientationSettings},
};
use ffdp_burn::transform::rotations;
use ffdp_image::image::{Affine, Physical, Volume};
use ffdp_image::synth::Pair;
use ffdp_parallel::DeviceMesh;

type Points = [Vec<[f64; 3]>; 2];

/// Voxels of the head, and where the answer takes them.
fn answers(pair: &Pair, every: usize) -> Points {
    let grid = &pair.fixed.image.geometry;
    let to_mm = grid.voxel_to_mm();
    let inside = (0..grid.len()).filter(|p| pair.fixed.labels.data[*p] != 0).step_by(every);
    let pairs = inside.map(|p| {
        let at = grid.index_of(p).map(|i| i as f64);
        let u = [0, 1, 2].map(|c| f64::from(pair.displacement[c * grid.len() + p]));
        (to_mm.apply(at), to_mm.apply([0, 1, 2].map(|c| at[c] + u[c])))
    });
    let (fixed, moving) = pairs.unzip();
    [fixed, moving]
}

fn mean_mm(found: &Registration, [fixed, moving]: &Points) -> f64 {
    let there = found.map_points(fixed).expect("readable");
    there.iter().zip(moving).map(apart).sum::<f64>() / fixed.len() as f64
}

fn apart((a, b): (&[f64; 3], &[f64; 3])) -> f64 {
    (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt()
}

/// Few Newton steps, each of which solves a system.
fn newton_levels() -> Vec<LevelSettings> {
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    vec![level(2.0, 6), level(1.0, 3)]
}

fn driven(stage: Stage) -> Settings {
    Settings { stages: vec![stage], landmark_sigma_mm: Some(2.0), ..Settings::default() }
}

#[test]
fn landmarks_lead_every_method_where_the_images_do_not() {
    let pair = pair_of(24, 5);
    let points = answers(&pair, 47);
    // The same image twice shows no motion at all: without landmarks a stage leaves it alone.
    let image = &pair.fixed.image;
    let problem = Problem { landmarks: Some(points.clone()), ..Problem::new(image, image) };
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let levels = vec![level(2.0, 20), level(1.0, 15)];
    let ffd =
        FfdSettings { levels: levels.clone(), spacing_mm: [12.0; 3], ..FfdSettings::default() };
    let gnk = GnkSettings { levels: newton_levels(), ..GnkSettings::default() };
    let away = points[0].iter().zip(&points[1]).map(apart).sum::<f64>() / points[0].len() as f64;
    let greedy = GreedySettings { levels, ..GreedySettings::default() };
    let round = |[spacing_voxels, step_voxels, radius]: [usize; 3]| DiscreteRound {
        spacing_voxels,
        step_voxels,
        radius,
    };
    let rounds = [[4, 2, 3], [2, 1, 3]].map(round).to_vec();
    let discrete =
        DiscreteSettings { level: Some(level(1.0, 1)), rounds, ..DiscreteSettings::default() };
    let others = [Stage::Ffd(ffd), Stage::Gnk(gnk), Stage::Discrete(discrete)];
    for stage in methods(&greedy).into_iter().chain(others) {
        let name = stage.name();
        let found = register(&problem, &driven(stage.clone()), &Device::flex(), &mut Silent);
        let found = found.expect("good input");
        let off = mean_mm(&found, &points);
        println!("{name}: {} landmarks {away:.2} -> {off:.2} mm", points[0].len());
        // Images and landmarks disagree; control points are 12 mm apart. The search takes whole voxels of 9 mm: on the mean
        // it is half of one off.
        let part = if name == "discrete" { 0.5 } else { 0.4 };
        assert!(off < part * away, "{name}: {away} -> {off} mm");
    }
}

#[test]
fn annealed_landmarks_begin_every_method_with_the_first_sigma() {
    let pair = pair_of(32, 5);
    let points = answers(&pair, 97);
    let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
    let problem = Problem { landmarks: Some(points), ..Problem::new(fixed, moving) };
    let levels: Vec<_> = [2.0, 1.0].map(|shrink| LevelSettings { shrink, iterations: 3 }).to_vec();
    let greedy = GreedySettings { levels: levels.clone(), ..short() };
    let ffd =
        FfdSettings { levels: levels.clone(), spacing_mm: [12.0; 3], ..FfdSettings::default() };
    let gnk = GnkSettings { levels: levels.clone(), ..GnkSettings::default() };
    let rigid = LinearSettings { levels, ..LinearSettings::default() };
    let others = [Stage::Ffd(ffd), Stage::Gnk(gnk), Stage::Rigid(rigid)];
    for stage in methods(&greedy).into_iter().chain(others) {
        let name = stage.name();
        let losses = |first: Option<f64>, last: f64| {
            let settings = Settings {
                landmark_sigma_mm: Some(last),
                landmark_sigma_first_mm: first,
                ..driven(stage.clone())
            };
            let found = register(&problem, &settings, &Device::flex(), &mut Silent);
            let levels = &found.expect("good input").stages[0].levels;
            [0, 1].map(|k: usize| levels[k].losses.clone())
        };
        // On the CPU the same work has the same bits.
        let (wide, narrow, annealed) =
            (losses(None, 8.0), losses(None, 2.0), losses(Some(8.0), 2.0));
        assert_eq!(annealed[0], wide[0], "{name}: the first level");
        assert!(annealed[0][0] < narrow[0][0], "{name}: {annealed:?} {narrow:?}");
        // The second level begins where the first one ended, with 16 times the weight.
        assert!(annealed[1][0] > wide[1][0], "{name}: {annealed:?} {wide:?}");
    }
}

#[test]
fn landmarks_count_in_shards_and_in_slabs_as_in_the_whole() {
    let pair = pair_of(32, 5);
    let points = answers(&pair, 211);
    let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
    // Steps in proportion to the gradient: those of Adam are as long where the forces of points and images cancel, and
    // rounding decides.
    let settings =
        driven(Stage::Greedy(GreedySettings { optimizer: OptimizerSettings::Sgd, ..brief() }));
    let mesh = |shards| DeviceMesh::new(&[Device::flex()], shards).expect("shards");
    let problem = Problem { landmarks: Some(points.clone()), ..Problem::new(fixed, moving) };
    let whole = register(&problem, &settings, &mesh(1), &mut Silent).expect("good input");
    let cut = register(&problem, &settings, &mesh(3), &mut Silent).expect("good input");
    let (mut f, mut m) = (fixed.clone(), moving.clone());
    let planes = Problem { landmarks: Some(points), ..Problem::new(&mut f, &mut m) };
    let placement = Placement::from(&mesh(2));
    let slabs = register_slabs(planes, &settings, &placement, &mut Silent).expect("good input");
    let field = warp(&whole).to_vec().expect("readable");
    for (name, found) in [("shards", cut), ("slabs", slabs)] {
        let parts = warp(&found).to_vec().expect("readable");
        let off = field.iter().zip(&parts).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        println!("{name}: {off:.1e} voxels");
        assert!(off <= FIELD_VOXELS, "{name}: {off} voxels");
        assert!((whole.loss_after - found.loss_after).abs() <= LOSS, "{name}");
    }
}

#[test]
fn landmarks_of_newton_steps_count_in_shards_as_in_the_whole() {
    /// Sums in another order, over nine systems.
    const NEWTON_VOXELS: f32 = 1e-3;
    let pair = pair_of(32, 5);
    let problem = Problem {
        landmarks: Some(answers(&pair, 211)),
        ..Problem::new(&pair.fixed.image, &pair.moving.image)
    };
    let settings =
        driven(Stage::Gnk(GnkSettings { levels: newton_levels(), ..GnkSettings::default() }));
    let found = |shards| {
        let mesh = DeviceMesh::new(&[Device::flex()], shards).expect("shards");
        let found = register(&problem, &settings, &mesh, &mut Silent).expect("good input");
        warp(&found).to_vec().expect("readable")
    };
    let (whole, cut) = (found(1), found(3));
    let off = whole.iter().zip(&cut).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
    println!("{off:.1e} voxels");
    assert!(off <= NEWTON_VOXELS, "{off} voxels");
}

#[test]
fn landmarks_place_a_rigid_stage_that_the_image_would_leave_elsewhere() {
    let pair = pair_of(32, 5);
    let image = &pair.fixed.image;
    let shift: Affine<Physical, Physical> =
        Affine::from_parts([[1., 0., 0.], [0., 1., 0.], [0., 0., 1.]], [9.0, -6.0, 4.0]);
    let [fixed, _] = answers(&pair, 301);
    let moving: Vec<_> = fixed.iter().map(|p| shift.apply(*p)).collect();
    let points = [fixed, moving];
    let settings = Settings {
        stages: vec![Stage::Rigid(LinearSettings::default())],
        // Closer than any likeness can hold them apart.
        landmark_sigma_mm: Some(0.01),
        ..Settings::default()
    };
    let problem = Problem { landmarks: Some(points.clone()), ..Problem::new(image, image) };
    let found = register(&problem, &settings, &Device::flex(), &mut Silent).expect("good input");
    let off = mean_mm(&found, &points);
    assert!(off < 0.5, "{off} mm of 11.5");
}

#[test]
fn landmarks_that_cannot_count_are_refused_with_a_way_out() {
    let pair = pair_of(16, 5);
    let image = &pair.fixed.image;
    let message = |points: Points, settings: &Settings| {
        let problem = Problem { landmarks: Some(points), ..Problem::new(image, image) };
        let refused = register(&problem, settings, &Device::flex(), &mut Silent);
        refused.expect_err("they cannot count").to_string()
    };
    let one = || [vec![[0.0; 3]], vec![[1.0; 3]]];
    let greedy = || driven(Stage::Greedy(short()));
    let unset = Settings { landmark_sigma_mm: None, ..greedy() };
    assert!(message(one(), &unset).contains("landmark_sigma_mm"));
    assert!(message([vec![[0.0; 3]; 2], vec![[1.0; 3]]], &greedy()).contains("landmarks"));
    assert!(message([vec![[f64::NAN, 0.0, 0.0]], vec![[1.0; 3]]], &greedy()).contains("finite"));
}

/// The image under a header that turns and moves it.
fn turned(image: &Volume, by: &Affine<Physical, Physical>) -> Volume {
    let mut turned = image.clone();
    turned.geometry =
        image.geometry.placed_by(&by.inverse().expect("a rotation")).expect("a rotation");
    turned
}

#[test]
fn a_head_in_any_orientation_is_found_by_a_search() {
    let pair = pair_of(32, 5);
    let image = &pair.fixed.image;
    let [points, _] = answers(&pair, 97);
    let search = Some(OrientationSettings { kept: 8, ..OrientationSettings::default() });
    let settings = Settings {
        stages: vec![
            Stage::Moments(MomentsSettings { search, ..MomentsSettings::default() }),
            Stage::Rigid(LinearSettings::default()),
        ],
        ..Settings::default()
    };
    // Far from those that are tried: of a spacing of 47 degrees.
    for turn in rotations(180.0, 47.0).into_iter().skip(73).take(1) {
        let truth = Affine::from_parts(turn, [14.0, -30.0, 8.0]);
        let moving = turned(image, &truth);
        let problem = Problem::new(image, &moving);
        let found =
            register(&problem, &settings, &Device::flex(), &mut Silent).expect("good input");
        let there = points.iter().map(|p| truth.apply(*p)).collect();
        let off = mean_mm(&found, &[points.clone(), there]);
        let margin = found.stages[0].margin;
        println!("{off:.3} mm, margin {margin:?}");
        // Voxels of 8 mm.
        assert!(off < 2.0, "{off} mm");
        assert!(margin.is_some_and(|margin| margin > 0.1), "{margin:?}");
    }
}
