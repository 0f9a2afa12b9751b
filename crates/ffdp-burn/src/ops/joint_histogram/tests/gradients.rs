//! Finite differences, and what the gradient is where there is none.

use burn::tensor::{DType, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gradcheck};

/// Step in intensity, at most 0.02 bins: no kink within it.
const STEP: f64 = 1e-4;
/// Rounding of sums of order 10 over the step; the votes are piecewise smooth.
const FINITE_DIFFERENCES: f64 = 1e-8;

#[test]
fn gradients_agree_with_finite_differences() {
    for kernel in KERNELS.into_iter().filter(|kernel| *kernel != ParzenKernel::Delta) {
        for (shape, bins, weighted) in [
            ([1, 1, 2, 3, 5], 32, false),
            ([2, 1, 3, 1, 5], 17, true),
            ([1, 1, 1, 1, 1], 16, false),
            ([1, 1, 1, 7, 1], 64, true),
        ] {
            let options = options(bins, kernel, HistogramMode::Exact);
            let [a, b, weights] = images(shape.iter().product(), bins, 7);
            let weights = weighted.then_some(&weights[..]);
            let checks = gradcheck(&["a", "b"], &[a, b], STEP, |inputs| {
                let images = [&inputs[0][..], &inputs[1]];
                let outcome = evaluate(images, weights, shape, &options, &cpu(), DType::F64);
                (outcome.loss, outcome.gradients)
            });
            for check in checks {
                assert!(check.error < FINITE_DIFFERENCES, "{kernel:?} {shape:?}: {check:?}");
            }
        }
    }
}

#[test]
fn approximate_has_the_gradient_of_exact() {
    let [a, b, _] = images(60, 32, 8);
    for kernel in KERNELS {
        let of = |mode| on_cpu([&a, &b], [1, 1, 3, 4, 5], &options(32, kernel, mode)).gradients;
        assert_eq!(of(HistogramMode::Approximate), of(HistogramMode::Exact), "{kernel:?}");
    }
}

#[test]
fn clamped_intensities_have_no_gradient() {
    let [mut a, b, _] = images(6, 32, 9);
    [a[0], a[1], a[2]] = [-0.1, 1.1, f64::NAN];
    for kernel in KERNELS {
        let exact = options(32, kernel, HistogramMode::Exact);
        let gradients = on_cpu([&a, &b], [1, 1, 1, 1, 6], &exact).gradients;
        assert!(gradients[0][..3].iter().all(|g| *g == 0.0), "{kernel:?}: {gradients:?}");
        let moves = kernel != ParzenKernel::Delta;
        assert!(gradients[0][3..].iter().all(|g| (*g != 0.0) == moves), "{kernel:?}");
        assert!(gradients[1].iter().all(|g| (*g != 0.0) == moves), "{kernel:?}: {gradients:?}");
    }
}

#[test]
fn the_ends_of_the_range_have_one_sided_gradients() {
    // At exactly 0 and 1 nothing is clamped: the derivative is that from within.
    let spline = HistogramOptions::default();
    for (end, within) in [(0.0, 1e-9), (1.0, 1.0 - 1e-9)] {
        let of = |v: f64| on_cpu([&[v], &[0.4]], [1, 1, 1, 1, 1], &spline).gradients[0][0];
        // The second derivative (about 1e3) times the distance.
        assert_close("end", &[of(end)], &[of(within)], 1e-6);
        assert!(of(end) != 0.0);
    }
}

#[test]
fn only_wanted_gradients_are_recorded() {
    let device = cpu().autodiff();
    let [a, b, weights] = images(60, 32, 10)
        .map(|v| -> Tensor<5> { tensor(&v, [1, 1, 3, 4, 5], &device, DType::F32) });
    let (b, weights) = (b.require_grad(), weights.require_grad());
    let joint =
        weighted_joint_histogram(a.clone(), b.clone(), weights.clone(), &Default::default());
    let gradients = (joint.clone() * joint).backward();
    assert!(a.grad(&gradients).is_none());
    assert!(weights.grad(&gradients).is_none(), "weights are constants");
    assert_eq!(b.grad(&gradients).expect("b wants one").dims(), [1, 1, 3, 4, 5]);
}
