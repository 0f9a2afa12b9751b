//! Series with known motion: what is found, what becomes of a bad volume, and what the files say.

use std::path::Path;

use burn::tensor::Device;
use ffdp_burn::transform::{Composite, Displacement, Step};
use ffdp_groups::series::{
    Onto, Reference, RegisterSeries, RigidMotion, SeriesImage, SeriesObserver, SeriesRegistration,
    SeriesTransforms, motion_settings,
};
use ffdp_image::image::{Affine, Geometry, Physical, Volume};
use ffdp_image::io::images::{read_volumes, write_volumes};
use ffdp_image::io::read_transform_file;
use ffdp_kit::testing::normal;
use ffdp_register::{
    LevelSettings, Registration, Settings, Stage,
    file_warp::{FileWarp, NonFiniteVoxels},
    settings::{LinearSettings, MomentsSettings},
    verdict::Verdict,
};

type Map = Affine<Physical, Physical>;

const SIZE: [usize; 3] = [36, 36, 24];
const SPACING_MM: [f64; 3] = [4.0, 4.0, 4.5];
/// Standard deviation of the noise; the object has intensities around 1000.
const NOISE: f64 = 10.0;

/// The largest error of a series at the corners of the object, in mm: a fifth of a voxel, for errors of two volumes add
/// up. 0.6 mm were measured on a grid as coarse as this, where linear interpolation leaves most of it; without registration
/// it is over 4 mm.
const CORNERS_MM: f64 = 0.8;

fn grid() -> Geometry {
    let origin = std::array::from_fn(|i| -0.5 * (SIZE[i] as f64 - 1.0) * SPACING_MM[i] + 3.0);
    let grid = Geometry::new(SIZE, SPACING_MM).expect("positive");
    grid.with_origin(origin).expect("finite")
}

/// A head that is known everywhere: an ellipsoid with soft borders and eight soft spheres.
fn head(p: [f64; 3]) -> f64 {
    const AXES_MM: [f64; 3] = [52.0, 60.0, 42.0];
    const SPHERES: [([f64; 3], f64); 8] = [
        ([20.0, 10.0, 5.0], -0.5),
        ([-22.0, -18.0, 9.0], -0.5),
        ([2.0, 30.0, -12.0], 0.4),
        ([10.0, -36.0, 16.0], -0.4),
        ([-26.0, 22.0, -9.0], 0.4),
        ([27.0, -15.0, -16.0], 0.5),
        ([-5.0, 3.0, 25.0], -0.5),
        ([0.0, -8.0, -28.0], 0.3),
    ];
    let r = (0..3).map(|i| (p[i] / AXES_MM[i]).powi(2)).sum::<f64>().sqrt();
    let soft = 1.0 / (1.0 + ((r - 1.0) * 50.0 / 4.0).exp());
    let sphere = |(c, height): &([f64; 3], f64)| {
        let squares = (0..3).map(|i| (p[i] - c[i]).powi(2)).sum::<f64>();
        height * (-squares / (2.0 * 9.0 * 9.0)).exp()
    };
    1000.0 * soft * (1.0 + SPHERES.iter().map(sphere).sum::<f64>())
}

/// The head where a map from the head at rest has moved it, with noise.
fn moved(map: &Map, seed: u64) -> Volume {
    seen(head, grid(), map, seed)
}

/// An object where a map has moved it, on a grid, with noise.
fn seen(object: fn([f64; 3]) -> f64, grid: Geometry, map: &Map, seed: u64) -> Volume {
    let (back, to_mm) = (map.inverse().expect("rigid"), grid.voxel_to_mm());
    let noise = normal(grid.len(), seed);
    let value = |offset: usize| {
        let place = to_mm.apply(grid.index_of(offset).map(|index| index as f64));
        (object(back.apply(place)) + NOISE * noise[offset]) as f32
    };
    Volume::new((0..grid.len()).map(value).collect(), grid.clone()).expect("one for each voxel")
}

/// A slow motion with one jump.
fn motions(count: usize) -> Vec<Map> {
    let motion = |k: usize| {
        let (t, jump) = (k as f64, if 2 * k > count { 1.5 } else { 0.0 });
        let rotations_rad = [0.004 * t, -0.01 * (0.7 * t).sin(), 0.01 * jump];
        let translations_mm = [0.12 * t, (0.5 * t).cos() - 1.0, jump];
        RigidMotion { rotations_rad, translations_mm }.to_affine([0.0; 3])
    };
    (0..count).map(motion).collect()
}

fn series(motions: &[Map]) -> Vec<Volume> {
    motions.iter().zip(1..).map(|(map, seed)| moved(map, seed)).collect()
}

/// The distance of the object's corners under two maps, the largest.
fn corners_mm(a: &Map, b: &Map) -> f64 {
    let corner = |k: usize| {
        let sign = |i: usize| if k >> i & 1 == 1 { 1.0 } else { -1.0 };
        let p = [30.0 * sign(0), 35.0 * sign(1), 24.0 * sign(2)];
        let (a, b) = (a.apply(p), b.apply(p));
        (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt()
    };
    (0..8).map(corner).fold(0.0, f64::max)
}

/// The largest error of all volumes relative to volume `k`, whose own place no one knows.
fn worst_mm(found: &SeriesRegistration, motions: &[Map], k: usize) -> f64 {
    let relative =
        |maps: &dyn Fn(usize) -> Map, i: usize| maps(k).inverse().expect("rigid").then(&maps(i));
    let (truth, seen) = (|i: usize| motions[i], |i: usize| found.volumes[i].affine);
    let error = |i: usize| corners_mm(&relative(&truth, i), &relative(&seen, i));
    (0..motions.len()).map(error).fold(0.0, f64::max)
}

#[test]
fn known_motion_is_found_onto_the_mean_and_onto_a_volume() {
    let motions = motions(12);
    let volumes = series(&motions);
    let images = SeriesImage::of(&volumes).expect("one grid");
    for (reference, onto) in [(Reference::Mean, Onto::Mean), (Reference::Middle, Onto::Volume(6))] {
        let found = RegisterSeries::new(&images).reference(reference).run().expect("it runs");
        assert_eq!(found.onto, onto);
        let worst = worst_mm(&found, &motions, 6);
        println!("{reference}: {worst:.3} mm");
        assert!(worst < CORNERS_MM, "{reference}: {worst} mm");
        assert_eq!(found.verdict().verdict, Verdict::Aligned, "{:?}", found.verdict());
        // The jump, and nothing else, moves more than a millimetre at once.
        let jumps: Vec<usize> =
            (0..12).filter(|k| found.volumes[*k].framewise_displacement_mm > 1.5).collect();
        assert_eq!(jumps, [7], "{reference}");
    }
}

/// The head with structure of 9 mm, as the brain has.
fn folded_head(p: [f64; 3]) -> f64 {
    let folds = p.map(|x| (std::f64::consts::TAU * x / 9.0).sin());
    head(p) * (1.0 + 0.3 * folds[0] * folds[1] * folds[2])
}

/// A real series was registered on a level of 48 voxels along its longest axis, whatever it had: with twice the error, by
/// benchmarks/series-levels.json.
#[test]
fn small_structure_guides_the_volumes_of_a_series() {
    let grid = Geometry::new([64, 64, 44], [2.5; 3]).expect("positive");
    let grid = grid.with_origin([-78.75, -78.75, -53.75]).expect("finite");
    let motions = motions(5);
    let volume = |(map, seed)| seen(folded_head, grid.clone(), map, seed);
    let volumes: Vec<Volume> = motions.iter().zip(1..).map(volume).collect();
    let images = SeriesImage::of(&volumes).expect("one grid");
    let worst = |settings: &Settings| {
        let series = RegisterSeries::new(&images).reference(Reference::Middle).settings(settings);
        worst_mm(&series.run().expect("it runs"), &motions, 2)
    };
    let mut coarse = motion_settings("rigid");
    let Stage::Rigid(linear) = &mut coarse.stages[0] else { panic!("a motion is rigid") };
    linear.fine_voxels = 40;
    let [fine, coarse] = [motion_settings("rigid"), coarse].map(|settings| worst(&settings));
    println!("{fine:.3} mm, on a coarser last level {coarse:.3} mm");
    // Three quarters were measured; the noise of one volume is in both.
    assert!(fine < 0.9 * coarse, "{fine} mm, on a coarser last level {coarse} mm");
}

#[test]
fn six_numbers_of_the_table_are_the_maps() {
    let volumes = series(&motions(4));
    let images = SeriesImage::of(&volumes).expect("one grid");
    let found = RegisterSeries::new(&images).reference(Reference::First).run().expect("it runs");
    let table = found.table();
    let mut lines = table.lines();
    let heading: Vec<&str> = lines.next().expect("a heading").split('\t').collect();
    assert_eq!(heading[1], "rotation_x_rad");
    for (line, volume) in lines.zip(&found.volumes) {
        let cells: Vec<&str> = line.split('\t').collect();
        assert_eq!(cells.len(), heading.len(), "{line}");
        let number = |i: usize| cells[i].parse::<f64>().expect("a number");
        let motion = RigidMotion {
            rotations_rad: [number(1), number(2), number(3)],
            translations_mm: [number(4), number(5), number(6)],
        };
        let rebuilt = motion.to_affine(found.centre_mm);
        let pairs = rebuilt.rows().iter().flatten().zip(volume.affine.rows().iter().flatten());
        pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{rebuilt:?} {:?}", volume.affine));
    }
    assert_eq!(found.volumes[0].framewise_displacement_mm, 0.0);
    assert!(corners_mm(&found.volumes[0].affine, &Map::identity()) < 1e-3, "the reference itself");
}

#[test]
fn a_bad_volume_has_the_transform_of_its_neighbour_and_the_others_go_on() {
    let motions = motions(5);
    let mut volumes = series(&motions);
    volumes[1].data.fill(7.0);
    volumes[4].data[100] = f32::NAN;
    let images = SeriesImage::of(&volumes).expect("one grid");
    let found = RegisterSeries::new(&images).run().expect("three volumes can be registered");
    let verdict = found.verdict();
    assert_eq!(verdict.not_registered, [1, 4]);
    assert_eq!(found.volumes[1].transform_of, 0);
    assert_eq!(found.volumes[1].affine, found.volumes[0].affine);
    assert_eq!(found.volumes[4].transform_of, 3);
    for (k, word) in [(1, "every voxel is 7"), (4, "1 of its voxels are NaN")] {
        let reason = &found.volumes[k].reasons[0];
        assert!(reason.contains(word) && reason.contains("volume"), "{reason}");
    }
    let good: Vec<Map> = [0, 2, 3].map(|k| motions[k]).to_vec();
    let found = SeriesRegistration {
        volumes: [0, 2, 3].map(|k| found.volumes[k].clone()).to_vec(),
        ..found
    };
    assert!(worst_mm(&found, &good, 0) < CORNERS_MM);
    let refused = RegisterSeries::new(&images).reference(Reference::Volume(1)).run();
    let message = refused.expect_err("it shows nothing").to_string();
    assert!(message.contains("volume 1") && message.contains("every voxel is 7"), "{message}");
    let message = match RegisterSeries::new(&images).reference(Reference::Volume(5)).run() {
        Err(error) => error.to_string(),
        Ok(_) => panic!("there is no such volume"),
    };
    assert!(message.contains("0..=4") && message.contains("got 5"), "{message}");
}

#[test]
fn a_noisy_volume_is_doubtful() {
    let motions = motions(8);
    let mut volumes = series(&motions);
    let spikes = normal(volumes[5].data.len(), 99);
    volumes[5].data.iter_mut().zip(spikes).for_each(|(v, n)| *v += (150.0 * n) as f32);
    let images = SeriesImage::of(&volumes).expect("one grid");
    let found = RegisterSeries::new(&images).run().expect("it runs");
    assert_eq!(found.verdict().doubtful, [5]);
    assert!(found.volumes[5].reasons[0].contains("less like the reference"), "{found:?}");
}

/// The list of a folder, and the warped file.
fn written(folder: &Path, file: &Path, found: &SeriesRegistration) -> SeriesTransforms {
    let transforms = found.write_transforms(folder).expect("writable");
    let output = folder.join("warped.nii.gz");
    let device = Device::flex();
    found.write_warped(file, &output, &transforms, 0.0, &device).expect("warped");
    transforms
}

#[test]
fn transforms_of_a_folder_warp_the_series_to_the_same_bits() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("series.nii.gz");
    let mut volumes = series(&motions(4));
    volumes[2].data.fill(0.0);
    write_volumes(&file, &volumes, 2.0).expect("writable");
    let images = SeriesImage::open(&file).expect("four volumes");
    let in_memory = SeriesImage::of(&volumes).expect("one grid");
    let found = RegisterSeries::new(&images).reference(Reference::First).run().expect("it runs");
    let same = RegisterSeries::new(&in_memory).reference(Reference::First).run().expect("it runs");
    for (a, b) in found.volumes.iter().zip(&same.volumes) {
        assert_eq!(a.affine, b.affine, "a file is read volume by volume");
    }
    let transforms = written(folder.path(), &file, &found);
    assert_eq!(transforms.count(), 4);
    let device = Device::flex();
    let again = folder.path().join("again.nii.gz");
    let listed = SeriesTransforms::read(folder.path()).expect("a list");
    let warp = FileWarp::open(&file).expect("an image").non_finite(NonFiniteVoxels::Zero);
    let mut map = |volume: usize| listed.map(volume, &device);
    warp.write_each(&mut map, found.grid(), &device, &again)
        .expect("warped")
        .finish()
        .expect("written");
    let bytes = |path: &Path| std::fs::read(path).expect("written");
    assert_eq!(bytes(&folder.path().join("warped.nii.gz")), bytes(&again));
    let warped = read_volumes(&again).expect("four volumes");
    for (k, warped) in warped.iter().enumerate() {
        let alone = Composite::from(found.volumes[k].affine);
        let alone = alone.warp(&volumes[k], found.grid(), &device).expect("warped");
        let most = warped.data.iter().zip(&alone.data).map(|(a, b)| (a - b).abs());
        assert!(most.fold(0.0, f32::max) < 0.5, "volume {k} by its own map");
        let matrix = &transforms.of(k).expect("on the list")[0];
        read_transform_file(matrix).expect("a file of ITK");
    }
    assert!(listed.of(4).is_err());
}

#[test]
fn deformations_go_on_from_their_neighbours() {
    /// Volumes that were found with a displacement, in their order.
    struct Warped(Vec<usize>);
    impl SeriesObserver for Warped {
        fn found(&mut self, volume: usize, found: &Registration) -> ffdp_image::Result<()> {
            self.0.extend(found.warp.as_ref().map(|_| volume));
            Ok(())
        }
    }
    let mut motions = motions(3);
    // What no rigid map undoes.
    let stretch = [[1.0, 0.0, 0.0], [0.0, 1.1, 0.0], [0.0, 0.0, 1.0]];
    motions[1] = Map::from_parts(stretch, [0.0; 3]);
    motions[2] = motions[1];
    let volumes = series(&motions);
    let images = SeriesImage::of(&volumes).expect("one grid");
    let mut settings: Settings = motion_settings("greedy");
    settings.stages.retain(|stage| !matches!(stage, Stage::Affine(_)));
    for stage in &mut settings.stages {
        if !stage.is_linear() {
            stage.levels_mut().iter_mut().for_each(|level| level.iterations = 20);
        }
    }
    let mut warped = Warped(Vec::new());
    let found = RegisterSeries::new(&images)
        .reference(Reference::First)
        .settings(&settings)
        .observer(&mut warped)
        .run()
        .expect("it runs");
    assert!(found.deforms());
    for volume in &found.volumes {
        let names: Vec<&str> = volume.stages.iter().map(|stage| stage.transform).collect();
        assert_eq!(names, ["rigid", "greedy"]);
    }
    assert!(warped.0.ends_with(&[1, 2]), "{:?}", warped.0);
}

/// Two levels of a rigid stage, by the similarity of two images.
fn rigid() -> Settings {
    let level = |shrink| LevelSettings { shrink, iterations: 30 };
    let stage = Stage::Rigid(LinearSettings::default());
    let stages = vec![stage.with_levels([3.0, 1.5].map(level).to_vec())];
    Settings { stages, ..Settings::default() }
}

/// Whether a voxel lies in a part of the head that masks leave out.
fn is_left_out(offset: usize) -> bool {
    grid()
        .index_of(offset)
        .iter()
        .zip([20, 20, 10])
        .all(|(index, low)| (low..low + 9).contains(index))
}

#[test]
fn what_masks_of_a_series_leave_out_does_not_matter() {
    let weights = (0..grid().len()).map(|offset| f32::from(u8::from(!is_left_out(offset))));
    let mask = Volume::new(weights.collect(), grid()).expect("one for each voxel");
    let spoiled = |volume: &Volume| {
        let value = |(offset, v): (usize, &f32)| match is_left_out(offset) {
            true => 4000.0 + 500.0 * (offset % 3) as f32,
            false => *v,
        };
        let data = volume.data.iter().enumerate().map(value).collect();
        Volume::new(data, grid()).expect("one for each voxel")
    };
    let motions = motions(3);
    let (volumes, rest) = (series(&motions), moved(&Map::identity(), 77));
    let spoiled_volumes: Vec<Volume> = volumes.iter().map(spoiled).collect();
    let spoiled_rest = spoiled(&rest);
    let maps = |volumes: &[Volume], fixed: &Volume, masks: [Option<&Volume>; 2]| {
        let images = SeriesImage::of(volumes).expect("one grid");
        let mut series = RegisterSeries::new(&images).fixed(fixed).settings(&rigid());
        for (k, mask) in masks.into_iter().enumerate() {
            let Some(mask) = mask else { continue };
            series = if k == 0 { series.fixed_mask(mask) } else { series.moving_mask(mask) };
        }
        let found = series.run().expect("it runs");
        found.volumes.into_iter().map(|volume| volume.affine).collect::<Vec<Map>>()
    };
    let apart =
        |a: &[Map], b: &[Map]| a.iter().zip(b).map(|(a, b)| corners_mm(a, b)).fold(0.0, f64::max);
    let moving = [None, Some(&mask)];
    let masked = maps(&volumes, &rest, moving);
    assert!(apart(&masked, &motions) < CORNERS_MM, "{}", apart(&masked, &motions));
    let same = apart(&masked, &maps(&spoiled_volumes, &rest, moving));
    let fixed = [Some(&mask), None];
    let same_fixed = apart(&maps(&volumes, &rest, fixed), &maps(&volumes, &spoiled_rest, fixed));
    let without =
        apart(&maps(&volumes, &rest, [None; 2]), &maps(&spoiled_volumes, &rest, [None; 2]));
    println!("{same} and {same_fixed} mm, without a mask {without} mm");
    assert!(same < 1e-6 && same_fixed < 1e-6, "{same} {same_fixed}");
    assert!(without > 0.01, "{without} mm without a mask");
}

#[test]
fn masks_that_are_none_and_a_start_that_deforms_are_refused_before_any_volume() {
    let volumes = series(&motions(2));
    let images = SeriesImage::of(&volumes).expect("one grid");
    let other = Geometry::new([8; 3], [9.0; 3]).expect("positive");
    let of = |value: f32, grid: Geometry| {
        Volume::new(vec![value; grid.len()], grid).expect("one for each voxel")
    };
    for (mask, why) in [(of(1.0, other), "another grid"), (of(255.0, grid()), "weights in 0..1")] {
        for (series, what) in [
            (RegisterSeries::new(&images).fixed_mask(&mask), "the mask of the reference"),
            (RegisterSeries::new(&images).moving_mask(&mask), "the mask of the volumes"),
        ] {
            let message = series.run().expect_err(why).to_string();
            assert!(message.contains(what) && message.contains(why), "{message}");
        }
    }
    let at_rest = Step::Displacement(Displacement::zero(grid(), &Device::flex()));
    let start = Composite::new(vec![at_rest]);
    let message = RegisterSeries::new(&images).initial(start).run();
    let message = message.expect_err("it deforms").to_string();
    assert!(message.contains("must be linear"), "{message}");
}

#[test]
fn moments_are_those_of_the_first_volume_that_can_be_used() {
    let motions = motions(4);
    let mut volumes = series(&motions);
    volumes[0].data.fill(3.0);
    let images = SeriesImage::of(&volumes).expect("one grid");
    let rest = moved(&Map::identity(), 77);
    let level = |shrink| LevelSettings { shrink, iterations: 40 };
    let rigid = Stage::Rigid(LinearSettings::default());
    let rigid = rigid.with_levels([4.0, 2.0, 1.5].map(level).to_vec());
    let stages = vec![Stage::Moments(MomentsSettings::default()), rigid];
    let settings = Settings { stages, ..Settings::default() };
    let found = RegisterSeries::new(&images).fixed(&rest).settings(&settings).run();
    let found = found.expect("it runs");
    let stages = found.volumes.iter().map(|volume| volume.stages.len()).collect::<Vec<_>>();
    assert_eq!(stages[1..], [2, 1, 1], "moments and rigid, then rigid alone");
    assert_eq!(found.volumes[0].transform_of, 1);
    for (volume, motion) in found.volumes.iter().zip(&motions).skip(1) {
        let error = corners_mm(&volume.affine, motion);
        assert!(error < CORNERS_MM, "{error} mm");
    }
}

#[test]
fn another_image_is_a_fixed_one() {
    let motions = motions(3);
    let volumes = series(&motions);
    let rest = moved(&Map::identity(), 77);
    let images = SeriesImage::of(&volumes).expect("one grid");
    // Of another image the contrast may be another one.
    let mut settings =
        Settings { stages: vec![Stage::Rigid(LinearSettings::default())], ..Settings::default() };
    let level = |shrink| LevelSettings { shrink, iterations: 40 };
    settings.stages[0] =
        settings.stages[0].clone().with_levels([4.0, 2.0, 1.5].map(level).to_vec());
    let found = RegisterSeries::new(&images).fixed(&rest).settings(&settings).run();
    let found = found.expect("it runs");
    assert_eq!(found.onto, Onto::Fixed);
    for (volume, motion) in found.volumes.iter().zip(&motions) {
        let error = corners_mm(&volume.affine, motion);
        assert!(error < CORNERS_MM, "{error} mm");
    }
    let one = std::slice::from_ref(&rest);
    let message = SeriesImage::of(one).err().expect("one volume").to_string();
    assert!(message.contains("at least two volumes") && message.contains("got 1"), "{message}");
}
