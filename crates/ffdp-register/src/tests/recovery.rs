//! Known warps are found, whatever grid the moving image lies on.

use std::ops::ControlFlow;

use burn::tensor::Device;

use super::{blob, found, mean_error, only, pair_of, register, short, warp};
use crate::{
    LevelSettings, Observer, Problem, Registration, Similarity, Stage,
    methods::GreedySettings,
    report::{LevelStart, Outcome, Progress, Stop},
    settings::{LnccSettings, MiSettings},
};
use ffdp_burn::ops::LnccFloor;
use ffdp_image::image::{Geometry, Volume};
use ffdp_image::metrics::{dice, jacobian, warp_labels};
use ffdp_image::synth::{Modality, PhantomSettings, subject};

fn run(fixed: &Volume, moving: &Volume, settings: &GreedySettings) -> Registration {
    found(&Problem::new(fixed, moving), Stage::Greedy(settings.clone()))
}

/// Rounding of coordinates is 1e-6 voxels; it may grow over iterations where gradients nearly vanish.
const STORAGE_ROUNDING_VOXELS: f32 = 1e-4;

/// Of what was measured: rounding decides which of several similar minima is found.
const MORE: f64 = 1.2;

#[test]
fn a_known_warp_is_found() {
    let pair = pair_of(48, 3);
    let count = pair.fixed.image.data.len();
    let before = mean_error(&vec![0.0; 3 * count], &pair);
    // Error in voxels, of 2.04, and Dice, of 0.471, as measured.
    for (similarity, measured) in
        [(GreedySettings::default().similarity, (0.511, 0.834)), (Similarity::Mse, (0.548, 0.827))]
    {
        let settings = GreedySettings { similarity: similarity.clone(), ..short() };
        let result = run(&pair.fixed.image, &pair.moving.image, &settings);
        let field = warp(&result).to_vec().expect("readable");
        let after = mean_error(&field, &pair);
        let report = jacobian(&field, [48; 3]).expect("sizes match");
        let overlap =
            |labels: &[i32]| dice(&pair.fixed.labels.data, labels).expect("sizes match").mean();
        let moved = warp(&result).warp_labels(&pair.moving.labels).expect("readable");
        let dices = [overlap(&pair.moving.labels.data), overlap(&moved.data)];
        println!(
            "{similarity:?}: error {before:.3} -> {after:.3} voxels, Dice {dices:.3?}, loss {:.4} \
             -> {:.4}, folds {}, det J {:.2}..{:.2}",
            result.loss_before,
            result.loss_after,
            report.true_folds,
            report.central.min,
            report.central.max
        );
        assert_eq!(result.outcome, Outcome::Improved);
        // No level begins by undoing what the one before found.
        assert!(result.stages[0].levels.iter().all(|level| level.losses[5] < level.losses[0]));
        assert!(after < MORE * measured.0, "{similarity:?}: error {before} -> {after} voxels");
        let [missed, allowed] = [dices[1], measured.1].map(|dice| 1.0 - dice);
        assert!(missed < MORE * allowed, "{similarity:?}: Dice {dices:?}");
        assert_eq!(report.true_folds, 0, "{similarity:?}");
        // The two samplers of labels agree but for rounding at ties.
        let reference = warp_labels(&pair.moving.labels, &field).expect("sizes match");
        let differing = reference.data.iter().zip(&moved.data).filter(|(a, b)| a != b).count();
        assert!(differing <= 2, "{differing} labels differ");
    }
}

/// The same image stored with axes (y, z, x), the last one reversed; the header says so.
fn restored(volume: &Volume) -> Volume {
    let g = &volume.geometry;
    let [nx, ny, nz] = g.size;
    let mut data = Vec::with_capacity(g.len());
    for x in (0..nx).rev() {
        for z in 0..nz {
            for y in 0..ny {
                data.push(volume.data[(z * ny + y) * nx + x]);
            }
        }
    }
    let [dx, dy, dz] = g.spacing_mm;
    let direction = g.direction.map(|row| [row[1], row[2], -row[0]]);
    let origin = g.voxel_to_mm().apply([nx as f64 - 1.0, 0.0, 0.0]);
    let geometry = Geometry::new([ny, nz, nx], [dy, dz, dx])
        .and_then(|g| g.with_direction(direction))
        .and_then(|g| g.with_origin(origin))
        .expect("valid");
    Volume::new(data, geometry).expect("same number of voxels")
}

#[test]
fn storage_order_of_the_moving_image_does_not_change_the_result() {
    let pair = pair_of(32, 5);
    // Off the lattice: exactly on it, the slope of a trilinear image is that of one side, and which
    // side is a matter of storage.
    let moving = pair.moving.image;
    let [x, y, z] = moving.geometry.origin_mm;
    let moved = moving.geometry.with_origin([x + 2.1, y + 1.7, z - 2.6]).expect("valid");
    let moving = Volume::new(moving.data, moved).expect("same size");
    let levels = vec![LevelSettings { shrink: 1.0, iterations: 15 }];
    let settings = GreedySettings { levels, ..GreedySettings::default() };
    let a = run(&pair.fixed.image, &moving, &settings);
    let b = run(&pair.fixed.image, &restored(&moving), &settings);
    let [a, b] = [a, b].map(|r| warp(&r).to_vec().expect("readable"));
    let largest = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let moved = a.iter().map(|a| a.abs()).fold(0.0, f32::max);
    println!("fields up to {moved} voxels differ by up to {largest}");
    assert!(moved > 0.5, "{moved}");
    assert!(largest < STORAGE_ROUNDING_VOXELS, "{largest}");
}

#[test]
fn shifts_are_found_in_mm_across_spacings_and_orientations() {
    // One anatomy on two grids of their own; the moving image's header says that it lies 5 mm
    // further to the right and 4 mm lower than it does.
    let head = |size, spacing_mm| {
        let settings =
            PhantomSettings { spacing_mm: Some(spacing_mm), ..PhantomSettings::with_size(size) };
        subject(&PhantomSettings { noise: 0.0, texture: 0.0, ..settings }, 11).expect("valid")
    };
    let fixed = head([32, 36, 32], [6.0; 3]);
    let moving = head([40, 36, 26], [5.0, 6.0, 8.0]).image;
    let [x, y, z] = moving.geometry.origin_mm;
    let shifted = moving.geometry.with_origin([x + 5.0, y, z - 4.0]).expect("valid");
    let moving = restored(&Volume::new(moving.data, shifted).expect("same size"));
    assert_eq!(moving.geometry.axis_codes(), "ASL");
    let levels = vec![LevelSettings { shrink: 1.0, iterations: 60 }];
    let settings =
        GreedySettings { levels, similarity: Similarity::Mse, ..GreedySettings::default() };
    let result = run(&fixed.image, &moving, &settings);
    let mm = warp(&result).to_mm().try_into_vec_as::<f32>().expect("readable");
    let count = fixed.image.data.len();
    let inside: Vec<usize> = (0..count).filter(|&p| fixed.labels.data[p] != 0).collect();
    let mean = [0, 1, 2].map(|c| {
        inside.iter().map(|&p| f64::from(mm[c * count + p])).sum::<f64>() / inside.len() as f64
    });
    println!("mean displacement {mean:.3?} mm");
    // A sixth of a voxel, since flat regions lag behind; a wrong axis, sign or unit is off by 4 mm.
    let off = (0..3).map(|c| (mean[c] - [5.0, 0.0, -4.0][c]).abs()).fold(0.0, f64::max);
    assert!(off < 1.0, "{mean:?} mm, off by {off}");
}

#[test]
fn steps_are_equally_long_in_mm_along_anisotropic_axes() {
    // One step: the longest vector has the learning rate's length along the finest axis.
    let geometry = Geometry::new([24, 24, 12], [1.0, 1.0, 2.0]).expect("valid");
    let fixed = blob(&geometry, [11.0, 11.0, 11.0], 3.0);
    let moving = blob(&geometry, [11.0, 11.0, 13.0], 3.0);
    let levels = vec![LevelSettings { shrink: 1.0, iterations: 1 }];
    let settings = GreedySettings {
        levels,
        similarity: Similarity::Mse,
        sigma_warp_voxels: 0.0,
        ..GreedySettings::default()
    };
    let result = run(&fixed, &moving, &settings);
    let mm = warp(&result).to_mm().try_into_vec_as::<f32>().expect("readable");
    let count = geometry.len();
    let length = |p: usize| (0..3).map(|c| mm[c * count + p].powi(2)).sum::<f32>().sqrt();
    let longest = (0..count).map(length).fold(0.0, f32::max);
    assert!((longest - 0.25).abs() < 0.01, "longest step {longest} mm, learning rate 0.25 x 1 mm");
    let z_largest = mm[2 * count..].iter().copied().fold(0.0, f32::max);
    assert!(z_largest > 0.12, "{z_largest} mm along the coarse axis");
}

#[test]
fn equal_images_are_left_alone() {
    let image = pair_of(48, 8).fixed.image;
    let mean = |settings: &GreedySettings| {
        let result = run(&image, &image, settings);
        // A deformation that does not improve on none is not kept.
        let Some(warp) = &result.warp else { return 0.0 };
        let field = warp.to_vec().expect("readable");
        field.iter().map(|u| f64::from(u.abs())).sum::<f64>() / field.len() as f64
    };
    assert_eq!(mean(&GreedySettings { similarity: Similarity::Mse, ..short() }), 0.0);
    assert_eq!(mean(&short()), 0.0, "LNCC");
    // In the denominator alone, epsilon rewards contrast: the best is not the identity.
    let settings = LnccSettings { floor: LnccFloor::Denominator, ..LnccSettings::default() };
    let drift = mean(&GreedySettings { similarity: Similarity::Lncc(settings), ..short() });
    println!("mean |u| with the floor in the denominator: {drift}");
    assert!(drift > 0.01 && drift < 0.15, "{drift}");
}

/// Records the events that it is given and ends the run after some iterations.
#[derive(Default)]
struct Recorder {
    starts: Vec<LevelStart>,
    losses: Vec<Progress>,
    end_after: Option<usize>,
}

impl Observer for Recorder {
    fn level_started(&mut self, level: &LevelStart) -> ControlFlow<()> {
        self.starts.push(level.clone());
        ControlFlow::Continue(())
    }

    fn losses_read(&mut self, progress: &Progress) -> ControlFlow<()> {
        self.losses.push(progress.clone());
        match self.end_after {
            Some(end) if progress.iteration >= end => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

#[test]
fn observers_are_called_every_interval_and_can_end_the_run() {
    let pair = pair_of(32, 3);
    let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let levels = vec![level(2.0, 25), level(1.0, 4)];
    let settings = only(GreedySettings { levels, ..GreedySettings::default() });
    let problem = Problem::new(fixed, moving);
    let mut recorder = Recorder::default();
    let result = register(&problem, &settings, &Device::flex(), &mut recorder).expect("good");
    let reported: Vec<(usize, usize)> =
        recorder.losses.iter().map(|p| (p.level, p.iteration)).collect();
    assert_eq!(reported, [(0, 10), (0, 20), (0, 25), (1, 4)]);
    assert_eq!(recorder.starts[0].size, [16; 3]);
    assert_eq!(result.stages[0].levels[0].losses.len(), 25);
    assert!(result.stages[0].levels[0].losses[24] < result.stages[0].levels[0].losses[0]);
    assert_eq!(result.stages[0].levels[1].stop, Stop::IterationsSpent);

    let mut recorder = Recorder { end_after: Some(10), ..Recorder::default() };
    let result = register(&problem, &settings, &Device::flex(), &mut recorder).expect("good");
    assert_eq!((result.stages[0].levels.len(), result.stages[0].levels[0].losses.len()), (1, 10));
    assert_eq!(
        (result.outcome, result.stages[0].levels[0].stop),
        (Outcome::Cancelled, Stop::Cancelled)
    );
    assert!(result.loss_after < result.loss_before, "what was reached is returned");
    assert_eq!(warp(&result).geometry(), &fixed.geometry);
}

#[test]
fn the_same_run_gives_the_same_bits() {
    let pair = pair_of(32, 4);
    let levels = vec![LevelSettings { shrink: 2.0, iterations: 12 }];
    let settings = GreedySettings { levels, ..GreedySettings::default() };
    let field = || {
        let result = run(&pair.fixed.image, &pair.moving.image, &settings);
        warp(&result).to_vec().expect("readable")
    };
    assert_eq!(field(), field());
}

#[test]
fn a_known_warp_is_found_across_modalities() {
    let settings = PhantomSettings {
        fixed_modality: Some(Modality::T2),
        ..PhantomSettings::with_size([48; 3])
    };
    let pair = ffdp_image::synth::pair(&settings, 3).expect("valid settings");
    let count = pair.fixed.image.data.len();
    let before = mean_error(&vec![0.0; 3 * count], &pair);
    let after = |similarity| {
        let settings = GreedySettings { similarity, ..short() };
        let result = run(&pair.fixed.image, &pair.moving.image, &settings);
        assert!(result.loss_after < result.loss_before, "{:?}", settings.similarity);
        let field = warp(&result).to_vec().expect("readable");
        let folds = jacobian(&field, [48; 3]).expect("sizes match").true_folds;
        let after = mean_error(&field, &pair);
        println!(
            "{:?}: error {before:.3} -> {after:.3} voxels, folds {folds}",
            settings.similarity
        );
        (after, folds)
    };
    let (mutual, folds) = after(Similarity::Mi(MiSettings::default()));
    // Measured: 0.737 of 2.04.
    assert!(mutual < MORE * 0.737, "error {before} -> {mutual} voxels");
    assert_eq!(folds, 0);
    // The test means nothing if intensities could be compared as they are.
    let (squares, _) = after(Similarity::Mse);
    assert!(squares > mutual + 0.2 * before, "mutual information {mutual}, squares {squares}");
}
