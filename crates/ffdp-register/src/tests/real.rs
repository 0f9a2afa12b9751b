//! Real brains: minutes on a CPU, so they run when asked for (`--ignored`).

use std::time::Instant;

use burn::tensor::Device;

use super::methods::inverse_consistency;
use super::{data, found_on, mean_distance, warp};
use crate::{
    Preset, Problem, Settings, Stage,
    methods::{GreedySettings, SvfSettings, SynSettings},
};
use ffdp_burn::ops::{Interpolation, Padding};
use ffdp_burn::transform::{Composite, Displacement, Step, resample};
use ffdp_image::image::{Geometry, LabelMap, Volume};
use ffdp_image::io::images::{read_labels, read_volume};
use ffdp_image::metrics::{dice_of, jacobian};
use ffdp_image::synth::{Diffeomorphism, WarpSettings};
use ffdp_kit::testing::gpu_devices;

/// The GPU under test, if there is one, else the CPU.
fn device() -> Device {
    gpu_devices().into_iter().next().map_or(Device::flex(), |(_, device)| device)
}

/// Two labelled brains of one grid, with the thirty labels that are compared.
struct Brains {
    images: [Volume; 2],
    labels: [LabelMap; 2],
    ids: Vec<i32>,
}

fn brains() -> Option<Brains> {
    let data = data()?;
    let image = |name: &str| read_volume(data.join(name)).expect("readable");
    let labels = |name: &str| read_labels(data.join(name)).expect("readable");
    let ids = std::fs::read_to_string(data.join("voxelmorph/labels30.csv")).expect("readable");
    Some(Brains {
        images: [
            image("learn2reg-tutorials2019/subject_1_t1.nii.gz"),
            image("voxelmorph/test_scan_t1.nii.gz"),
        ],
        labels: [
            labels("learn2reg-tutorials2019/subject_1_seg.nii.gz"),
            labels("voxelmorph/test_scan_seg.nii.gz"),
        ],
        ids: ids.split([',', '\n', '\r']).filter_map(|id| id.trim().parse().ok()).collect(),
    })
}

/// Dice before and after, folds in percent, and the worse p95 of the inverse.
struct Figures {
    dice: [f64; 2],
    folds_percent: f64,
    inverse_p95: Option<f64>,
}

fn figures(brains: &Brains, stage: Stage) -> Figures {
    let Brains { images: [fixed, moving], labels: [fixed_labels, moving_labels], ids } = brains;
    let name = stage.name();
    let start = Instant::now();
    let result = found_on(&device(), &Problem::new(fixed, moving), stage);
    let seconds = start.elapsed().as_secs_f64();
    let moved = warp(&result).warp_labels(moving_labels).expect("readable");
    let dice = [moving_labels, &moved]
        .map(|labels| dice_of(&fixed_labels.data, &labels.data, ids).expect("one size").mean());
    let field = warp(&result).to_vec().expect("readable");
    let report = jacobian(&field, fixed.geometry.size).expect("sizes match");
    let folds_percent = 100.0 * report.true_fold_fraction;
    let inverse = inverse_consistency(&result, &fixed_labels.data);
    let inverse_p95 = inverse.map(|[[a, _], [b, _]]| a.max(b));
    println!(
        "{name}: Dice {dice:.4?}, folds {folds_percent:.4} %, sd log J {:.3}, inverse (95 %, most) \
         {inverse:.3?} voxels, {seconds:.0} s",
        report.sd_log
    );
    for level in &result.stages[0].levels {
        println!(
            "  shrink {}: {} iterations, loss {:.4} -> {:.4}, {:.0} s",
            level.shrink,
            level.losses.len(),
            level.losses[0],
            level.losses[level.losses.len() - 1],
            level.seconds
        );
    }
    Figures { dice, folds_percent, inverse_p95 }
}

#[test]
#[ignore = "minutes on a CPU"]
fn two_brains_are_aligned_by_every_method() {
    let Some(brains) = brains() else { return };
    for stage in [
        Stage::Greedy(GreedySettings::default()),
        Stage::Syn(SynSettings::default()),
        Stage::Svf(SvfSettings::default()),
    ] {
        let name = stage.name();
        let Figures { dice, folds_percent, inverse_p95 } = figures(&brains, stage);
        assert!((dice[0] - 0.5224).abs() < 1e-4, "{dice:?}");
        assert!(dice[1] > 0.74 && folds_percent < 0.1, "{name}: {dice:?} {folds_percent}");
        assert!(inverse_p95.is_none_or(|p95| p95 < 0.5), "{name}: {inverse_p95:?}");
    }
}

/// An image on another grid.
fn on_grid(image: &Volume, grid: &Geometry) -> Volume {
    let tensor = image.to_tensor(&Device::flex());
    let (linear, zeros) = (Interpolation::Linear, Padding::Zeros);
    let tensor = resample(tensor, &image.geometry, grid, linear, zeros);
    Volume::from_tensor(tensor, grid.clone()).expect("readable")
}

/// The deformation that the preset for two modalities finds.
fn between_modalities(fixed: &Volume, moving: &Volume) -> Displacement {
    let stage = Settings::preset(Preset::Multimodal).stages.pop().expect("the deformation is last");
    let start = Instant::now();
    let result = found_on(&device(), &Problem::new(fixed, moving), stage);
    println!("  {} s", start.elapsed().as_secs());
    warp(&result).clone()
}

#[test]
#[ignore = "minutes on a CPU, twice; 0.35 voxel at 2 mm, 0.66 at 1 mm, see docs/evaluation.md"]
fn a_known_warp_between_modalities_is_found_to_half_a_voxel() {
    let Some(data) = data() else { return };
    let read = |name: &str| read_volume(data.join(name)).expect("readable");
    let moving = read("mni152/MNI152_T1_1mm_brain.nii.gz");
    let grid = moving.geometry.clone();
    let other = on_grid(&read("mni152/MNI152_T2_1mm_brain.nii.gz"), &grid);
    let known = Diffeomorphism::random(&WarpSettings::default(), 11).expect("valid");
    let answer = known.displacement_voxels(&grid);
    let answer_field =
        Displacement::from_vec(answer.clone(), grid.clone(), &device()).expect("fits");
    let fixed = answer_field.warp(&other).expect("fits");
    let inside = |p: usize| fixed.data[p] > 0.0;
    let before = mean_distance(&vec![0.0; answer.len()], &answer, inside);
    let found = between_modalities(&fixed, &moving).to_vec().expect("readable");
    let whole = mean_distance(&found, &answer, inside);
    // What the same settings find between the two images as they are is not the warp's: the contrasts
    // put their boundaries at other places.
    let own = Step::Displacement(between_modalities(&other, &moving));
    let expected = Composite::new(vec![Step::Displacement(answer_field), own]);
    let expected = expected.to_displacement(&grid, &device()).to_vec().expect("readable");
    let after = mean_distance(&found, &expected, inside);
    println!("T1 to T2: error {before:.3} -> {after:.3} voxels, {whole:.3} with the images' own");
    assert!(after < 0.5 && whole < 1.0, "{before} -> {after} and {whole} voxels");
}
