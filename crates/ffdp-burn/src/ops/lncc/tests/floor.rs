//! The floor common to both images: its formula, its gradients, and what it is for.

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck};

/// f32 sums of `n`, which is 1 wherever images match.
const GPU: f64 = 2e-6;

fn common(window: usize, epsilon: f64) -> LnccOptions {
    LnccOptions { window, epsilon, floor: LnccFloor::Common, ..Default::default() }
}

/// Two related images, of which a corner is flat in both and another in one.
fn partly_flat([d, h, w]: [usize; 3], seed: u64) -> [Vec<f64>; 2] {
    let [mut moved, mut fixed] = pair(d * h * w, seed);
    for voxel in 0..d * h * w {
        let (x, z) = (voxel % w, voxel / (h * w));
        if 2 * x < w {
            fixed[voxel] = 0.3;
            moved[voxel] = if 2 * z < d { 0.3 } else { moved[voxel] };
        }
    }
    [moved, fixed]
}

#[test]
fn the_value_is_the_correlation_of_images_with_one_noise() {
    for (size, w, epsilon) in [([5, 6, 7], 3, 1e-5), ([9, 8, 7], 5, 1e-2), ([4, 3, 9], 7, 1.0)] {
        let [moved, fixed] = partly_flat(size, 31);
        let e = f64::sqrt(epsilon);
        let n = |voxel| {
            let [f, m, ff, mm, fm] = means(&moved, &fixed, size, voxel, &common(w, epsilon));
            let (a, b, c) = (fm - f * m, (ff - f * f).max(0.0), (mm - m * m).max(0.0));
            (a + e).powi(2) / ((b + e) * (c + e))
        };
        let expected = 1.0 - (0..moved.len()).map(n).sum::<f64>() / moved.len() as f64;
        let shape = [1, 1, size[0], size[1], size[2]];
        let (loss, _) = on_cpu([&moved, &fixed], shape, &common(w, epsilon));
        assert!((loss - expected).abs() < ROUNDING, "{size:?}: {loss} against {expected}");
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    for (size, w, epsilon) in [([5, 4, 6], 3, 1e-2), ([3, 4, 6], 5, 1e-3), ([1, 5, 4], 3, 1e-2)] {
        let shape = [1, 1, size[0], size[1], size[2]];
        let inputs = partly_flat(size, 33);
        let checks = gradcheck(&["moved", "fixed"], &inputs, 1e-3, |inputs| {
            on_cpu([&inputs[0], &inputs[1]], shape, &common(w, epsilon))
        });
        for check in checks {
            // As for the other floor.
            assert!(check.error < 1e-8, "{size:?} window {w}: {check:?}");
        }
    }
}

/// With the floor in the denominator alone, more contrast than that of a match is rewarded.
#[test]
fn a_match_is_the_best_there_is() {
    let (size, shape) = ([6, 7, 8], [1, 1, 6, 7, 8]);
    // Deviations of 0.05: their product of variances is about epsilon.
    let fixed: Vec<f64> = normal(size.iter().product(), 35).iter().map(|v| 0.05 * v).collect();
    let stronger: Vec<f64> = fixed.iter().map(|v| 1.5 * v).collect();
    let options = common(5, 1e-5);
    let (match_loss, gradients) = on_cpu([&fixed, &fixed], shape, &options);
    let largest = gradients.iter().flatten().fold(0.0f64, |m, g| m.max(g.abs()));
    assert!(match_loss.abs() < 1e-14 && largest < 1e-15, "loss {match_loss} gradient {largest}");
    let loss = |options: &LnccOptions| on_cpu([&stronger, &fixed], shape, options).0;
    assert!(loss(&options) > 0.01, "{}", loss(&options));
    let denominator = LnccOptions { floor: LnccFloor::Denominator, ..options };
    let matched = on_cpu([&fixed, &fixed], shape, &denominator).0;
    assert!(loss(&denominator) < matched - 0.01, "{} and {matched}", loss(&denominator));
}

#[test]
fn gpus_agree_with_the_cpu() {
    for (name, device) in gpu_devices() {
        for (size, w) in [([20, 19, 37], 7), ([11, 12, 13], 3)] {
            let shape = [1, 1, size[0], size[1], size[2]];
            let images = partly_flat(size, 37).map(|image| -> Vec<f64> {
                image.into_iter().map(|v| f64::from(v as f32)).collect()
            });
            for gradient in [GradientMode::Exact, GradientMode::AntsApproximate] {
                let options = LnccOptions { gradient, ..common(w, 1e-5) };
                let images = [&images[0][..], &images[1][..]];
                let (expected, gradients) = on_cpu(images, shape, &options);
                let (actual, others) = evaluate(images, shape, &options, &device, DType::F32);
                let label = format!("{name} {size:?} {gradient:?}");
                let error = (actual - expected).abs();
                assert!(error < GPU, "{label}: {actual} against {expected}");
                print!("lncc, common floor, {label}: value {error:.1e}");
                for (actual, expected) in others.iter().zip(&gradients) {
                    print!(" gradient {:.1e}", assert_close(&label, actual, expected, 1e-4));
                }
                println!();
            }
        }
    }
}
