//! A registration in shards finds what the whole one finds.

use burn::tensor::Device;

use super::{
    brief, found, half_heads, little_smoothing, methods, only, pair_of, register, short,
    tall_pair_of, warp,
};
use crate::{
    Content, LevelSettings, Problem, Registration, Settings, Silent, Similarity, Stage,
    memory::shards_needed,
    methods::GreedySettings,
    result::Warp,
    settings::{AdamSettings, OptimizerSettings},
};
use ffdp_burn::ops::MomentStorage;
use ffdp_image::error::Error;
use ffdp_image::image::{Geometry, Volume};
use ffdp_parallel::DeviceMesh;

/// The bound on a registration's field, in voxels.
const FIELD_VOXELS: f32 = 1e-3;
/// Of losses: sums of 10^4 terms in another order.
const LOSS: f64 = 1e-5;

fn mesh(shards: usize) -> DeviceMesh {
    DeviceMesh::new(&[Device::flex()], shards).expect("a device and a shard")
}

#[test]
fn shards_find_what_the_whole_finds() {
    let pair = tall_pair_of([20, 22, 32], 3);
    let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
    for similarity in [GreedySettings::default().similarity, Similarity::Mse] {
        let greedy = GreedySettings { similarity: similarity.clone(), ..brief() };
        let whole = found(&problem, Stage::Greedy(greedy.clone()));
        let field = warp(&whole).to_vec().expect("readable");
        assert!(field.iter().any(|u| u.abs() > 0.5), "it moves");
        // Of 16 planes on the coarse level, more shards than which there cannot be.
        for shards in [2, 5, 20] {
            let settings = only(greedy.clone());
            let cut = register(&problem, &settings, &mesh(shards), &mut Silent);
            let cut = cut.expect("good input");
            let parts = warp(&cut).to_vec().expect("readable");
            let off = field.iter().zip(&parts).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
            println!("{similarity:?} in {shards} shards: {off:.1e} voxel");
            assert!(off <= FIELD_VOXELS, "{similarity:?} in {shards} shards: {off} voxel");
            let off = (whole.loss_after - cut.loss_after).abs();
            assert!(off <= LOSS, "{similarity:?} in {shards} shards: losses {off} apart");
        }
    }
}

#[test]
fn shards_find_what_the_whole_finds_inside_masks() {
    let pair = tall_pair_of([20, 22, 32], 3);
    let [fixed, moving] = [&pair.fixed.image, &pair.moving.image];
    let masks = half_heads(&pair);
    for masked in [[true, false], [false, true], [true, true]] {
        let problem = Problem {
            fixed_mask: masked[0].then(|| (&masks[0]).into()),
            moving_mask: masked[1].then(|| (&masks[1]).into()),
            ..Problem::new(fixed, moving)
        };
        for similarity in [GreedySettings::default().similarity, Similarity::Mse] {
            // Where masks end, steps of Adam make rounding grow: with more smoothing to 1.1e-3 voxels.
            let greedy = GreedySettings { similarity: similarity.clone(), ..brief() };
            let greedy = little_smoothing(Stage::Greedy(greedy));
            let whole = found(&problem, greedy.clone());
            let settings = Settings { stages: vec![greedy], ..Settings::default() };
            let cut = register(&problem, &settings, &mesh(3), &mut Silent);
            let cut = cut.expect("good input");
            let [a, b] = [&whole, &cut].map(|found| warp(found).to_vec().expect("readable"));
            let off = a.iter().zip(&b).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
            println!("{similarity:?}, masks {masked:?}: {off:.1e} voxel");
            assert!(a.iter().any(|u| u.abs() > 0.5), "it moves");
            assert!(off <= FIELD_VOXELS, "{similarity:?}, masks {masked:?}: {off} voxel");
            let off = (whole.loss_after - cut.loss_after).abs();
            assert!(off <= LOSS, "{similarity:?}, masks {masked:?}: losses {off} apart");
        }
    }
}

#[test]
fn shards_find_what_every_method_finds_in_the_whole() {
    let pair = tall_pair_of([20, 22, 34], 3);
    let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
    for similarity in [GreedySettings::default().similarity, Similarity::Mse] {
        let levels = vec![
            LevelSettings { shrink: 2.0, iterations: 12 },
            LevelSettings { shrink: 1.0, iterations: 4 },
        ];
        let greedy = GreedySettings { similarity: similarity.clone(), levels, ..short() };
        // By squares the greedy method is above.
        let first = if similarity == Similarity::Mse { 1 } else { 0 };
        for stage in methods(&greedy).into_iter().skip(first) {
            let (whole, name) = (found(&problem, stage.clone()), stage.name());
            let field = warp(&whole).to_vec().expect("readable");
            assert!(field.iter().any(|u| u.abs() > 0.5), "{name}: it moves");
            // 34 planes, of which 4 shards get unequal parts; 17 on the coarse level. Three are in the matrix.
            for shards in [2, 4] {
                let settings = Settings { stages: vec![stage.clone()], ..Settings::default() };
                let cut = register(&problem, &settings, &mesh(shards), &mut Silent);
                let cut = cut.expect("good input");
                let label = format!("{name} by {similarity:?} in {shards} shards");
                let deformed = |found: &Registration| found.warp.clone().expect("deformable");
                let apart = |a: &Warp, b: &Warp| {
                    let [a, b] = [a, b].map(|field| field.to_vec().expect("readable"));
                    a.iter().zip(&b).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()))
                };
                let off = apart(&deformed(&whole), &deformed(&cut));
                println!("{label}: {off:.1e} voxel");
                assert!(off <= FIELD_VOXELS, "{label}: {off} voxel");
                if let (Some(whole), Some(cut)) = (&whole.inverse, &cut.inverse) {
                    let off = apart(whole, cut);
                    assert!(off <= FIELD_VOXELS, "{label}: the inverse is {off} voxel off");
                }
                let off = (whole.loss_after - cut.loss_after).abs();
                assert!(off <= LOSS, "{label}: losses {off} apart");
            }
        }
    }
}

#[test]
fn a_plane_in_several_shards_is_refused() {
    let pair = pair_of(32, 3);
    let plane = |image: &Volume| {
        let geometry = Geometry::new([32, 32, 1], [1.0; 3]).expect("a plane");
        let first = 16 * 32 * 32;
        Volume::new(image.data[first..first + 32 * 32].to_vec(), geometry).expect("fits")
    };
    let (fixed, moving) = (plane(&pair.fixed.image), plane(&pair.moving.image));
    let problem = Problem::new(&fixed, &moving);
    let error = register(&problem, &only(short()), &mesh(2), &mut Silent).expect_err("a plane");
    assert!(error.to_string().contains("several planes"), "{error}");
}

#[test]
fn memory_decides_the_number_of_shards() {
    let pair = pair_of(32, 3);
    let grids = [&pair.fixed.image.geometry, &pair.moving.image.geometry];
    let adam = AdamSettings { moments: MomentStorage::Bf16, ..AdamSettings::default() };
    let greedy = GreedySettings { optimizer: OptimizerSettings::Adam(adam), ..short() };
    let settings = only(greedy);
    let needed = |devices, bytes| shards_needed(&settings, grids, Content::PLAIN, devices, bytes);
    let voxels = 32u64.pow(3);
    assert_eq!(needed(1, 1000 * voxels).expect("room"), 1);
    assert_eq!(needed(3, 1000 * voxels).expect("room"), 3);
    let few = needed(1, 75 * voxels).expect("room for the state");
    assert!(few > 1, "{few}");
    let error = needed(1, 40 * voxels).expect_err("the state alone takes more");
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}
