//! Images of one plane.

use burn::tensor::Device;

use super::{found, mean_distance, methods, only, short, warp};
use crate::image::{Geometry, Volume};
use crate::metrics::jacobian;
use crate::register::{
    GreedySettings, LevelSettings, MiSettings, Problem, Silent, Similarity, register,
};

const SIZE: [usize; 3] = [72, 64, 1];

/// Along z the spacing is finer than the voxels are wide: it must not decide the levels.
fn grid() -> Geometry {
    Geometry::new(SIZE, [2.0, 2.0, 0.5])
        .and_then(|g| g.with_origin([-70.0, 10.0, 33.0]))
        .expect("valid")
}

/// Round spots of several sizes, in voxels.
fn pattern(x: f64, y: f64) -> f64 {
    let spots = [
        (20.0, 20.0, 9.0, 0.9),
        (48.0, 22.0, 7.0, 0.6),
        (30.0, 44.0, 10.0, 0.7),
        (54.0, 46.0, 6.0, 1.0),
        (14.0, 42.0, 4.0, 0.5),
        (37.0, 30.0, 4.0, -0.4),
    ];
    let spot = |(cx, cy, sigma, height): (f64, f64, f64, f64)| {
        height * (-0.5 * ((x - cx).powi(2) + (y - cy).powi(2)) / (sigma * sigma)).exp()
    };
    let ripple = 0.1 * (x / 3.0).sin() * (y / 4.0).cos();
    spots.into_iter().map(spot).sum::<f64>() + ripple
}

/// The answer, in voxels: smooth, up to three.
fn shift(x: f64, y: f64) -> [f64; 2] {
    [2.5 * (y / 14.0).sin(), 2.0 * (x / 17.0).cos()]
}

fn plane(value: impl Fn(f64, f64) -> f64) -> Volume {
    let geometry = grid();
    let at = |offset| {
        let [x, y, _] = geometry.index_of(offset);
        value(x as f64, y as f64) as f32
    };
    Volume::new((0..geometry.len()).map(at).collect(), geometry.clone()).expect("fits")
}

#[test]
fn a_known_warp_of_a_plane_is_found_within_it() {
    let moving = plane(pattern);
    let fixed = plane(|x, y| {
        let [dx, dy] = shift(x, y);
        pattern(x + dx, y + dy)
    });
    let count = fixed.data.len();
    let component = |c: usize| {
        let of = move |p: usize| {
            let known = shift((p % SIZE[0]) as f64, (p / SIZE[0]) as f64);
            if c < 2 { known[c] as f32 } else { 0.0 }
        };
        (0..count).map(of).collect::<Vec<_>>()
    };
    let answer: Vec<f32> = (0..3).flat_map(component).collect();
    // At the border a part of the answer lies outside.
    let inside = |p: usize| {
        let (x, y) = (p % SIZE[0], p / SIZE[0]);
        (6..SIZE[0] - 6).contains(&x) && (6..SIZE[1] - 6).contains(&y)
    };
    let before = mean_distance(&vec![0.0; 3 * count], &answer, inside);
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let levels = vec![level(4.0, 60), level(2.0, 40), level(1.0, 30)];
    for similarity in [
        GreedySettings::default().similarity,
        Similarity::Mse,
        Similarity::Mi(MiSettings::default()),
    ] {
        let greedy = GreedySettings { similarity, levels: levels.clone(), ..short() };
        for stage in methods(&greedy) {
            let name = stage.name();
            let result = found(&Problem::new(&fixed, &moving), stage);
            let field = warp(&result).to_vec().expect("readable");
            let after = mean_distance(&field, &answer, inside);
            let folds = jacobian(&field, SIZE).expect("sizes match").true_folds;
            println!("{name} {similarity:?}: error {before:.3} -> {after:.3}, folds {folds}");
            assert!(after < 0.6 * before, "{name} {similarity:?}: {before} -> {after}");
            assert_eq!(folds, 0, "{name} {similarity:?}");
            assert!(field[2 * count..].iter().all(|z| *z == 0.0), "{name} left the plane");
            let sizes: Vec<_> = result.stages[0].levels.iter().map(|level| level.size).collect();
            assert_eq!(sizes, [[18, 16, 1], [36, 32, 1], [72, 64, 1]]);
        }
    }
}

#[test]
fn a_plane_and_a_volume_are_not_compared() {
    let plane = plane(pattern);
    let geometry = Geometry::new([72, 64, 9], [2.0, 2.0, 0.5])
        .and_then(|g| g.with_origin([-70.0, 10.0, 31.0]))
        .expect("valid");
    let volume = Volume::new(plane.data.repeat(9), geometry).expect("nine planes");
    let text =
        register(&Problem::new(&plane, &volume), &only(short()), &Device::flex(), &mut Silent)
            .expect_err("must be refused")
            .to_string();
    assert!(text.contains("both be volumes, or both one plane") && text.contains("[72, 64, 9]"));
}
