//! What a mask leaves out is never looked at.

use burn::tensor::Device;

use super::{found, mean_distance, methods, only, pair_of, register, short, some_methods, warp};
use crate::{
    LevelSettings, Problem, Settings, Silent, Similarity, Source, Stage,
    methods::GreedySettings,
    settings::{LinearSettings, MiSettings},
};
use ffdp_image::image::{Geometry, Volume};
use ffdp_image::synth::Pair;

/// 0 in a box of voxels, 1 elsewhere.
fn all_but(geometry: &Geometry, [low, high]: [[usize; 3]; 2]) -> Volume {
    let weight = |offset| {
        let index = geometry.index_of(offset);
        let boxed = (0..3).all(|axis| (low[axis]..high[axis]).contains(&index[axis]));
        if boxed { 0.0 } else { 1.0 }
    };
    Volume::new((0..geometry.len()).map(weight).collect(), geometry.clone()).expect("sizes match")
}

/// Bright metal with stripes wherever the mask is 0.
fn corrupted(image: &Volume, mask: &Volume) -> Volume {
    let spoiled = |(offset, (&v, &weight)): (usize, (&f32, &f32))| match weight {
        0.0 => 4.0 + (offset % 3) as f32,
        _ => v,
    };
    let data = image.data.iter().zip(&mask.data).enumerate().map(spoiled).collect();
    Volume::new(data, image.geometry.clone()).expect("same size")
}

/// A pair with masks that leave out a corner of each brain.
fn masked_pair() -> (Pair, [Volume; 2]) {
    let pair = pair_of(40, 4);
    let masks = [
        all_but(&pair.fixed.image.geometry, [[20, 22, 20], [34, 36, 34]]),
        all_but(&pair.moving.image.geometry, [[5, 8, 20], [16, 20, 32]]),
    ];
    (pair, masks)
}

#[test]
fn a_corrupted_region_outside_the_masks_does_not_change_a_bit() {
    let (pair, [fixed_mask, moving_mask]) = masked_pair();
    let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
    let spoiled = [corrupted(fixed, &fixed_mask), corrupted(moving, &moving_mask)];
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    for similarity in [
        GreedySettings::default().similarity,
        Similarity::Mse,
        Similarity::Mi(MiSettings::default()),
    ] {
        let levels = vec![level(2.0, 6), level(1.0, 2)];
        let greedy = GreedySettings { similarity: similarity.clone(), levels, ..short() };
        for stage in some_methods(&greedy) {
            let [clean, spoiled] = [[fixed, moving], [&spoiled[0], &spoiled[1]]].map(|[f, m]| {
                let problem = Problem {
                    fixed_mask: Some((&fixed_mask).into()),
                    moving_mask: Some((&moving_mask).into()),
                    ..Problem::new(f, m)
                };
                found(&problem, stage.clone())
            });
            let [a, b] = [&clean, &spoiled].map(|r| warp(r).to_vec().expect("readable"));
            assert!(a == b, "{similarity:?} {}", stage.name());
            assert!(a.iter().any(|u| u.abs() > 0.3), "nothing moved");
            assert_eq!(clean.loss_after, spoiled.loss_after);
            assert!(clean.loss_after < clean.loss_before);
        }
    }
}

#[test]
fn a_mask_saves_the_result_around_a_corrupted_region() {
    let (pair, [fixed_mask, _]) = masked_pair();
    let fixed = corrupted(&pair.fixed.image, &fixed_mask);
    let moving = &pair.moving.image;
    // Where there is something to find, and something to see.
    let labels = &pair.fixed.labels.data;
    let inside = |p: usize| labels[p] != 0 && fixed_mask.data[p] > 0.0;
    let error = |mask: Option<&Volume>| {
        let problem =
            Problem { fixed_mask: mask.map(Source::from), ..Problem::new(&fixed, moving) };
        let result = found(&problem, methods(&short())[0].clone());
        mean_distance(&warp(&result).to_vec().expect("readable"), &pair.displacement, inside)
    };
    let before = mean_distance(&vec![0.0; 3 * labels.len()], &pair.displacement, inside);
    let (without, with) = (error(None), error(Some(&fixed_mask)));
    println!("error {before:.3}, without the mask {without:.3}, with it {with:.3} voxels");
    // Measured: 1.22 before, 3.66 without and 0.50 with it.
    assert!(with < 1.2 * 0.501 && without > before, "{before} {without} {with}");
}

#[test]
fn a_mask_of_ones_changes_only_the_windows_at_the_border() {
    let pair = pair_of(32, 5);
    let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
    let ones = Volume::new(vec![1.0; fixed.data.len()], fixed.geometry.clone()).expect("fits");
    for similarity in [Similarity::Mse, Similarity::Mi(MiSettings::default())] {
        let greedy = GreedySettings { similarity: similarity.clone(), ..short() };
        let loss = |mask: Option<&Volume>| {
            let fixed_mask = mask.map(Source::from);
            let problem = Problem { fixed_mask, ..Problem::new(fixed, moving) };
            found(&problem, methods(&greedy)[0].clone()).stages[0].levels[0].losses.clone()
        };
        let (a, b) = (loss(None), loss(Some(&ones)));
        // f32 sums in another order, and what ten steps make of it.
        let off = a.iter().zip(&b).take(10).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 1e-5, "{similarity:?}: {off}");
    }
}

#[test]
fn masks_that_cannot_be_used_are_refused() {
    let pair = pair_of(16, 1);
    let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
    let of = |data: Vec<f32>| Volume::new(data, fixed.geometry.clone()).expect("fits");
    let count = fixed.data.len();
    let refused = |masks: [Option<&Volume>; 2], settings: &Settings| {
        let [fixed_mask, moving_mask] = masks.map(|mask| mask.map(Source::from));
        let problem = Problem { fixed_mask, moving_mask, ..Problem::new(fixed, moving) };
        register(&problem, settings, &Device::flex(), &mut Silent)
            .expect_err("must be refused")
            .to_string()
    };
    let message = |fixed_mask: Option<&Volume>, moving_mask: Option<&Volume>| {
        refused([fixed_mask, moving_mask], &only(short()))
    };
    let mut nan = of(vec![1.0; count]);
    nan.data[17] = f32::NAN;
    let shifted = {
        let [x, y, z] = fixed.geometry.origin_mm;
        let geometry = fixed.geometry.clone().with_origin([x + 1.5, y, z]).expect("valid");
        Volume::new(vec![1.0; count], geometry).expect("fits")
    };
    // One voxel has one value.
    let corner = of((0..count).map(|p| if p == 0 { 1.0 } else { 0.0 }).collect());
    for (mask, words) in [
        (of(vec![0.0; count]), &["mask must not be empty", "0 in every voxel"][..]),
        (of(vec![255.0; count]), &["weights in 0..1", "255"]),
        (of(vec![-1.0; count]), &["weights in 0..1", "-1"]),
        (nan, &["mask holds 1 NaN"]),
        (shifted, &["mask is on another grid", "accepted 0.05"]),
        (corner, &["image must not be constant inside its mask", "belong together"]),
    ] {
        for (role, text) in
            [("fixed", message(Some(&mask), None)), ("moving", message(None, Some(&mask)))]
        {
            assert!(text.contains(role), "{text} does not name the {role} mask");
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }
    // Apart, also where the coarser level has smoothed them.
    let side = |counts: fn(usize) -> bool| {
        of((0..count).map(|p| if counts(p % 16) { 1.0 } else { 0.0 }).collect())
    };
    let (left, right) = (side(|x| x < 5), side(|x| x >= 11));
    let rigid = Stage::Rigid(LinearSettings::default());
    for settings in [only(short()), Settings { stages: vec![rigid], ..Settings::default() }] {
        let text = refused([Some(&left), Some(&right)], &settings);
        assert!(text.contains("must meet"), "{text}");
    }
}
