//! Exact values and invariants of the loss.

use burn::tensor::{DType, Tensor};

use super::*;
use ffdp_kit::testing::assert_close;

#[test]
fn the_value_equals_direct_window_sums() {
    let cases = [
        ([5, 6, 7], 3, 1e-5),
        ([9, 8, 7], 7, 1e-5),
        ([4, 9, 10], 5, 1.0),
        // Windows larger than the image, and axes of one voxel.
        ([3, 4, 5], 9, 1e-5),
        ([2, 3, 2], 21, 1e-5),
        ([1, 7, 1], 3, 1e-5),
        ([1, 1, 1], 3, 1e-5),
        // Many planes: several chunks.
        ([29, 3, 4], 3, 1e-3),
    ];
    for (size, w, epsilon) in cases {
        let len: usize = size.iter().product();
        let [moved, fixed] = pair(2 * len, 1);
        let options = LnccOptions { window: w, epsilon, ..Default::default() };
        // Two channels: every one is a volume of its own.
        let n: f64 = (0..2)
            .flat_map(|c| {
                let channel = c * len..(c + 1) * len;
                direct(&moved[channel.clone()], &fixed[channel], size, &options)
            })
            .sum();
        let expected = 1.0 - n / moved.len() as f64;
        let shape = [1, 2, size[0], size[1], size[2]];
        let (loss, _) = on_cpu([&moved, &fixed], shape, &options);
        let label = format!("{size:?} window {w} eps {epsilon}: {loss} against {expected}");
        assert!((loss - expected).abs() < ROUNDING, "{label}");
    }
}

#[test]
fn gaussian_windows_equal_direct_weighted_sums() {
    let size = [6, 7, 5];
    let [moved, fixed] = pair(210, 20);
    for (w, sigma) in [(5, 0.7), (7, 1.5), (9, 100.0)] {
        let options = gaussian_window(w, sigma);
        let n: f64 = direct(&moved, &fixed, size, &options).iter().sum();
        let (loss, _) = on_cpu([&moved, &fixed], [1, 1, 6, 7, 5], &options);
        assert!((loss - (1.0 - n / 210.0)).abs() < ROUNDING, "window {w}, sigma {sigma}");
    }
    // Very wide, cut off at the window: a box, up to (4 / 1e6)^2 / 2 in a weight.
    let wide = on_cpu([&moved, &fixed], [1, 1, 6, 7, 5], &gaussian_window(9, 1e6)).0;
    let boxed = on_cpu([&moved, &fixed], [1, 1, 6, 7, 5], &window(9)).0;
    assert!((wide - boxed).abs() < 1e-9, "{wide} against {boxed}");
}

#[test]
#[should_panic(expected = "sigma_voxels must be positive and finite, got 0")]
fn a_window_without_width_is_rejected() {
    let [moved, fixed] = pair(8, 21);
    on_cpu([&moved, &fixed], [1, 1, 2, 2, 2], &gaussian_window(3, 0.0));
}

#[test]
fn batch_entries_and_channels_are_averaged() {
    let [moved, fixed] = pair(6 * 60, 3);
    let options = window(3);
    let (whole, _) = on_cpu([&moved, &fixed], [2, 3, 3, 4, 5], &options);
    let parts = moved.chunks(60).zip(fixed.chunks(60));
    let sum: f64 = parts.map(|(m, f)| on_cpu([m, f], [1, 1, 3, 4, 5], &options).0).sum();
    assert!((whole - sum / 6.0).abs() < ROUNDING, "{whole} against {}", sum / 6.0);
}

#[test]
fn proportional_images_match_perfectly() {
    let fixed = normal(1000, 4);
    for factor in [1.0, 3.0, -0.5] {
        let moved: Vec<f64> = fixed.iter().map(|f| factor * f).collect();
        let options = LnccOptions { window: 5, epsilon: 1e-12, ..Default::default() };
        let (loss, gradients) = on_cpu([&moved, &fixed], [1, 1, 10, 10, 10], &options);
        assert!((0.0..1e-10).contains(&loss), "factor {factor}: loss {loss}");
        // A maximum of n: nothing left to gain.
        let largest = gradients.iter().flatten().fold(0.0f64, |m, g| m.max(g.abs()));
        assert!(largest < 1e-9, "factor {factor}: gradient {largest}");
    }
}

#[test]
fn a_linear_relation_matches_perfectly_inside() {
    // At the border an offset is not shared by the zeros outside; inside it has no effect.
    let size = [10, 10, 10];
    let fixed = normal(1000, 5);
    let moved: Vec<f64> = fixed.iter().map(|f| 2.0 - 3.0 * f).collect();
    let options = LnccOptions { window: 3, epsilon: 1e-12, ..Default::default() };
    let (loss, _) = on_cpu([&moved, &fixed], [1, 1, 10, 10, 10], &options);
    let inside = 8.0f64.powi(3);
    let border: f64 = direct(&moved, &fixed, size, &options)
        .iter()
        .enumerate()
        .filter(|(voxel, _)| {
            [voxel % 10, voxel / 10 % 10, voxel / 100].iter().any(|i| [0, 9].contains(i))
        })
        .map(|(_, n)| n)
        .sum();
    let sum = (1.0 - loss) * 1000.0;
    assert!((sum - border - inside).abs() < 1e-8, "inside: {} of {inside}", sum - border);
}

#[test]
fn the_loss_lies_between_zero_and_one() {
    for seed in 0..20 {
        let scale = 10f64.powi(seed as i32 - 10);
        let [moved, fixed] = pair(4 * 27, 40 + seed)
            .map(|image| -> Vec<f64> { image.into_iter().map(|v| v * scale + 1e-3).collect() });
        for images in [[&moved, &fixed], [&fixed, &fixed]] {
            let [moved, fixed] = images.map(|image| &image[..]);
            let options = LnccOptions { window: 5, epsilon: 1e-30, ..Default::default() };
            let (loss, _) = evaluate([moved, fixed], [2, 2, 3, 3, 3], &options, &cpu(), DType::F32);
            assert!((0.0..=1.0).contains(&loss), "scale {scale}: loss {loss}");
        }
    }
}

#[test]
fn symmetric_in_the_two_images() {
    let [moved, fixed] = pair(2 * 120, 11);
    let shape = [2, 1, 4, 5, 6];
    let (loss, gradients) = on_cpu([&moved, &fixed], shape, &window(5));
    let (exchanged, others) = on_cpu([&fixed, &moved], shape, &window(5));
    assert!((loss - exchanged).abs() < ROUNDING);
    assert_close("moved", &gradients[0], &others[1], ROUNDING);
    assert_close("fixed", &gradients[1], &others[0], ROUNDING);
}

#[test]
fn moving_both_contents_changes_nothing() {
    // Contents in a sea of zeros wider than the windows and their gradients' windows.
    let [moved, fixed] = pair(3 * 4 * 5, 12);
    let place = |content: &[f64], at: [usize; 3]| {
        let mut image = vec![0.0; 16 * 15 * 14];
        for (voxel, value) in content.iter().enumerate() {
            let (x, y, z) = (voxel % 5 + at[0], voxel / 5 % 4 + at[1], voxel / 20 + at[2]);
            image[(z * 15 + y) * 14 + x] = *value;
        }
        image
    };
    let take = |image: &[f64], at: [usize; 3]| -> Vec<f64> {
        let index = |voxel: usize| {
            let (x, y, z) = (voxel % 5 + at[0], voxel / 5 % 4 + at[1], voxel / 20 + at[2]);
            (z * 15 + y) * 14 + x
        };
        (0..60).map(|voxel| image[index(voxel)]).collect()
    };
    let at = |corner: [usize; 3]| {
        let (m, f) = (place(&moved, corner), place(&fixed, corner));
        let (loss, gradients) = on_cpu([&m, &f], [1, 1, 16, 15, 14], &window(5));
        (loss, take(&gradients[0], corner))
    };
    let (loss, gradient) = at([4, 4, 4]);
    for corner in [[5, 6, 9], [4, 7, 5]] {
        let (shifted, moved_gradient) = at(corner);
        assert!((loss - shifted).abs() < ROUNDING, "corner {corner:?}");
        assert_close("gradient", &moved_gradient, &gradient, ROUNDING);
    }
}

#[test]
#[should_panic(expected = "moved [1, 1, 2, 2, 2] and fixed [1, 1, 2, 2, 3] must have the same")]
fn images_of_other_shapes_are_refused() {
    let image = |w| Tensor::<5>::zeros([1, 1, 2, 2, w], &cpu());
    lncc(image(2), image(3), &window(3));
}

#[test]
#[should_panic(expected = "the window must be odd and within 3..=21, got 4")]
fn an_even_window_is_refused() {
    lncc(
        Tensor::zeros([1, 1, 2, 2, 2], &cpu()),
        Tensor::zeros([1, 1, 2, 2, 2], &cpu()),
        &window(4),
    );
}

#[test]
#[should_panic(expected = "epsilon must be positive and finite, got 0")]
fn a_denominator_that_may_vanish_is_refused() {
    let image = Tensor::<5>::zeros([1, 1, 2, 2, 2], &cpu());
    lncc(image.clone(), image, &LnccOptions { epsilon: 0.0, ..window(3) });
}
