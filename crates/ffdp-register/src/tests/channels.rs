//! Several channels: contrasts that see different parts of the anatomy.

use burn::tensor::Device;

use super::{found, mean_error, methods, only, pair_of, register, short, warp};
use crate::{
    LevelSettings, Problem, Silent, Similarity, methods::GreedySettings, settings::MiSettings,
};
use ffdp_image::image::Volume;

/// The image where `keep` says so along x, 0 elsewhere.
fn part(image: &Volume, keep: impl Fn(usize) -> bool) -> Volume {
    let of = |(offset, &v): (usize, &f32)| {
        if keep(image.geometry.index_of(offset)[0]) { v } else { 0.0 }
    };
    let data = image.data.iter().enumerate().map(of).collect();
    Volume::new(data, image.geometry.clone()).expect("same size")
}

#[test]
fn two_channels_find_what_neither_sees_alone() {
    let pair = pair_of(40, 3);
    let halves = |image: &Volume| [part(image, |x| x < 20), part(image, |x| x >= 20)];
    let ([f1, f2], [m1, m2]) = (halves(&pair.fixed.image), halves(&pair.moving.image));
    let error = |problem: Problem| {
        let result = found(&problem, methods(&short())[0].clone());
        mean_error(&warp(&result).to_vec().expect("readable"), &pair)
    };
    let alone = [error(Problem::new(&f1, &m1)), error(Problem::new(&f2, &m2))];
    let more_channels = vec![[(&f2).into(), (&m2).into()]];
    let both = error(Problem { more_channels, ..Problem::new(&f1, &m1) });
    println!("errors alone {alone:.3?}, together {both:.3} voxels");
    // Measured: 1.02 and 0.87 alone, 0.557 together.
    assert!(both < 1.2 * 0.557, "{both}");
    assert!(alone.iter().all(|alone| both < 0.8 * alone), "{alone:?} {both}");
}

#[test]
fn the_same_channel_twice_is_the_channel() {
    let pair = pair_of(24, 4);
    let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
    // Scaled for itself: a channel's unit does not matter.
    let brighter = |image: &Volume| {
        let data = image.data.iter().map(|v| 1000.0 * v - 3.0).collect();
        Volume::new(data, image.geometry.clone()).expect("same size")
    };
    let (fixed2, moving2) = (brighter(fixed), brighter(moving));
    for similarity in [
        GreedySettings::default().similarity,
        Similarity::Mse,
        Similarity::Mi(MiSettings::default()),
    ] {
        let levels = vec![LevelSettings { shrink: 1.0, iterations: 8 }];
        let greedy = GreedySettings { similarity: similarity.clone(), levels, ..short() };
        // Every similarity with the first method, and every method with squares: neither knows of the other.
        let count = if similarity == Similarity::Mse { 3 } else { 1 };
        for stage in methods(&greedy).into_iter().take(count) {
            let once = found(&Problem::new(fixed, moving), stage.clone());
            let more_channels = vec![[(&fixed2).into(), (&moving2).into()]];
            let problem = Problem { more_channels, ..Problem::new(fixed, moving) };
            let twice = found(&problem, stage.clone());
            let [a, b] = [&once, &twice].map(|r| warp(r).to_vec().expect("readable"));
            let off = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            println!("{similarity:?} {}: {off:.1e} voxels", stage.name());
            // Intensities are rounded differently, at 1e-7; eight steps pass it on.
            assert!(off < 1e-2, "{similarity:?} {}: {off}", stage.name());
            assert!((once.loss_after - twice.loss_after).abs() < 1e-4);
        }
    }
}

#[test]
fn channels_that_do_not_fit_are_refused() {
    let pair = pair_of(16, 1);
    let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
    let message = |a: &Volume, b: &Volume| {
        let more_channels = vec![[a.into(), b.into()]];
        let problem = Problem { more_channels, ..Problem::new(fixed, moving) };
        register(&problem, &only(short()), &Device::flex(), &mut Silent)
            .expect_err("must be refused")
            .to_string()
    };
    let other = pair_of(17, 1).fixed.image;
    let mut constant = fixed.clone();
    constant.data.fill(2.0);
    let text = message(&other, moving);
    assert!(text.contains("channel 2 of the fixed image is on another grid"), "{text}");
    let text = message(fixed, &constant);
    assert!(text.contains("channel 2 of the moving image must not be constant"), "{text}");
}
