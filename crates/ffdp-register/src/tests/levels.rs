//! The pyramid: every point at its place, isotropic before small.

use burn::tensor::{DType, Device};

use super::{blob, pair_of, register_slabs};
use crate::methods::{DiscreteRound, DiscreteSettings};
use crate::problem::Content;
use crate::pyramid::{level_geometry, level_image};
use crate::settings::LevelSettings;
use crate::{Placement, Problem, Settings, Silent, Stage};
use ffdp_burn::ops::GaussianOptions;
use ffdp_image::image::{Geometry, Volume};
use ffdp_kit::testing::{assert_close, tensor, to_f64, uniform};
use ffdp_parallel::{Axis, DeviceMesh, Layout, Sharded, ops::level};

/// Error of a centre of mass: aliasing of a Gaussian of 0.9 voxels or more is below 1e-6, its tails
/// beyond the grid below 1e-4.
const PLACE_TOLERANCE_VOXELS: f64 = 0.01;

fn centre_of_mass_mm(volume: &Volume) -> [f64; 3] {
    let (mut sum, mut mass) = ([0.0; 3], 0.0);
    for (offset, &v) in volume.data.iter().enumerate() {
        let index = volume.geometry.index_of(offset);
        (0..3).for_each(|i| sum[i] += f64::from(v) * index[i] as f64);
        mass += f64::from(v);
    }
    volume.geometry.voxel_to_mm().apply(sum.map(|s| s / mass))
}

#[test]
fn a_blob_stays_at_its_place_on_every_level() {
    let (s, c) = 20f64.to_radians().sin_cos();
    let oblique = [[-c, -s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]];
    for (size, spacing) in [([97, 90, 88], [1.0; 3]), ([96, 77, 45], [1.0, 1.25, 2.2])] {
        let geometry = Geometry::new(size, spacing)
            .and_then(|g| g.with_direction(oblique))
            .and_then(|g| g.with_origin([12.0, -34.0, 5.0]))
            .expect("valid");
        let middle = geometry.center_mm();
        let centre = [middle[0] + 1.37, middle[1] - 2.71, middle[2] + 0.9];
        let image = blob(&geometry, centre, 7.0);
        let tensor = image.to_tensor(&Device::flex());
        for shrink in [1.0, 2.0, 3.0, 4.0, 6.0, 8.0] {
            let level = level_image(&tensor, &geometry, shrink, 8).expect("valid");
            let level = Volume::from_tensor(level.tensor, level.geometry).expect("readable");
            let found = level.geometry.mm_to_voxel().apply(centre_of_mass_mm(&level));
            let expected = level.geometry.mm_to_voxel().apply(centre);
            let off = (0..3).map(|i| (found[i] - expected[i]).abs()).fold(0.0, f64::max);
            println!("{size:?} shrink {shrink}: {:?}, off by {off:.1e}", level.geometry.size);
            assert!(off < PLACE_TOLERANCE_VOXELS, "{size:?} shrink {shrink}: off by {off} voxels");
        }
    }
}

#[test]
fn levels_become_isotropic_first_and_never_tiny() {
    let geometry = Geometry::new([160, 161, 40], [1.0, 1.0, 4.0]).expect("valid");
    for (spacing, size) in [
        (1.0, [160, 161, 40]),
        (2.0, [80, 81, 40]),
        (4.0, [40, 40, 40]),
        (8.0, [20, 20, 20]),
        (64.0, [8, 8, 8]),
    ] {
        let level = level_geometry(&geometry, spacing, 8).expect("valid");
        assert_eq!(level.size, size, "{spacing} mm");
        let extent = |g: &Geometry| [0, 1, 2].map(|i| g.size[i] as f64 * g.spacing_mm[i]);
        let (a, b) = (extent(&level), extent(&geometry));
        assert!((0..3).all(|i| (a[i] - b[i]).abs() < 1e-9), "field of view {a:?} {b:?}");
        let (a, b) = (level.center_mm(), geometry.center_mm());
        assert!((0..3).all(|i| (a[i] - b[i]).abs() < 1e-9), "centre {a:?} {b:?}");
    }
}

#[test]
fn constants_stay_constant_up_to_the_border() {
    let geometry = Geometry::new([21, 19, 17], [1.0; 3]).expect("valid");
    let image = Volume::new(vec![0.75; geometry.len()], geometry.clone()).expect("fits");
    let level = level_image(&image.to_tensor(&Device::flex()), &geometry, 2.0, 8).expect("valid");
    let values = Volume::from_tensor(level.tensor, level.geometry).expect("readable").data;
    assert!(values.iter().all(|v| (v - 0.75).abs() < 1e-6));
}

/// f32 sums in another order, positions rounded relative to another origin.
const F32_ROUNDING: f64 = 1e-5;

#[test]
fn levels_of_shards_are_those_of_the_whole() {
    let full = Geometry::new([26, 21, 23], [0.9, 1.1, 1.0]).unwrap();
    let full = full.with_origin([3.0, -20.0, 11.0]).unwrap();
    let [d, h, w] = full.dims();
    let image = tensor::<5>(
        &uniform(full.len(), 0.0, 1.0, 5),
        [1, 1, d, h, w],
        &Device::flex(),
        DType::F32,
    );
    for axis in [Axis::X, Axis::Y, Axis::Z] {
        for shards in 1..=8 {
            let layout = Layout::balanced(full.dims(), axis, shards).unwrap();
            let mesh = DeviceMesh::new(&[Device::flex()], shards).unwrap();
            let split = Sharded::from_tensor(image.clone(), &layout, &mesh);
            for spacing_mm in [0.5, 1.0, 2.0, 3.7] {
                let expected = level_image(&image, &full, spacing_mm, 8).unwrap();
                let to = level_geometry(&full, spacing_mm, 8).unwrap();
                let shrink = |i: usize| full.size[i] as f64 / to.size[i] as f64;
                // As the engine smooths: half the shrink factor.
                let sigma = |i| if shrink(i) > 1.0 { 0.5 * shrink(i) } else { 0.0 };
                let smoothing = GaussianOptions {
                    sigma_voxels: [sigma(0), sigma(1), sigma(2)],
                    ..GaussianOptions::isotropic(0.0)
                };
                let found = level(&split, [&full, &to], &smoothing, &mesh).unwrap();
                let label = format!("{layout:?} {spacing_mm} mm");
                assert_eq!(found.layout().count(), shards.min(to.dims()[axis.dim() - 2]));
                let [found, expected] =
                    [found.gather(&Device::flex()), expected.tensor].map(to_f64);
                assert_close(&label, &found, &expected, F32_ROUNDING);
            }
        }
    }
}

/// A discrete search on the images' own voxels.
fn discrete(rounds: Vec<DiscreteRound>) -> Stage {
    let level = Some(LevelSettings { shrink: 1.0, iterations: 1 });
    Stage::Discrete(DiscreteSettings { level, rounds, ..DiscreteSettings::default() })
}

fn device(bytes: u64) -> Placement {
    Placement::Device { device: Device::flex(), bytes }
}

#[test]
fn what_stays_in_one_piece_is_planned_as_that_with_its_costs() {
    let grid = Geometry::new([96; 3], [1.0; 3]).expect("positive");
    let takes = |stage: &Stage, placement: &Placement| {
        stage.takes(placement, [&grid, &grid], Content::PLAIN)
    };
    let usual = discrete(DiscreteSettings::default().rounds);
    let taken = takes(&usual, &device(1 << 40)).expect("there is room");
    // The second round: 343 displacements of points 4 voxels apart; 12 descriptors of three images.
    let (voxels, costs) = (96u64.pow(3), 4 * 343 * 24u64.pow(3));
    assert_eq!([taken.shards, taken.at_rest], [1, 0]);
    let descriptors = 4 * 36 * voxels;
    assert!(taken.device_bytes > costs + descriptors, "{taken:?}");
    assert!(taken.device_bytes < costs + 2 * descriptors, "{taken:?}");
    // 4913 displacements of points 2 voxels apart would be 2.2 GB: tiles of them are there at once.
    let wide = DiscreteRound { spacing_voxels: 2, step_voxels: 2, radius: 8 };
    let tiled = takes(&discrete(vec![wide]), &device(1 << 40)).expect("there is room");
    assert_eq!(tiled.device_bytes - taken.device_bytes, (1 << 30) - costs);
    // Devices share it no more than shards do.
    let mesh = DeviceMesh::new(&[Device::flex()], 3).expect("shards");
    assert_eq!(takes(&usual, &Placement::from(&mesh)).expect("planned"), taken);

    let refused = takes(&usual, &device(taken.device_bytes)).expect_err("no memory is all free");
    let message = refused.to_string();
    assert!(message.contains("in one piece") && message.contains("coarser"), "{message}");
}

#[test]
fn a_discrete_search_that_has_no_room_is_refused_before_anything_is_read() {
    let pair = pair_of(32, 5);
    let (mut fixed, mut moving) = (pair.fixed.image.clone(), pair.moving.image.clone());
    let stages = vec![discrete(DiscreteSettings::default().rounds)];
    let settings = Settings { stages, ..Settings::default() };
    let problem = Problem::new(&mut fixed, &mut moving);
    let refused = register_slabs(problem, &settings, &device(4 << 20), &mut Silent);
    let message = refused.map(|_| ()).expect_err("4 MB are too few").to_string();
    assert!(message.contains("in one piece"), "{message}");
}
