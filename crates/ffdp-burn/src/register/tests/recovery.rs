//! Known warps are found, whatever grid the moving image lies on.

use std::ops::ControlFlow;

use burn::tensor::Device;

use super::{blob, short, small_pair};
use crate::image::{Geometry, Volume};
use crate::metrics::{dice, jacobian, warp_labels};
use crate::register::{
    LevelSettings, LevelStart, Observer, Outcome, Progress, Registration, Settings, Silent,
    Similarity, Stop, register,
};
use crate::synth::Pair;

fn run(fixed: &Volume, moving: &Volume, settings: &Settings) -> Registration {
    register(fixed, moving, settings, &Device::flex(), &mut Silent).expect("good input")
}

/// Mean distance in voxels between a field and the answer over the labelled voxels.
fn mean_error(field: &[f32], pair: &Pair) -> f64 {
    let count = pair.fixed.labels.data.len();
    let (mut sum, mut n) = (0.0, 0.0);
    for p in (0..count).filter(|&p| pair.fixed.labels.data[p] != 0) {
        let square: f64 = (0..3)
            .map(|c| f64::from(field[c * count + p] - pair.displacement[c * count + p]).powi(2))
            .sum();
        sum += square.sqrt();
        n += 1.0;
    }
    sum / n
}

#[test]
fn a_known_warp_is_found() {
    let pair = small_pair(3);
    let count = pair.fixed.image.data.len();
    let before = mean_error(&vec![0.0; 3 * count], &pair);
    for similarity in [Settings::default().similarity, Similarity::Mse] {
        let settings = Settings { similarity, ..short() };
        let result = run(&pair.fixed.image, &pair.moving.image, &settings);
        let field = result.displacement.to_vec().expect("readable");
        let after = mean_error(&field, &pair);
        let report = jacobian(&field, [32; 3]).expect("sizes match");
        let overlap =
            |labels: &[i32]| dice(&pair.fixed.labels.data, labels).expect("sizes match").mean();
        let moved = result.displacement.warp_labels(&pair.moving.labels).expect("readable");
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
        assert!(after < 0.5 * before, "{similarity:?}: error {before} -> {after} voxels");
        assert!(dices[1] > dices[0] + 0.1, "{similarity:?}: Dice {dices:?}");
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
    let pair = small_pair(5);
    let levels = vec![LevelSettings { shrink: 1.0, iterations: 15 }];
    let settings = Settings { levels, ..Settings::default() };
    let a = run(&pair.fixed.image, &pair.moving.image, &settings);
    let b = run(&pair.fixed.image, &restored(&pair.moving.image), &settings);
    let [a, b] = [a, b].map(|r| r.displacement.to_vec().expect("readable"));
    let largest = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let moved = a.iter().map(|a| a.abs()).fold(0.0, f32::max);
    println!("fields up to {moved} voxels differ by up to {largest}");
    assert!(moved > 0.5, "{moved}");
    // Rounding of coordinates (1e-6 voxels), amplified where a gradient is nearly zero: Adam
    // normalises it all the same.
    assert!(largest < 0.02, "{largest}");
}

#[test]
fn shifts_are_found_in_mm_across_spacings_and_orientations() {
    // The object lies 3 mm further along R in the moving image, whose voxels are 1.5 x 2 x 1.25 mm.
    let fixed = Geometry::new([24, 24, 24], [2.0; 3]).expect("valid");
    let flipped = [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let moving = Geometry::new([34, 26, 40], [1.5, 2.0, 1.25])
        .and_then(|g| g.with_direction(flipped))
        .and_then(|g| g.with_origin([50.0, -2.0, -1.0]))
        .expect("valid");
    let fixed = blob(&fixed, [22.0, 23.0, 24.0], 6.0);
    let moving = blob(&moving, [25.0, 23.0, 24.0], 6.0);
    let levels = vec![LevelSettings { shrink: 1.0, iterations: 40 }];
    let settings = Settings { levels, similarity: Similarity::Mse, ..Settings::default() };
    let result = run(&fixed, &moving, &settings);
    let mm = result.displacement.to_mm().try_into_vec_as::<f32>().expect("readable");
    let count = fixed.data.len();
    // At the shoulders of the blob, where the gradient is strong.
    let bright = (0..count).filter(|&p| (0.3..0.8).contains(&fixed.data[p]));
    let (mut sum, mut n) = ([0.0; 3], 0.0);
    for p in bright {
        (0..3).for_each(|c| sum[c] += f64::from(mm[c * count + p]));
        n += 1.0;
    }
    let mean = sum.map(|s| s / n);
    println!("mean displacement {mean:?} mm");
    assert!((mean[0] - 3.0).abs() < 0.3 && mean[1].abs() < 0.3 && mean[2].abs() < 0.3, "{mean:?}");
}

#[test]
fn steps_are_equally_long_in_mm_along_anisotropic_axes() {
    // One step: the longest vector has the learning rate's length along the finest axis.
    let geometry = Geometry::new([24, 24, 12], [1.0, 1.0, 2.0]).expect("valid");
    let fixed = blob(&geometry, [11.0, 11.0, 11.0], 3.0);
    let moving = blob(&geometry, [11.0, 11.0, 13.0], 3.0);
    let levels = vec![LevelSettings { shrink: 1.0, iterations: 1 }];
    let settings = Settings {
        levels,
        similarity: Similarity::Mse,
        sigma_warp_voxels: 0.0,
        ..Settings::default()
    };
    let result = run(&fixed, &moving, &settings);
    let mm = result.displacement.to_mm().try_into_vec_as::<f32>().expect("readable");
    let count = geometry.len();
    let length = |p: usize| (0..3).map(|c| mm[c * count + p].powi(2)).sum::<f32>().sqrt();
    let longest = (0..count).map(length).fold(0.0, f32::max);
    assert!((longest - 0.25).abs() < 0.01, "longest step {longest} mm, learning rate 0.25 x 1 mm");
    let z_largest = mm[2 * count..].iter().copied().fold(0.0, f32::max);
    assert!(z_largest > 0.12, "{z_largest} mm along the coarse axis");
}

#[test]
fn equal_images_are_left_alone() {
    let pair = small_pair(8);
    let result = run(&pair.fixed.image, &pair.fixed.image, &short());
    let field = result.displacement.to_vec().expect("readable");
    let mean = field.iter().map(|u| f64::from(u.abs())).sum::<f64>() / field.len() as f64;
    println!("mean |u| {mean}, loss {} -> {}", result.loss_before, result.loss_after);
    assert!(mean < 0.05, "{mean}");
}

/// Records what it is told and ends the run after some iterations.
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
fn observers_are_told_every_interval_and_can_end_the_run() {
    let pair = small_pair(3);
    let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let levels = vec![level(2.0, 25), level(1.0, 4)];
    let settings = Settings { levels, ..Settings::default() };
    let mut recorder = Recorder::default();
    let result = register(fixed, moving, &settings, &Device::flex(), &mut recorder).expect("good");
    let told: Vec<(usize, usize)> =
        recorder.losses.iter().map(|p| (p.level, p.iteration)).collect();
    assert_eq!(told, [(0, 10), (0, 20), (0, 25), (1, 4)]);
    assert_eq!(recorder.starts[0].size, [16; 3]);
    assert_eq!(result.levels[0].losses.len(), 25);
    assert!(result.levels[0].losses[24] < result.levels[0].losses[0]);
    assert_eq!(result.levels[1].stop, Stop::IterationsSpent);

    let mut recorder = Recorder { end_after: Some(10), ..Recorder::default() };
    let result = register(fixed, moving, &settings, &Device::flex(), &mut recorder).expect("good");
    assert_eq!((result.levels.len(), result.levels[0].losses.len()), (1, 10));
    assert_eq!((result.outcome, result.levels[0].stop), (Outcome::Cancelled, Stop::Cancelled));
    assert!(result.loss_after < result.loss_before, "what was reached is returned");
    assert_eq!(result.displacement.geometry(), &fixed.geometry);
}

#[test]
fn the_same_run_gives_the_same_bits() {
    let pair = small_pair(4);
    let levels = vec![LevelSettings { shrink: 2.0, iterations: 12 }];
    let settings = Settings { levels, ..Settings::default() };
    let field = || {
        let result = run(&pair.fixed.image, &pair.moving.image, &settings);
        result.displacement.to_vec().expect("readable")
    };
    assert_eq!(field(), field());
}
