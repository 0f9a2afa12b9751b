//! Labels that drive a registration, and terms of a similarity that name channels.

use std::sync::Arc;
use std::thread;

use burn::tensor::Device;

use super::slabs::{FIELD_VOXELS, LOSS};
use super::{
    brief, found, half_heads, methods, only, pair_of, register, register_slabs, short,
    some_methods, warp,
};
use crate::labels::LabelChannels;
use crate::{
    LevelSettings, Placement, Problem, Registration, Settings, Silent, Similarity, Stage,
    methods::{DiscreteRound, DiscreteSettings, FfdSettings, GnkSettings, GreedySettings},
    settings::{LabelTerm, LinearSettings, MiSettings, OptimizerSettings},
};
use ffdp_burn::losses::{Dice, Mse, Pair as Compared, SimilarityLoss, SimilarityTerm};
use ffdp_burn::ops::Interpolation;
use ffdp_image::image::{LabelMap, Volume};
use ffdp_image::metrics::dice_of;
use ffdp_image::synth::Pair;
use ffdp_kit::testing::{tensor, to_f64, uniform};
use ffdp_parallel::{
    DeviceMesh,
    hosts::{Ranks, Threads},
};

/// White matter and cortex of either side.
const LABELS: [i32; 4] = [1, 2, 3, 4];

/// Labels as planes show them.
fn planes_of(labels: &LabelMap) -> Volume {
    let data = labels.data.iter().map(|label| *label as f32).collect();
    Volume::new(data, labels.geometry.clone()).expect("same size")
}

fn maps(pair: &Pair) -> [Volume; 2] {
    [planes_of(&pair.fixed.labels), planes_of(&pair.moving.labels)]
}

fn driven(stage: Stage, weight: f64) -> Settings {
    let label_term = Some(LabelTerm { weight, ..LabelTerm::of(LABELS) });
    Settings { stages: vec![stage], label_term, ..Settings::default() }
}

/// The mean Dice of the labels.
fn overlap(found: &Registration, pair: &Pair) -> f64 {
    let grid = &pair.fixed.image.geometry;
    let transform = found.transform().expect("readable");
    let labels = &pair.moving.labels;
    let moved = transform.warp_labels(labels, grid, Interpolation::Nearest, &Device::flex());
    let moved = moved.expect("labels");
    dice_of(&pair.fixed.labels.data, &moved.data, &LABELS).expect("one grid").mean()
}

/// The largest difference of two fields.
fn apart(a: &Registration, b: &Registration) -> f32 {
    let [a, b] = [a, b].map(|found| warp(found).to_vec().expect("readable"));
    a.iter().zip(&b).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()))
}

/// Steps of a voxel.
fn search() -> DiscreteSettings {
    let rounds = vec![DiscreteRound { spacing_voxels: 2, step_voxels: 1, radius: 3 }];
    DiscreteSettings { rounds, ..DiscreteSettings::default() }
}

#[test]
fn labels_lead_every_method_where_the_images_do_not() {
    let pair = pair_of(32, 5);
    let [fixed, moving] = maps(&pair);
    // The same image twice shows no motion at all.
    let image = &pair.fixed.image;
    let [here, there] = [&pair.fixed, &pair.moving].map(|side| &side.labels.data);
    let without = dice_of(here, there, &LABELS).expect("one grid").mean();
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let levels = vec![level(2.0, 20), level(1.0, 15)];
    let ffd =
        FfdSettings { levels: levels.clone(), spacing_mm: [12.0; 3], ..FfdSettings::default() };
    let gnk = GnkSettings { levels: vec![level(1.0, 4)], ..GnkSettings::default() };
    let others = [Stage::Ffd(ffd), Stage::Gnk(gnk), Stage::Discrete(search())];
    let greedy = GreedySettings { levels, ..GreedySettings::default() };
    for stage in methods(&greedy).into_iter().chain(others) {
        let name = stage.name();
        let labelled = Problem {
            labels: Some([(&fixed).into(), (&moving).into()]),
            ..Problem::new(image, image)
        };
        let settings = driven(stage, 10.0);
        let with = register(&labelled, &settings, &Device::flex(), &mut Silent);
        let with = overlap(&with.expect("good input"), &pair);
        println!("{name}: Dice {without:.3} -> {with:.3}");
        // Images and labels disagree.
        assert!(with > without + 0.05, "{name}: {without} -> {with}");
    }
}

/// Images, labels and masks that are read slab by slab: the field, and the loss.
fn by_planes(
    pair: &Pair,
    masked: bool,
    settings: &Settings,
    placement: &Placement,
) -> (Vec<f32>, f64) {
    let (mut fixed, mut moving) = (pair.fixed.image.clone(), pair.moving.image.clone());
    let [mut fixed_labels, mut moving_labels] = maps(pair);
    let [mut fixed_mask, mut moving_mask] = half_heads(pair);
    let problem = Problem {
        labels: Some([(&mut fixed_labels).into(), (&mut moving_labels).into()]),
        fixed_mask: masked.then(|| (&mut fixed_mask).into()),
        moving_mask: masked.then(|| (&mut moving_mask).into()),
        ..Problem::new(&mut fixed, &mut moving)
    };
    let found = register_slabs(problem, settings, placement, &mut Silent).expect("good input");
    (found.warp.as_ref().expect("it deforms").to_vec().expect("readable"), found.loss_after)
}

#[test]
fn labels_count_in_every_place_as_in_the_whole() {
    let pair = pair_of(32, 5);
    let (labels, masks) = (maps(&pair), half_heads(&pair));
    // Steps in proportion to the gradient: those of Adam are as long where forces cancel, and rounding decides.
    let greedy = GreedySettings { optimizer: OptimizerSettings::Sgd, ..brief() };
    let settings = driven(Stage::Greedy(greedy), 1.0);
    let mesh = |shards| DeviceMesh::new(&[Device::flex()], shards).expect("shards");
    for masked in [false, true] {
        let problem = Problem {
            labels: Some(labels.each_ref().map(Into::into)),
            fixed_mask: masked.then(|| (&masks[0]).into()),
            moving_mask: masked.then(|| (&masks[1]).into()),
            ..Problem::new(&pair.fixed.image, &pair.moving.image)
        };
        let held = |shards| {
            let found = register(&problem, &settings, &mesh(shards), &mut Silent);
            let found = found.expect("good input");
            assert!(found.loss_after < found.loss_before, "masks {masked}");
            (warp(&found).to_vec().expect("readable"), found.loss_after)
        };
        let (field, loss) = held(1);
        let small = Placement::Device { device: Device::flex(), bytes: 400 * 32u64.pow(3) };
        let read = |placement: &Placement| by_planes(&pair, masked, &settings, placement);
        let ranks = thread::scope(|scope| {
            let rank = |ranks: Threads| {
                let ranks: Arc<dyn Ranks> = Arc::new(ranks);
                read(&Placement::Ranks { mesh: mesh(1), ranks })
            };
            let threads = Threads::new(2).into_iter().map(|ranks| scope.spawn(move || rank(ranks)));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        let places = [
            ("shards", held(3)),
            ("slabs", read(&Placement::from(&mesh(2)))),
            ("a small device", read(&small)),
        ];
        for (name, (parts, lost)) in
            places.into_iter().chain(ranks.into_iter().map(|r| ("ranks", r)))
        {
            let off = field.iter().zip(&parts);
            let off = off.fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
            println!("{name}, masks {masked}: {off:.1e} voxels, loss {loss} and {lost}");
            assert!(off <= FIELD_VOXELS, "{name}, masks {masked}: {off} voxels");
            // The overlap weighs several times the similarity.
            assert!((loss - lost).abs() <= 5.0 * LOSS, "{name}, masks {masked}: {loss} {lost}");
        }
    }
}

#[test]
fn labels_and_landmarks_of_a_search_count_in_shards_and_slabs_as_in_the_whole() {
    let pair = pair_of(32, 5);
    let [mut fixed_labels, mut moving_labels] = maps(&pair);
    let labels = [fixed_labels.clone(), moving_labels.clone()];
    // Against the images, so that they show.
    let points = || Some([vec![[0.0, 0.0, 0.0]], vec![[30.0, 0.0, 0.0]]]);
    let settings =
        Settings { landmark_sigma_mm: Some(1.0), ..driven(Stage::Discrete(search()), 5.0) };
    let mesh = |shards| DeviceMesh::new(&[Device::flex()], shards).expect("shards");
    let images = || Problem::new(&pair.fixed.image, &pair.moving.image);
    let held = |shards, labelled: bool, landmarks| {
        let labels = labelled.then(|| labels.each_ref().map(Into::into));
        let settings = Settings {
            label_term: settings.label_term.clone().filter(|_| labelled),
            ..settings.clone()
        };
        let problem = Problem { labels, landmarks, ..images() };
        let found = register(&problem, &settings, &mesh(shards), &mut Silent).expect("good input");
        warp(&found).to_vec().expect("readable")
    };
    let whole = held(1, true, points());
    let (mut f, mut m) = (pair.fixed.image.clone(), pair.moving.image.clone());
    let planes = Problem {
        labels: Some([(&mut fixed_labels).into(), (&mut moving_labels).into()]),
        landmarks: points(),
        ..Problem::new(&mut f, &mut m)
    };
    let slabs = register_slabs(planes, &settings, &Placement::from(&mesh(2)), &mut Silent);
    let slabs = warp(&slabs.expect("good input")).to_vec().expect("readable");
    let apart = |other: &[f32]| {
        let off = whole.iter().zip(other);
        off.fold(0.0f32, |most, (a, b)| most.max((a - b).abs()))
    };
    for (name, parts) in [("shards", held(3, true, points())), ("slabs", slabs)] {
        let off = apart(&parts);
        println!("{name}: {off:.1e} voxels");
        assert!(off <= FIELD_VOXELS, "{name}: {off} voxels");
    }
    // They count: without the labels the field is another one, by far more than parts differ.
    let off = apart(&held(1, false, points()));
    assert!(off > 0.1, "{off} voxels");
}

#[test]
fn stages_before_the_deformation_do_not_see_labels() {
    let pair = pair_of(32, 5);
    let labels = maps(&pair);
    let stages = vec![Stage::Rigid(LinearSettings::default()), Stage::Greedy(short())];
    let settings = Settings { stages, ..driven(Stage::Greedy(short()), 1.0) };
    let images = || Problem::new(&pair.fixed.image, &pair.moving.image);
    let problem = Problem { labels: Some(labels.each_ref().map(Into::into)), ..images() };
    let with = register(&problem, &settings, &Device::flex(), &mut Silent).expect("good input");
    let alone = Settings { label_term: None, ..settings };
    let without = register(&images(), &alone, &Device::flex(), &mut Silent).expect("good input");
    let [a, b] = [&with, &without].map(|found| found.affine.rows().concat());
    let off = a.iter().zip(&b).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
    // Sums in another order, by which searches may end a step elsewhere.
    assert!(off < 0.05, "{off} mm");
    assert!(overlap(&with, &pair) > overlap(&without, &pair));
}

#[test]
fn the_overlap_counts_by_what_the_similarity_gains() {
    let image = |seed| {
        let values = uniform(3 * 60, 0.05, 0.95, seed);
        tensor::<5>(&values, [1, 3, 3, 4, 5], &Device::flex(), burn::tensor::DType::F64)
    };
    let (a, b) = (image(1), image(2));
    let part = |first, count| {
        Compared::new(a.clone().narrow(1, first, count), b.clone().narrow(1, first, count))
    };
    let channels = LabelChannels { images: 1, labels: 2, weight: 0.5 };
    let loss = |loss: &dyn SimilarityLoss, pair: &Compared| to_f64(loss.loss_of(pair))[0];
    let all = loss(&*channels.with(Arc::new(Mse)), &Compared::new(a.clone(), b.clone()));
    let weight = 0.5 * Mse.usual_gain() / Dice.usual_gain();
    let expected = loss(&Mse, &part(0, 1)) + weight * loss(&Dice, &part(1, 2));
    // What keeps a ratio defined, 1e-5 of some 40 voxels, is not scaled as sums are.
    assert!((all - expected).abs() < 1e-7, "{all} {expected}");
    let alone = loss(&*channels.without(Arc::new(Mse)), &Compared::new(a.clone(), b.clone()));
    assert!((alone - loss(&Mse, &part(0, 1))).abs() < 1e-10);
}

#[test]
fn labels_that_cannot_drive_are_refused_with_a_way_out() {
    let pair = pair_of(16, 5);
    let image = &pair.fixed.image;
    let [map, _] = maps(&pair);
    let message = |labels: [&Volume; 2], settings: &Settings| {
        let problem =
            Problem { labels: Some(labels.map(Into::into)), ..Problem::new(image, image) };
        let refused = register(&problem, settings, &Device::flex(), &mut Silent);
        refused.expect_err("they cannot drive").to_string()
    };
    let greedy = driven(Stage::Greedy(short()), 1.0);
    let unset = Settings { label_term: None, ..greedy.clone() };
    assert!(message([&map, &map], &unset).contains("label_term"));
    let rigid = driven(Stage::Rigid(LinearSettings::default()), 1.0);
    assert!(message([&map, &map], &rigid).contains("deformable stages"));
    let mut nothing = map.clone();
    nothing.data.iter_mut().filter(|label| **label == 3.0).for_each(|label| *label = 0.0);
    let text = message([&map, &nothing], &greedy);
    assert!(text.contains("the moving labels") && text.contains("no voxel of label 3"), "{text}");
    let mut half = map.clone();
    half.data[5] = 0.5;
    assert!(message([&half, &map], &greedy).contains("integers"));
    let other = planes_of(&pair_of(17, 5).fixed.labels);
    assert!(message([&other, &map], &greedy).contains("the fixed labels"));
    let empty = Settings { label_term: Some(LabelTerm::of([])), ..greedy.clone() };
    assert!(message([&map, &map], &empty).contains("label_term must be some"));
}

/// A similarity of some channels.
fn term(weight: f64, similarity: Similarity, channels: &[usize]) -> SimilarityTerm {
    SimilarityTerm { weight, channels: Some(channels.to_vec()), similarity }
}

#[test]
fn a_term_sees_the_channels_that_it_names() {
    let pair = pair_of(24, 4);
    let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
    // They have nothing to do with each other.
    let others = [pair_of(24, 11).fixed.image, pair_of(24, 12).moving.image];
    let levels = vec![LevelSettings { shrink: 1.0, iterations: 8 }];
    for similarity in [
        GreedySettings::default().similarity,
        Similarity::Mse,
        Similarity::Mi(MiSettings::default()),
    ] {
        let named = Similarity::Sum(vec![term(1.0, similarity.clone(), &[0])]);
        let greedy = |similarity: &Similarity| GreedySettings {
            similarity: similarity.clone(),
            levels: levels.clone(),
            ..short()
        };
        let alone = some_methods(&greedy(&similarity)).into_iter();
        for (alone, stage) in alone.zip(methods(&greedy(&named))) {
            let alone = found(&Problem::new(fixed, moving), alone);
            let more_channels = vec![others.each_ref().map(Into::into)];
            let problem = Problem { more_channels, ..Problem::new(fixed, moving) };
            let two = found(&problem, stage.clone());
            let off = apart(&alone, &two);
            println!("{similarity:?} {}: {off:.1e} voxels", stage.name());
            // Sums in another order, passed on by eight steps.
            assert!(off < 1e-2, "{similarity:?} {}: {off}", stage.name());
            assert!((alone.loss_after - two.loss_after).abs() < 1e-4);
        }
    }
}

#[test]
fn terms_of_channels_are_the_same_in_shards() {
    let pair = pair_of(32, 5);
    let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
    let squares = [fixed, moving].map(|image| Volume {
        data: image.data.iter().map(|v| v * v).collect(),
        geometry: image.geometry.clone(),
    });
    let lncc = GreedySettings::default().similarity;
    let mi = Similarity::Mi(MiSettings::default());
    for terms in [
        vec![term(1.0, lncc.clone(), &[0]), term(5.0, Similarity::Mse, &[1])],
        vec![term(1.0, lncc, &[0, 1]), term(0.5, mi, &[1])],
    ] {
        let similarity = Similarity::Sum(terms);
        let greedy = GreedySettings { optimizer: OptimizerSettings::Sgd, similarity, ..brief() };
        let problem = Problem {
            more_channels: vec![squares.each_ref().map(Into::into)],
            ..Problem::new(fixed, moving)
        };
        let on = |shards| {
            let mesh = DeviceMesh::new(&[Device::flex()], shards).expect("shards");
            register(&problem, &only(greedy.clone()), &mesh, &mut Silent).expect("good input")
        };
        let (whole, cut) = (on(1), on(3));
        let off = apart(&whole, &cut);
        println!("{:?}: {off:.1e} voxels", greedy.similarity);
        assert!(off <= FIELD_VOXELS, "{:?}: {off} voxels", greedy.similarity);
        assert!(whole.loss_after < whole.loss_before);
    }
}

#[test]
fn channels_that_are_not_there_are_refused_with_the_stage_that_names_them() {
    let pair = pair_of(16, 1);
    let similarity = Similarity::Sum(vec![term(1.0, Similarity::Mse, &[0, 3])]);
    let settings = only(GreedySettings { similarity, ..short() });
    let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
    let refused = register(&problem, &settings, &Device::flex(), &mut Silent);
    let text = refused.expect_err("there is one channel").to_string();
    assert!(text.contains("greedy names channel 3") && text.contains("--channels"), "{text}");
}
