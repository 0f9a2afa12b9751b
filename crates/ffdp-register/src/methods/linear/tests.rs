//! Linear maps: their derivatives, the moments they start from, and whether they are found again.

use burn::tensor::Device;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::affine::General;
use super::mass::Mass;
use super::motion::{Frame, Map, Motion};
use super::rigid::{Rigid, rotation};
use super::search::{Bounds, Judged, LinearSearch, State};
use super::similarity::Similar;
use super::together::{AT_ONCE, together};
use crate::level::Solver;
use crate::pair::LevelPair;
use crate::places::Places;
use crate::tests::register;
use crate::{
    Preset, Problem, Registration, Settings, Silent, Similarity, Stage,
    methods::GreedySettings,
    report::Outcome,
    settings::{LinearSettings, LnccSettings, MiSettings, MomentsSettings},
};
use ffdp_burn::transform::{Composite, Step};
use ffdp_image::image::{Geometry, Matrix3, Volume};
use ffdp_image::synth::{Modality, PhantomSettings, subject};
use ffdp_kit::testing::gradcheck;
use ffdp_parallel::{Sharded, alignment::Outside};

/// Central differences of smooth functions of order 1, extrapolated.
const FINITE_DIFFERENCES: f64 = 1e-8;
/// Steps end at a hundredth of a voxel of 2 mm; rounded losses change them by less.
const SIDE_BY_SIDE_MM: f64 = 0.02;
/// Differences of a loss in f32, over steps of 0.02 mm.
const F32_DIFFERENCES: f64 = 2e-2;
/// Sums of 120,000 f32 values in another order, some of which cancel.
const BATCH_ROUNDING: f64 = 1e-4;

const FRAME: Frame = Frame { centre_mm: [3.0, -20.0, 11.0], radius_mm: 70.0 };

fn check_motion<M: Motion<N>, const N: usize>(at: [f64; N]) {
    // A linear function of the rows: its gradient to the rows is the weights.
    let weights: [[f64; 4]; 3] = std::array::from_fn(|i| {
        std::array::from_fn(|j| 0.3 + 0.7 * i as f64 - 0.4 * j as f64 + (i * j) as f64 / 7.0)
    });
    let value = |map: &Map| -> f64 {
        map.rows().iter().flatten().zip(weights.iter().flatten()).map(|(a, b)| a * b).sum()
    };
    let checks = gradcheck(&["parameters"], &[at.to_vec()], 1e-2, |inputs| {
        let at: [f64; N] = inputs[0].clone().try_into().expect("as many as went in");
        let gradient = M::gradient(&FRAME, &at, &weights);
        (value(&M::map(&FRAME, &at)), vec![gradient.to_vec()])
    });
    assert!(checks[0].error < FINITE_DIFFERENCES, "{at:?}: {checks:?}");
}

#[test]
fn motions_have_the_derivatives_of_finite_differences() {
    check_motion::<Rigid, 6>([0.0; 6]);
    check_motion::<Rigid, 6>([12.0, -31.0, 8.0, 3.0, -4.0, 9.0]);
    check_motion::<Rigid, 6>([120.0, -91.0, 80.0, 3.0, -4.0, 9.0]);
    check_motion::<Similar, 7>([0.0; 7]);
    check_motion::<Similar, 7>([12.0, -31.0, 8.0, 3.0, -4.0, 9.0, 15.0]);
    check_motion::<Similar, 7>([12.0, -31.0, 8.0, 3.0, -4.0, 9.0, -25.0]);
    check_motion::<General, 12>([0.0; 12]);
    check_motion::<General, 12>(std::array::from_fn(|i| 3.0 * i as f64 - 17.0));
}

#[test]
fn a_parameter_of_one_mm_moves_the_border_by_about_one_mm() {
    let moved = |map: Map, p: [f64; 3]| {
        let q = map.apply(p);
        (0..3).map(|i| (q[i] - p[i]).powi(2)).sum::<f64>().sqrt()
    };
    let [x, y, z] = FRAME.centre_mm;
    // Where the parameter has its largest effect: on axes that are not the rotation's.
    for k in 0..6 {
        let at = std::array::from_fn(|i| f64::from(u8::from(i == k)));
        let map = Rigid::map(&FRAME, &at);
        let r = FRAME.radius_mm;
        let points = [[x + r, y, z], [x, y + r, z], [x, y, z + r]];
        let most = points.map(|p| moved(map, p)).into_iter().fold(0.0, f64::max);
        assert!((most - 1.0).abs() < 1e-3, "parameter {k}: {most} mm");
        let centre = moved(map, FRAME.centre_mm);
        assert!(if k < 3 { centre < 1e-12 } else { (centre - 1.0).abs() < 1e-12 }, "{k}: {centre}");
    }
}

fn product(a: &Matrix3, b: &Matrix3) -> Matrix3 {
    std::array::from_fn(|i| std::array::from_fn(|j| (0..3).map(|k| a[i][k] * b[k][j]).sum()))
}

/// An ellipsoid with soft edges on an oblique, flipped, anisotropic grid.
fn ellipsoid(centre: [f64; 3], turn: &Matrix3, semi_axes: [f64; 3]) -> Volume {
    let grid = Geometry::new([60, 40, 50], [2.0, 3.5, 2.5]).expect("valid");
    let tilt = rotation([0.1, -0.2, 0.3]);
    let flip = [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let grid = grid.with_direction(product(&tilt, &flip)).expect("orthogonal");
    let middle = grid.center_mm();
    let grid =
        grid.with_origin(std::array::from_fn(|i| centre[i] - middle[i] + 2.0)).expect("finite");
    let to_mm = grid.voxel_to_mm();
    let value = |offset| {
        let p = to_mm.apply(grid.index_of(offset).map(|i| i as f64));
        let along = |k: usize| (0..3).map(|i| turn[i][k] * (p[i] - centre[i])).sum::<f64>();
        let radius = (0..3).map(|k| (along(k) / semi_axes[k]).powi(2)).sum::<f64>().sqrt();
        (1.0 / (1.0 + (12.0 * (radius - 1.0)).exp())) as f32
    };
    Volume::new((0..grid.len()).map(value).collect(), grid.clone()).expect("one value a voxel")
}

#[test]
fn moments_are_those_of_the_object_on_any_grid() {
    let turn = rotation([0.4, 0.7, -0.5]);
    let centre = [31.0, -12.0, 44.0];
    let mass = Mass::of(&ellipsoid(centre, &turn, [42.0, 30.0, 20.0]), 0.1);
    let off = (0..3).map(|i| (mass.centre_mm[i] - centre[i]).abs()).fold(0.0, f64::max);
    assert!(off < 0.05, "centre {:?} mm", mass.centre_mm);
    let axes = mass.axes();
    for k in 0..3 {
        let cosine: f64 = (0..3).map(|i| axes[i][k] * turn[i][k]).sum();
        assert!(cosine.abs() > 0.9999, "axis {k}: {axes:?} against {turn:?}");
    }
    // Of the ball with the same trace: sum of squares of the semi-axes / 5, times 5 / 3.
    let expected = ((42f64.powi(2) + 30f64.powi(2) + 20f64.powi(2)) / 3.0).sqrt();
    // The soft edge, a twelfth of the radius wide, adds at most (1 + 20 pi^2 / 864) / (1 + 6 pi^2 / 864)
    // to the second moment: the integrals of r^4 and r^2 under a logistic edge (Sommerfeld).
    let ratio = mass.radius_mm() / expected;
    assert!((1.0..1.072).contains(&ratio), "{ratio} of {expected} mm");
}

/// Two images on their own grids, in one piece.
fn whole_pair(images: [&Volume; 2]) -> LevelPair {
    let cpu = Device::flex();
    let grids = images.map(|image| image.geometry.clone());
    let tensors = images.map(|image| Sharded::whole(image.to_tensor(&cpu)));
    let dims = images.map(|image| image.geometry.dims());
    let places = Places::whole(&cpu, dims).expect("one shard");
    LevelPair::new(grids, tensors, [false; 2], places, None)
}

#[test]
fn the_gradient_to_a_map_is_that_of_finite_differences() {
    let turn = rotation([0.4, 0.7, -0.5]);
    for similarity in [
        Similarity::Mse,
        Similarity::Lncc(LnccSettings::default()),
        Similarity::Mi(MiSettings::default()),
        Similarity::Nmi(MiSettings::default()),
    ] {
        let fixed = ellipsoid([1.0, 2.0, 3.0], &turn, [42.0, 30.0, 20.0]);
        let moving = ellipsoid([4.0, -3.0, 5.0], &turn, [40.0, 33.0, 22.0]);
        let pair = whole_pair([&fixed, &moving]);
        let aligned = pair.alignment(similarity.loss(), Outside::Background);
        let start = Map::from_parts(rotation([0.05, -0.1, 0.08]), [1.0, -2.0, 0.5]);
        let (_, gradient) = aligned.gradient(&start).expect("readable");
        let frame = Frame { centre_mm: [1.0, 2.0, 3.0], radius_mm: 30.0 };
        // Along the parameters, in mm: rows differ in scale by a hundred.
        let to_motion = std::array::from_fn(|i| {
            std::array::from_fn(|j| (0..3).map(|k| start.linear()[k][i] * gradient[k][j]).sum())
        });
        let slopes = General::gradient(&frame, &[0.0; 12], &to_motion);
        let loss = |k: usize, h: f64| {
            let mut at = State::<12>::default().at;
            at[k] = h;
            aligned.loss(&General::map(&frame, &at).then(&start)).expect("readable")
        };
        let h = 0.02;
        let differences: [f64; 12] =
            std::array::from_fn(|k| (loss(k, h) - loss(k, -h)) / (2.0 * h));
        let largest = differences.iter().fold(0.0f64, |m, d| m.max(d.abs()));
        let off = (0..12).map(|k| (slopes[k] - differences[k]).abs()).fold(0.0, f64::max);
        println!("{similarity:?}: off by {:.1e} of {largest:.2e} per mm", off / largest);
        assert!(off < F32_DIFFERENCES * largest, "{similarity:?}: {slopes:?} {differences:?}");
    }
}

#[test]
fn searches_side_by_side_find_what_each_finds_alone() {
    let turn = rotation([0.4, 0.7, -0.5]);
    let fixed = ellipsoid([1.0, 2.0, 3.0], &turn, [42.0, 30.0, 20.0]);
    let moving = ellipsoid([4.0, -3.0, 5.0], &turn, [40.0, 33.0, 22.0]);
    let pair = whole_pair([&fixed, &moving]);
    for similarity in [Similarity::Mse, Similarity::Nmi(MiSettings::default())] {
        let aligned = pair.alignment(similarity.loss(), Outside::Ignored);
        let frame = Frame { centre_mm: [1.0, 2.0, 3.0], radius_mm: 30.0 };
        // The last one lies far away, and ends at once.
        let angles = [[0.0; 3], [0.2, 0.1, 0.0], [-0.3, 0.0, 0.4], [0.0, 0.5, 0.1]];
        let shifts = [[0.0; 3], [3.0, 1.0, -2.0], [-6.0, 2.0, 0.0], [500.0, 0.0, 0.0]];
        let starts = angles.into_iter().zip(shifts);
        let starts: Vec<_> = starts.map(|(a, t)| Map::from_parts(rotation(a), t)).collect();
        let run = |start: Map, images: Judged| {
            let bounds = Bounds::of(&LinearSettings::default(), &images, &start);
            let state = State::default();
            let mut search = LinearSearch::<Rigid, 6>::new(images, frame, bounds, start, state);
            let losses = search.iterate(6)?;
            Ok((search.map(), losses))
        };
        let alone = |start: &Map| run(*start, Judged::from(&aligned)).expect("readable");
        let expected: Vec<_> = starts.iter().map(alone).collect();
        let got = together(&aligned, starts, run).expect("readable");
        let steps: Vec<usize> = got.iter().map(|(_, losses)| losses.len()).collect();
        assert!(steps[..3].iter().all(|steps| *steps > 2), "{similarity:?}: {steps:?}");
        // A batch adds the same votes in another order.
        for ((map, losses), (alone, losses_alone)) in got.iter().zip(&expected) {
            let off = off_at_corners_mm(map, alone, ([-29.0, -28.0, -27.0], [31.0, 32.0, 33.0]));
            let off = off.into_iter().fold(0.0, f64::max);
            println!("{similarity:?}: off by {off:.1e} in {} steps", losses.len());
            assert!(off < SIDE_BY_SIDE_MM, "{similarity:?}: {map:?} {alone:?}");
            assert_eq!(losses.len(), losses_alone.len(), "{similarity:?}");
        }
    }
}

#[test]
fn more_searches_than_run_at_a_time_have_the_losses_and_gradients_of_single_maps() {
    let turn = rotation([0.4, 0.7, -0.5]);
    let fixed = ellipsoid([1.0, 2.0, 3.0], &turn, [42.0, 30.0, 20.0]);
    let moving = ellipsoid([4.0, -3.0, 5.0], &turn, [40.0, 33.0, 22.0]);
    let pair = whole_pair([&fixed, &moving]);
    let aligned = pair.alignment(Similarity::Mse.loss(), Outside::Background);
    let maps = (0..AT_ONCE + 3).map(|k| Map::from_parts(rotation([0.01 * k as f64; 3]), [0.0; 3]));
    let maps: Vec<Map> = maps.collect();
    let run = |map: Map, mut images: Judged| (images.judge)(&map);
    let got = together(&aligned, maps.clone(), run).expect("readable");
    assert_eq!(got.len(), maps.len());
    for (map, (loss, gradient)) in maps.iter().zip(got) {
        let (alone, alone_gradient) = aligned.gradient(map).expect("readable");
        assert!((loss - alone).abs() <= BATCH_ROUNDING * alone, "{map:?}: {loss} {alone}");
        let pairs = gradient.as_flattened().iter().zip(alone_gradient.as_flattened());
        let off = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let largest = alone_gradient.as_flattened().iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        assert!(off <= BATCH_ROUNDING * largest, "{map:?}: off by {off} of {largest}");
    }
}

#[test]
fn an_error_of_one_search_is_that_of_all() {
    let ball = ellipsoid([0.0; 3], &rotation([0.0; 3]), [30.0; 3]);
    let pair = whole_pair([&ball, &ball]);
    let aligned = pair.alignment(Similarity::Mse.loss(), Outside::Background);
    let run = |k: usize, mut images: Judged| {
        let (loss, _) = (images.judge)(&Map::identity())?;
        let fault = || ffdp_image::Error::invalid("a search must end well", k, "try another one");
        if k == 2 { Err(fault()) } else { Ok(loss) }
    };
    assert_eq!(together(&aligned, vec![0, 1, 3], run).expect("no fault"), [0.0; 3]);
    let message = together(&aligned, vec![0, 1, 2, 3], run).expect_err("one fault").to_string();
    assert!(message.contains("a search must end well, got 2"), "{message}");
}

/// A head and the same head seen through a map that turns it by up to 30 degrees about any axis,
/// stretches every axis by up to 20 %, shears by up to 0.1 and shifts by up to 25 mm each way, on
/// another grid. Returns fixed, moving and the map.
fn trial(seed: u64, modality: Modality) -> (Volume, Volume, Map) {
    let mut rng = ChaCha8Rng::seed_from_u64(1000 + seed);
    let mut within = |width: f64| rng.random_range(-width..width);
    let axis = [within(1.0), within(1.0), within(1.0)];
    let angle = within(30f64.to_radians());
    let length = axis.iter().map(|v| v * v).sum::<f64>().sqrt();
    let turn = rotation(axis.map(|v| v * angle / length));
    let scale = [1.0 + within(0.2), 1.0 + within(0.2), 1.0 + within(0.2)];
    let stretch =
        [[scale[0], within(0.1), within(0.1)], [0.0, scale[1], within(0.1)], [0.0, 0.0, scale[2]]];
    let shift = [within(25.0), within(25.0), within(25.0)];
    let head = Frame { centre_mm: [0.0, -16.0, 4.0], radius_mm: 1.0 };
    let truth = head.about_centre(product(&turn, &stretch), shift);

    let fixed = subject(&PhantomSettings::with_size([64; 3]), seed).expect("valid").image;
    // Another sampling of the head, with noise of its own, on a grid with room for it.
    let fine = PhantomSettings { modality, ..PhantomSettings::with_size([80; 3]) };
    let source = subject(&fine, seed).expect("valid").image;
    let grid = Geometry::new([88, 80, 72], [3.5, 4.0, 4.5]).expect("valid");
    let middle = grid.center_mm();
    let grid =
        grid.with_origin(std::array::from_fn(|i| head.centre_mm[i] - middle[i])).expect("finite");
    let back = Composite::new(vec![Step::Affine(truth.inverse().expect("regular"))]);
    let moving = back.warp(&source, &grid, &Device::flex()).expect("readable");
    (fixed, moving, truth)
}

fn linear_only(affine: LinearSettings) -> Settings {
    let stages = Settings::default().stages;
    let mut stages: Vec<Stage> = stages.into_iter().filter(Stage::is_linear).collect();
    stages.pop();
    stages.push(Stage::Affine(affine));
    Settings { stages, ..Settings::default() }
}

fn run(fixed: &Volume, moving: &Volume, settings: &Settings) -> Registration {
    register(&Problem::new(fixed, moving), settings, &Device::flex(), &mut Silent)
        .expect("good input")
}

/// The distance of two maps at each corner of a box.
fn off_at_corners_mm(a: &Map, b: &Map, (low, high): ([f64; 3], [f64; 3])) -> [f64; 8] {
    std::array::from_fn(|c| {
        let p = std::array::from_fn(|i| if c >> i & 1 == 1 { high[i] } else { low[i] });
        let (a, b) = (a.apply(p), b.apply(p));
        (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt()
    })
}

/// Mean and largest distance of two maps over the corners of the head's box, in voxels of 3.125 mm.
fn corner_error(found: &Map, truth: &Map) -> [f64; 2] {
    let head = ([-78.0, -116.0, -80.0], [78.0, 84.0, 88.0]);
    let errors = off_at_corners_mm(found, truth, head).map(|mm| mm / 3.125);
    [errors.iter().sum::<f64>() / 8.0, errors.into_iter().fold(0.0, f64::max)]
}

/// The last level has voxels of 6.25 mm; MI weighs the outline, which is blurred differently in the
/// two images, so that the map is a fifth of such a voxel too small or too large at the corners.
const CORNER_VOXELS: f64 = 1.0;

fn recover(seeds: std::ops::Range<u64>, modality: Modality) {
    let (mut means, mut worst) = (0.0, 0.0f64);
    let count = (seeds.end - seeds.start) as f64;
    for seed in seeds {
        let (fixed, moving, truth) = trial(seed, modality);
        let result = run(&fixed, &moving, &linear_only(LinearSettings::default()));
        let [mean, largest] = corner_error(&result.affine, &truth);
        println!("seed {seed}: corners off by {mean:.3}, at most {largest:.3} voxels");
        assert!(result.stages.iter().all(|stage| stage.undone.is_none()));
        assert!(largest < CORNER_VOXELS, "seed {seed}: {largest} voxels");
        means += mean / count;
        worst = worst.max(largest);
    }
    println!("{count} trials: mean {means:.3}, largest {worst:.3} voxels");
}

#[test]
fn affine_maps_are_recovered() {
    // Seed 0 has its mirror-like placement nearly as alike as the right one.
    recover(0..2, Modality::T1);
}

#[test]
#[ignore = "fifty registrations: minutes"]
fn affine_maps_are_recovered_in_every_one_of_fifty_trials() {
    recover(0..50, Modality::T1);
}

#[test]
#[ignore = "ten registrations: a minute"]
fn affine_maps_are_recovered_across_modalities() {
    recover(0..10, Modality::T2);
}

#[test]
fn rigid_stages_stay_rigid_and_see_through_headers_that_do_not_meet() {
    let (fixed, _, _) = trial(3, Modality::T1);
    // The header says that the head lies half a metre away and is turned.
    let away = Map::from_parts(rotation([0.2, -0.1, 0.3]), [500.0, -30.0, 40.0]);
    let g = &fixed.geometry;
    let placed = Geometry::from_affine(g.size, g.voxel_to_mm().then(&away)).expect("valid");
    let moving = Volume::new(fixed.data.clone(), placed).expect("same size");
    let stages =
        vec![Stage::Moments(MomentsSettings::default()), Stage::Rigid(LinearSettings::default())];
    let settings = Settings { stages, ..Settings::default() };
    let result = run(&fixed, &moving, &settings);
    let linear = result.affine.linear();
    let transposed: Matrix3 = std::array::from_fn(|i| std::array::from_fn(|j| linear[j][i]));
    let gram = product(&transposed, &linear);
    let off = (0..9).map(|k| (gram[k / 3][k % 3] - f64::from(u8::from(k % 4 == 0))).abs());
    assert!(off.fold(0.0, f64::max) < 1e-12, "a rotation: {linear:?}");
    let [_, largest] = corner_error(&result.affine, &away);
    assert!(largest < 0.1, "{largest} voxels");
    assert_eq!(result.outcome, Outcome::Improved);
    let without = Settings { stages: settings.stages[1..].to_vec(), ..settings };
    let problem = Problem::new(&fixed, &moving);
    let refused = register(&problem, &without, &Device::flex(), &mut Silent);
    assert!(refused.expect_err("no overlap").to_string().contains("0.00 %"));
}

/// The last level has voxels of 6.25 mm, as those of [`CORNER_VOXELS`].
#[test]
fn similarity_stages_find_turn_shift_and_one_scale_and_keep_to_them() {
    let (fixed, _, _) = trial(5, Modality::T1);
    let head = Frame { centre_mm: [0.0, -16.0, 4.0], radius_mm: 70.0 };
    let truth = Similar::map(&head, &[14.0, -9.0, 12.0, 6.0, -8.0, 5.0, 9.0]);
    let back = Composite::new(vec![Step::Affine(truth.inverse().expect("regular"))]);
    let grid = Geometry::new([88, 88, 88], [3.5; 3]).expect("valid");
    let middle = grid.center_mm();
    let grid = grid.with_origin(std::array::from_fn(|i| head.centre_mm[i] - middle[i]));
    let moving = back.warp(&fixed, &grid.expect("finite"), &Device::flex()).expect("readable");
    let similarity = || Stage::Similarity(LinearSettings::default());
    let stages = vec![Stage::Moments(MomentsSettings::default()), similarity()];
    let result = run(&fixed, &moving, &Settings { stages, ..Settings::default() });
    let linear = result.affine.linear();
    let gram: Matrix3 = std::array::from_fn(|i| {
        std::array::from_fn(|j| (0..3).map(|k| linear[k][i] * linear[k][j]).sum())
    });
    let square = gram[0][0];
    let off = (0..9).map(|k| (gram[k / 3][k % 3] - square * f64::from(u8::from(k % 4 == 0))).abs());
    assert!(off.fold(0.0, f64::max) < 1e-12, "no shear, one scale: {linear:?}");
    let scale = square.sqrt() / (9.0f64 / 70.0).exp();
    let [mean, largest] = corner_error(&result.affine, &truth);
    println!(
        "scale {scale} of the true one, corners off by {mean:.3}, at most {largest:.3} voxels"
    );
    // A fifth of a voxel of 6.25 mm at 70 mm from the centre.
    assert!(largest < CORNER_VOXELS && (scale - 1.0).abs() < 0.018, "{scale}, {largest} voxels");
}

#[test]
fn equal_images_stay_where_they_are() {
    let (fixed, _, _) = trial(3, Modality::T1);
    let affine = LinearSettings { similarity: Similarity::Mse, ..LinearSettings::default() };
    let settings = Settings { stages: vec![Stage::Affine(affine)], ..Settings::default() };
    let result = run(&fixed, &fixed, &settings);
    assert_eq!(result.affine, Map::identity());
    assert_eq!((result.outcome, result.loss_after), (Outcome::NotImproved, 0.0));
}

#[test]
fn stages_and_settings_without_meaning_are_refused() {
    let greedy = || Stage::Greedy(GreedySettings::default());
    let affine = || Stage::Affine(LinearSettings::default());
    let moments = |change: &dyn Fn(&mut MomentsSettings)| {
        let mut settings = MomentsSettings::default();
        change(&mut settings);
        Stage::Moments(settings)
    };
    let stages = |stages| Settings { stages, ..Settings::default() };
    let few_bins = Similarity::Nmi(MiSettings { bins: 4, ..MiSettings::default() });
    for (settings, words) in [
        (stages(vec![greedy(), affine()]), ["before deformable", "[\"greedy\", \"affine\"]"]),
        (stages(vec![affine(), moments(&|_| {})]), ["first stage", "[\"affine\", \"moments\"]"]),
        (stages(vec![moments(&|s| s.shrink = 0.5)]), ["shrink", "0.5"]),
        (stages(vec![moments(&|s| s.foreground = 1.0)]), ["foreground", "1.0"]),
        (stages(vec![moments(&|s| s.refinement = 0)]), ["refinement", "0.0"]),
        (stages(vec![moments(&|s| s.similarity = few_bins.clone())]), ["bins", "4"]),
        (
            stages(vec![Stage::Rigid(LinearSettings {
                stretch: 0.5,
                ..LinearSettings::default()
            })]),
            ["stretch", "0.5"],
        ),
        (
            stages(vec![Stage::Rigid(LinearSettings {
                overlap: 1.5,
                ..LinearSettings::default()
            })]),
            ["overlap", "1.5"],
        ),
        (Settings { minimum_axis_voxels: 4, ..Settings::default() }, ["minimum_axis_voxels", "4"]),
    ] {
        let text = settings.validate().expect_err("must be refused").to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
    for preset in [Preset::Fast, Preset::Default, Preset::Quality, Preset::Multimodal, Preset::Hard]
    {
        Settings::preset(preset).validate().expect("presets are valid");
    }
}
