//! Images of one plane.

use burn::tensor::Device;

use super::{found, little_smoothing, mean_distance, methods, only, register, short, warp};
use crate::{
    LevelSettings, Problem, Silent, Similarity, methods::GreedySettings, settings::MiSettings,
};
use ffdp_burn::transform::Displacement;
use ffdp_image::image::{Geometry, Volume};
use ffdp_image::metrics::jacobian;
use ffdp_image::synth::{PhantomSettings, subject};

const SIZE: [usize; 3] = [64, 64, 1];

/// The middle plane of a head. Along z the spacing is finer than the voxels are wide: it must not decide
/// the levels.
fn slice() -> Volume {
    let head = subject(&PhantomSettings::with_size([64; 3]), 4).expect("valid settings").image;
    let [x, y, _] = head.geometry.spacing_mm;
    let geometry = Geometry::new(SIZE, [x, y, 0.5])
        .and_then(|g| g.with_origin([-70.0, 10.0, 33.0]))
        .expect("valid");
    let count = geometry.len();
    Volume::new(head.data[32 * count..33 * count].to_vec(), geometry).expect("fits")
}

/// The answer, `[3, 1, H, W]` in voxels: smooth, up to three.
fn answer() -> Vec<f32> {
    let at = |p: usize| ((p % SIZE[0]) as f32, (p / SIZE[0]) as f32);
    let x = |p| 2.5 * (at(p).1 / 12.0).sin();
    let y = |p| 2.0 * (at(p).0 / 14.0).cos();
    let count = SIZE[0] * SIZE[1];
    (0..count).map(x).chain((0..count).map(y)).chain(vec![0.0; count]).collect()
}

#[test]
fn a_known_warp_of_a_plane_is_found_within_it() {
    let (moving, answer) = (slice(), answer());
    let count = moving.data.len();
    let known = Displacement::from_vec(answer.clone(), moving.geometry.clone(), &Device::flex());
    let fixed = known.and_then(|known| known.warp(&moving)).expect("fits");
    let inside = |p: usize| fixed.data[p] > 0.1;
    let before = mean_distance(&vec![0.0; 3 * count], &answer, inside);
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let levels = vec![level(2.0, 60), level(1.0, 60)];
    // Measured, in voxels, of 2.245: greedy, SyN and velocities.
    for (similarity, measured) in [
        (GreedySettings::default().similarity, &[0.011, 0.164, 0.005][..]),
        (Similarity::Mse, &[0.045]),
        (Similarity::Mi(MiSettings::default()), &[0.100]),
    ] {
        let greedy =
            GreedySettings { similarity: similarity.clone(), levels: levels.clone(), ..short() };
        // Every similarity with the first method, and every method with LNCC: neither knows of the other.
        for (stage, measured) in methods(&greedy).into_iter().zip(measured) {
            let name = stage.name();
            let result = found(&Problem::new(&fixed, &moving), little_smoothing(stage));
            let field = warp(&result).to_vec().expect("readable");
            let after = mean_distance(&field, &answer, inside);
            let folds = jacobian(&field, SIZE).expect("sizes match").true_folds;
            println!("{name} {similarity:?}: error {before:.3} -> {after:.3}, folds {folds}");
            // A fifth more, and half of the last digit.
            let bound = 1.2 * measured + 5e-4;
            assert!(after < bound, "{name} {similarity:?}: {before} -> {after}");
            assert_eq!(folds, 0, "{name} {similarity:?}");
            assert!(field[2 * count..].iter().all(|z| *z == 0.0), "{name} left the plane");
            let sizes: Vec<_> = result.stages[0].levels.iter().map(|level| level.size).collect();
            assert_eq!(sizes, [[32, 32, 1], [64, 64, 1]]);
        }
    }
}

#[test]
fn a_plane_and_a_volume_are_not_compared() {
    let plane = slice();
    let [x, y, z] = plane.geometry.spacing_mm;
    let geometry = Geometry::new([64, 64, 9], [x, y, z])
        .and_then(|g| g.with_origin([-70.0, 10.0, 31.0]))
        .expect("valid");
    let volume = Volume::new(plane.data.repeat(9), geometry).expect("nine planes");
    let text =
        register(&Problem::new(&plane, &volume), &only(short()), &Device::flex(), &mut Silent)
            .expect_err("must be refused")
            .to_string();
    assert!(text.contains("both be volumes, or both one plane") && text.contains("[64, 64, 9]"));
}
