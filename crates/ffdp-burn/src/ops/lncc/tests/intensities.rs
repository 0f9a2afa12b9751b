//! Flat, huge and tiny intensities.

use burn::tensor::DType;

use super::*;
use ffdp_kit::testing::{assert_close, uniform};

#[test]
fn flat_images_are_unrelated_and_give_no_gradient() {
    let noise = normal(125, 6);
    let zeros = vec![0.0; 125];
    for (label, images) in [("both", [&zeros, &zeros]), ("moved", [&zeros, &noise])] {
        for dtype in [DType::F32, DType::F64] {
            let [moved, fixed] = images.map(|image| &image[..]);
            let shape = [1, 1, 5, 5, 5];
            let (loss, gradients) = evaluate([moved, fixed], shape, &window(3), &cpu(), dtype);
            assert_eq!(loss, 1.0, "{label} flat, {dtype:?}");
            // To the flat image A = 0: gamma and every term of the other's gradient vanish.
            assert!(gradients[1].iter().all(|g| *g == 0.0), "{label} flat, {dtype:?}");
            assert!(gradients[0].iter().all(|g| *g == 0.0), "{label} flat, {dtype:?}");
        }
    }
}

#[test]
fn constant_regions_count_as_unrelated() {
    // Constants differ from the zeros outside, so windows at the border do relate; those inside
    // have no variance, whatever the constant.
    let (size, options) = ([9, 9, 9], window(3));
    for (moved, fixed) in [(2.0, 3.0), (1e4, -3e4)] {
        let (moved, fixed) = (vec![moved; 729], vec![fixed; 729]);
        for dtype in [DType::F32, DType::F64] {
            let (loss, gradients) =
                evaluate([&moved, &fixed], [1, 1, 9, 9, 9], &options, &cpu(), dtype);
            let border = (9f64.powi(3) - 7f64.powi(3)) / 729.0;
            assert!((loss - (1.0 - border)).abs() < 1e-4, "{dtype:?}: loss {loss}");
            for gradient in gradients {
                assert!(gradient.iter().all(|g| g.is_finite()), "{dtype:?}");
                // Two windows away from the border nothing is left.
                let middle = (2..7).flat_map(|z| (2..7).map(move |y| (z * 9 + y) * 9 + 4));
                for voxel in middle {
                    assert_eq!(gradient[voxel], 0.0, "{dtype:?} voxel {voxel}");
                }
            }
        }
    }
    let n = direct(&vec![2.0; 729], &vec![3.0; 729], size, &options);
    assert_eq!(n[(4 * 9 + 4) * 9 + 4], 0.0);
}

#[test]
fn huge_offsets_do_not_swamp_the_variation() {
    let shape = [1, 1, 11, 10, 9];
    let unit = |seed| uniform(990, 0.0, 1.0, seed);
    let shift = |values: Vec<f64>| -> Vec<f64> {
        values.into_iter().map(|v| f64::from((1e4 + v) as f32)).collect()
    };
    let (moved, fixed) = (shift(unit(7)), shift(unit(8)));
    let options = window(5);
    let n = direct(&moved, &fixed, [11, 10, 9], &options);
    let expected = 1.0 - n.iter().sum::<f64>() / 990.0;
    let (loss, gradients) = evaluate([&moved, &fixed], shape, &options, &cpu(), DType::F32);
    // The direct sums themselves difference numbers of 1e8 in f64, and lose 1e-8 of a variance.
    assert!((loss - expected).abs() < 1e-6, "{loss} against {expected}");
    let (_, oracle) = on_cpu([&moved, &fixed], shape, &options);
    for (gradient, oracle) in gradients.iter().zip(&oracle) {
        // f32 inputs and outputs, f64 between them.
        assert_close("gradient", gradient, oracle, 1e-6);
    }
}

#[test]
fn scaling_both_images_with_epsilon_changes_nothing() {
    let [moved, fixed] = pair(210, 9);
    let shape = [1, 1, 5, 6, 7];
    let (expected, gradients) = on_cpu([&moved, &fixed], shape, &window(3));
    for scale in [1e-6, 1e5] {
        let scaled = |image: &[f64]| image.iter().map(|v| v * scale).collect::<Vec<_>>();
        let options = LnccOptions { epsilon: 1e-5 * f64::powi(scale, 4), ..window(3) };
        let (loss, others) = on_cpu([&scaled(&moved), &scaled(&fixed)], shape, &options);
        assert!((loss - expected).abs() < ROUNDING, "scale {scale}: {loss} against {expected}");
        for (scaled, gradient) in others.iter().zip(&gradients) {
            let back: Vec<f64> = scaled.iter().map(|g| g * scale).collect();
            assert_close(&format!("scale {scale}"), &back, gradient, ROUNDING);
        }
    }
}

#[test]
fn tiny_variation_below_epsilon_counts_as_flat() {
    let [moved, fixed] =
        pair(210, 10).map(|image| -> Vec<f64> { image.into_iter().map(|v| v * 1e-8).collect() });
    let (loss, gradients) =
        evaluate([&moved, &fixed], [1, 1, 5, 6, 7], &window(3), &cpu(), DType::F32);
    assert_eq!(loss, 1.0);
    assert!(gradients.iter().flatten().all(|g| g.is_finite() && g.abs() < 1e-12));
}
