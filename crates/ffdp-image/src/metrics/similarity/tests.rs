//! Similarities against their definitions.

use super::*;

const SIZE: [usize; 3] = [9, 8, 7];
const COUNT: usize = 9 * 8 * 7;
/// f64 rounding of a few hundred terms, with cancellation.
const ROUNDING: f64 = 1e-9;

fn image(seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1u32 << 24) as f32
    };
    (0..COUNT).map(|_| next()).collect()
}

/// The definition, window by window.
fn brute_force(f: &[f32], m: &[f32], window: usize) -> Vec<f64> {
    let r = (window / 2) as i64;
    let at = |image: &[f32], p: [i64; 3]| {
        let inside = (0..3).all(|a| (0..SIZE[a] as i64).contains(&p[a]));
        let offset = (p[2] * SIZE[1] as i64 + p[1]) * SIZE[0] as i64 + p[0];
        if inside { f64::from(image[offset as usize]) } else { 0.0 }
    };
    let scores = (0..COUNT as i64).map(|o| {
        let c = [o % 9, o / 9 % 8, o / 72];
        let side = || -r..=r;
        let points: Vec<[i64; 3]> = side()
            .flat_map(|z| side().flat_map(move |y| side().map(move |x| [x, y, z])))
            .map(|d| [c[0] + d[0], c[1] + d[1], c[2] + d[2]])
            .collect();
        let n = points.len() as f64;
        let mean = |image: &[f32]| points.iter().map(|&p| at(image, p)).sum::<f64>() / n;
        let (mf, mm) = (mean(f), mean(m));
        let moment = |a: &[f32], ma: f64, b: &[f32], mb: f64| {
            points.iter().map(|&p| (at(a, p) - ma) * (at(b, p) - mb)).sum::<f64>() / n
        };
        moment(f, mf, m, mm).powi(2) / (moment(f, mf, f, mf) * moment(m, mm, m, mm))
    });
    scores.collect()
}

#[test]
fn local_correlation_matches_its_definition() {
    let (f, m) = (image(1), image(2));
    // Voxels everywhere, and in few rows of two planes: what lies between is not summed.
    let scattered = (0..COUNT).map(|i| i % 5 == 1).collect();
    let rows = (0..COUNT).map(|i| [5 * 72, 72 * 2 + 6 * 9 + 3, 72 * 2 + 7].contains(&i)).collect();
    let masks: [Vec<bool>; 2] = [scattered, rows];
    for (window, mask) in
        [3, 5, 7].into_iter().flat_map(|w| masks.iter().map(move |mask| (w, mask)))
    {
        let scores = brute_force(&f, &m, window);
        let got = local_ncc(&f, &m, SIZE, window, None).expect("valid");
        let expected = scores.iter().sum::<f64>() / COUNT as f64;
        assert!((got - expected).abs() < ROUNDING, "window {window}: {got} {expected}");
        let got = local_ncc(&f, &m, SIZE, window, Some(mask)).expect("valid");
        let chosen: Vec<f64> =
            scores.iter().zip(mask).filter(|(_, m)| **m).map(|(s, _)| *s).collect();
        let expected = chosen.iter().sum::<f64>() / chosen.len() as f64;
        assert!((got - expected).abs() < ROUNDING, "masked {window}: {got} {expected}");
    }
}

#[test]
fn linear_remapping_correlates_fully() {
    let f = image(3);
    let m: Vec<f32> = f.iter().map(|v| 2.0 - 1.5 * v).collect();
    assert!((ncc(&f, &m).expect("valid") + 1.0).abs() < 1e-6);
    // Zero padding breaks the linear relation at the border only.
    let inner: Vec<bool> = (0..COUNT)
        .map(|i| [(i % 9, 9), (i / 9 % 8, 8), (i / 72, 7)].iter().all(|&(v, n)| v > 0 && v < n - 1))
        .collect();
    let local = local_ncc(&f, &m, SIZE, 3, Some(&inner)).expect("valid");
    assert!((local - 1.0).abs() < 1e-6, "{local}");
}

#[test]
fn errors_and_information_of_small_images_by_hand() {
    let (f, m) = ([0.0f32, 0.0, 1.0, 1.0], [0.0f32, 0.5, 0.5, 1.0]);
    assert_eq!(mean_squared_error(&f, &m).expect("valid"), 0.125);
    let expected = 10.0 * 8f64.log10();
    assert!((psnr(&f, &m, 1.0).expect("valid") - expected).abs() < ROUNDING);
    assert_eq!(psnr(&f, &f, 1.0).expect("valid"), f64::INFINITY);
    // Two bins: f = 0 0 1 1 and m = 0 1 1 1 share the counts (1, 1; 0, 2).
    let shared = information(&f, &m, 2).expect("valid");
    let entropy = |p: &[f64]| -p.iter().map(|p| p * p.ln()).sum::<f64>();
    assert!((shared.fixed - entropy(&[0.5, 0.5])).abs() < ROUNDING);
    assert!((shared.moved - entropy(&[0.25, 0.75])).abs() < ROUNDING);
    assert!((shared.joint - entropy(&[0.25, 0.25, 0.5])).abs() < ROUNDING);
    // An image has full information about itself, a constant one none.
    let own = information(&f, &f, 8).expect("valid");
    assert!((own.mutual() - 2f64.ln()).abs() < ROUNDING);
    assert!((own.normalized() - 2.0).abs() < ROUNDING);
    assert_eq!(information(&f, &[3.0; 4], 8).expect("valid").mutual(), 0.0);
    assert!(information(&f, &m, 1).is_err());
    assert!(mean_squared_error(&f, &m[1..]).is_err());
}

#[test]
fn structural_similarity_is_one_for_equal_images_and_needs_room() {
    let size = [12, 11, 13];
    let f: Vec<f32> = (0..12 * 11 * 13).map(|i| (i * i % 97) as f32 / 96.0).collect();
    let same = ssim(&f, &f, size, 1.0, None).expect("valid");
    assert!((same - 1.0).abs() < ROUNDING, "{same}");
    let inverted: Vec<f32> = f.iter().map(|v| 1.0 - v).collect();
    assert!(ssim(&f, &inverted, size, 1.0, None).expect("valid") < 0.0);
    // The mask picks among the whole windows; a voxel at the border has none.
    let mask: Vec<bool> = (0..f.len()).map(|i| i == 0).collect();
    assert!(ssim(&f, &f, size, 1.0, Some(&mask)).expect("valid").is_nan());
    let message = ssim(&f[..10 * 11 * 13], &f[..10 * 11 * 13], [10, 11, 13], 1.0, None);
    let message = message.expect_err("no room").to_string();
    assert!(message.contains("11 voxels") && message.contains("[10, 11, 13]"), "{message}");
}

#[test]
fn flat_images_score_zero_and_never_nan() {
    let (f, flat) = (image(4), vec![0.7f32; COUNT]);
    let inner: Vec<bool> = (0..COUNT).map(|i| i == 4 + 9 * 4 + 72 * 3).collect();
    assert_eq!(local_ncc(&f, &flat, SIZE, 5, Some(&inner)).expect("valid"), 0.0);
    assert!(ncc(&f, &flat).expect("valid").is_nan());
    assert!(local_ncc(&f, &flat, SIZE, 4, None).is_err());
    assert!(local_ncc(&f, &flat[1..], SIZE, 3, None).is_err());
}

#[test]
fn a_plane_is_as_the_middle_of_equal_planes() {
    let count = SIZE[0] * SIZE[1];
    let [f, m] = [1, 2].map(|seed| image(seed)[..count].to_vec());
    let plane = local_ncc(&f, &m, [SIZE[0], SIZE[1], 1], 7, None).expect("valid");
    let middle: Vec<bool> = (0..COUNT).map(|i| i / count == 3).collect();
    let stack = local_ncc(&f.repeat(7), &m.repeat(7), SIZE, 7, Some(&middle)).expect("valid");
    assert!((plane - stack).abs() < ROUNDING, "{plane} {stack}");
}
