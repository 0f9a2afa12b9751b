//! The gradients: finite differences, the approximate formula, chunks of planes.

use super::*;
use ffdp_kit::testing::{assert_close, gradcheck, max_relative_error};

/// Smooth in the intensities: Richardson differences with step 1e-3 reach about 4e-10.
const FINITE_DIFFERENCES: f64 = 1e-8;

#[test]
fn the_approximate_gradient_equals_its_formula() {
    let (size, shape) = ([5, 6, 7], [1, 1, 5, 6, 7]);
    let [moved, fixed] = pair(210, 13);
    let options = LnccOptions { gradient: GradientMode::AntsApproximate, ..window(5) };
    let (loss, gradients) = on_cpu([&moved, &fixed], shape, &options);
    let mut expected = [Vec::new(), Vec::new()];
    for voxel in 0..210 {
        let [f, m, ff, mm, fm] = means(&moved, &fixed, size, voxel, &options);
        let (a, b, c) = (fm - f * m, ff - f * f, mm - m * m);
        let d = b * c + options.epsilon;
        let (df, dm) = (fixed[voxel] - f, moved[voxel] - m);
        // The loss is 1 - mean(n).
        let gamma = -2.0 * a / d / 210.0;
        expected[0].push(gamma * (df - a * b / d * dm));
        expected[1].push(gamma * (dm - a * c / d * df));
    }
    assert_close("to moved", &gradients[0], &expected[0], ROUNDING);
    assert_close("to fixed", &gradients[1], &expected[1], ROUNDING);
    let (exact_loss, exact) = on_cpu([&moved, &fixed], shape, &window(5));
    assert_eq!(loss, exact_loss, "the value does not depend on the gradient's mode");
    assert!(max_relative_error(&exact[0], &expected[0]) > 0.1, "it is an approximation");
}

#[test]
fn gradients_agree_with_finite_differences() {
    let cases = [
        ([1, 1, 5, 4, 6], 3, 1e-5),
        ([2, 2, 3, 4, 3], 5, 1e-2),
        ([1, 1, 3, 2, 4], 9, 1e-5),
        ([1, 2, 1, 5, 1], 3, 1e-5),
        ([2, 1, 1, 1, 1], 3, 1e-5),
        ([1, 1, 17, 2, 3], 3, 1e-5),
    ];
    for (shape, w, epsilon) in cases {
        let options = LnccOptions { window: w, epsilon, ..Default::default() };
        let inputs = pair(shape.iter().product(), 14);
        let checks = gradcheck(&["moved", "fixed"], &inputs, 1e-3, |inputs| {
            on_cpu([&inputs[0], &inputs[1]], shape, &options)
        });
        for check in checks {
            assert!(check.error < FINITE_DIFFERENCES, "{shape:?} window {w}: {check:?}");
        }
    }
}

#[test]
fn gradients_over_gaussian_windows_agree_with_finite_differences() {
    for (shape, w, sigma) in [([1, 1, 5, 4, 6], 5, 1.0), ([1, 2, 3, 4, 3], 7, 1.5)] {
        let inputs = pair(shape.iter().product(), 19);
        let checks = gradcheck(&["moved", "fixed"], &inputs, 1e-3, |inputs| {
            on_cpu([&inputs[0], &inputs[1]], shape, &gaussian_window(w, sigma))
        });
        for check in checks {
            assert!(check.error < FINITE_DIFFERENCES, "{shape:?} window {w}: {check:?}");
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let [moved, fixed] = pair(37 * 12, 15);
    let shape = [1, 1, 37, 3, 4];
    let results = [1, 2, 5].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("a small pool").install(|| on_cpu([&moved, &fixed], shape, &window(3)))
    });
    assert_eq!(results[1], results[0]);
    assert_eq!(results[2], results[0]);
}
