//! The loss is that of the public losses, its gradient that of finite differences.

use burn::tensor::{DType, Device, Tensor};

use super::{AlignmentImages, AlignmentLoss, Outside, alignment};
use crate::ops::{HistogramOptions, Information, LnccOptions};
use crate::testing::{assert_close, gpu_devices, gradcheck, tensor, to_f64};

/// Central differences of a trilinear image: the kinks between voxels cost more than the rounding.
const FINITE_DIFFERENCES: f64 = 2e-6;
/// f32 images and sums of a few thousand voxels.
const GPU_ROUNDING: f64 = 2e-4;

const FIXED: [usize; 5] = [1, 1, 7, 8, 9];
const MOVING: [usize; 5] = [1, 1, 9, 8, 10];

/// A smooth image in 0..1, so that few samples lie close to a kink.
fn smooth(shape: [usize; 5], phase: f64) -> Vec<f64> {
    let [_, _, d, h, w] = shape;
    let value = |i: usize| {
        let (x, y, z) = ((i % w) as f64, (i / w % h) as f64, (i / w / h) as f64);
        0.5 + 0.2 * (0.7 * x + phase).sin() * (0.5 * y).cos() + 0.2 * (0.6 * z - phase).sin()
    };
    (0..d * h * w).map(value).collect()
}

fn losses() -> [AlignmentLoss; 4] {
    let histogram = HistogramOptions { bins: 12, ..HistogramOptions::default() };
    let lncc = LnccOptions { window: 5, epsilon: 1e-3, ..LnccOptions::default() };
    [
        AlignmentLoss::Lncc(lncc),
        AlignmentLoss::SquaredDifference,
        AlignmentLoss::Information(Information::Mutual, histogram),
        AlignmentLoss::Information(Information::Normalized, histogram),
    ]
}

/// A map that turns, scales and shears a little and stays inside the moving image. Many digits, so that
/// no sample lies on a voxel, where a trilinear image has a kink.
const INSIDE: [f64; 12] = [
    0.93171, 0.06237, -0.03319, 0.61373, -0.05117, 0.81231, 0.04193, 0.57519, 0.04377, -0.03129,
    0.91737, 1.13391,
];
/// One that leaves it on two sides.
const BEYOND: [f64; 12] = [
    1.03171, 0.06237, -0.03319, 2.61373, -0.05117, 1.11231, 0.04193, -1.43519, 0.04377, -0.03129,
    1.21737, 1.13391,
];

fn evaluate(
    map: &[f64],
    loss: &AlignmentLoss,
    outside: Outside,
    device: &Device,
    dtype: DType,
) -> (f64, Vec<f64>) {
    let fixed: Tensor<5> = tensor(&smooth(FIXED, 0.3), FIXED, device, dtype);
    let moving: Tensor<5> = tensor(&smooth(MOVING, 0.0), MOVING, device, dtype);
    let map: Tensor<3> = tensor(map, [1, 3, 4], device, dtype);
    let images = AlignmentImages { fixed, moving, masks: [None, None] };
    let (loss, gradient) = alignment(&images, map, loss, outside);
    (to_f64(loss)[0], to_f64(gradient))
}

#[test]
fn gradients_agree_with_finite_differences() {
    let cpu = Device::flex();
    for loss in losses() {
        for (map, outside) in [
            (INSIDE, Outside::Background),
            (BEYOND, Outside::Background),
            (INSIDE, Outside::Ignored),
        ] {
            let checks = gradcheck(&["map"], &[map.to_vec()], 1e-6, |inputs| {
                let (value, gradient) = evaluate(&inputs[0], &loss, outside, &cpu, DType::F64);
                (value, vec![gradient])
            });
            assert!(checks[0].error < FINITE_DIFFERENCES, "{loss:?} {outside:?}: {checks:?}");
        }
    }
}

/// The loss without masks.
fn plain(
    fixed: &Tensor<5>,
    moving: &Tensor<5>,
    map: &[f64],
    loss: &AlignmentLoss,
    outside: Outside,
) -> f64 {
    let (fixed, moving) = (fixed.clone(), moving.clone());
    let map = tensor(map, [1, 3, 4], &fixed.device(), DType::F64);
    let images = AlignmentImages { fixed, moving, masks: [None, None] };
    to_f64(alignment(&images, map, loss, outside).0)[0]
}

#[test]
fn what_lies_outside_counts_nothing_if_ignored() {
    // The moving image is a part of the fixed one: seen through the map that places it, the rest of
    // the fixed image must not matter. LNCC looks into windows, so that its border differs.
    let fixed: Tensor<5> = tensor(&smooth(FIXED, 0.3), FIXED, &Device::flex(), DType::F64);
    let part = fixed.clone().slice([0..1, 0..1, 2..7, 0..8, 0..6]);
    let other = part.clone().square();
    let map = [1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., -2.];
    let identity = [1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0.];
    for loss in &losses()[1..] {
        let expected = plain(&part, &other, &identity, loss, Outside::Background);
        let got = plain(&fixed, &other, &map, loss, Outside::Ignored);
        assert!((got - expected).abs() < 1e-12, "{loss:?}: {got} {expected}");
        let background = plain(&fixed, &other, &map, loss, Outside::Background);
        assert!((background - expected).abs() > 1e-3, "{loss:?}: the case tests nothing");
    }
}

#[test]
fn masks_leave_voxels_out_of_value_and_gradient() {
    let device = Device::flex();
    let fixed: Tensor<5> = tensor(&smooth(FIXED, 0.3), FIXED, &device, DType::F64);
    let moving: Tensor<5> = tensor(&smooth(MOVING, 0.0), MOVING, &device, DType::F64);
    // Half of the fixed image counts; what the other half holds must not matter.
    let half = fixed.clone().slice([0..1, 0..1, 0..4, 0..8, 0..9]);
    let rest = fixed.clone().slice([0..1, 0..1, 4..7, 0..8, 0..9]);
    let mask = Tensor::cat(vec![half.ones_like(), rest.zeros_like()], 2);
    let changed = Tensor::cat(vec![half, rest.mul_scalar(0.3)], 2);
    for loss in losses() {
        let of = |fixed: &Tensor<5>| {
            let masks = [Some(mask.clone()), None];
            let images = AlignmentImages { fixed: fixed.clone(), moving: moving.clone(), masks };
            let map = tensor(&INSIDE, [1, 3, 4], &device, DType::F64);
            let (value, gradient) = alignment(&images, map, &loss, Outside::Background);
            (to_f64(value)[0], to_f64(gradient))
        };
        let ((a, to_a), (b, to_b)) = (of(&fixed), of(&changed));
        assert!((a - b).abs() < 1e-12, "{loss:?}: {a} {b}");
        assert_close(&format!("{loss:?}"), &to_a, &to_b, 1e-9);
        let whole = plain(&fixed, &moving, &INSIDE, &loss, Outside::Background);
        assert!((a - whole).abs() > 1e-6, "{loss:?}: the mask does nothing");
    }
}

#[test]
fn channels_are_averaged() {
    let device = Device::flex();
    let image =
        |shape, phase| -> Tensor<5> { tensor(&smooth(shape, phase), shape, &device, DType::F64) };
    let pairs = [(0.3, 0.0), (1.1, 0.7)].map(|(f, m)| (image(FIXED, f), image(MOVING, m)));
    for loss in losses() {
        let apart = pairs
            .each_ref()
            .map(|(fixed, moving)| plain(fixed, moving, &INSIDE, &loss, Outside::Background));
        let fixed = Tensor::cat(pairs.iter().map(|pair| pair.0.clone()).collect(), 1);
        let moving = Tensor::cat(pairs.iter().map(|pair| pair.1.clone()).collect(), 1);
        let together = plain(&fixed, &moving, &INSIDE, &loss, Outside::Background);
        let mean = (apart[0] + apart[1]) / 2.0;
        assert!((together - mean).abs() < 1e-12, "{loss:?}: {together} {mean}");
    }
}

#[test]
fn devices_agree_with_the_cpu() {
    for (name, device) in gpu_devices() {
        for loss in losses() {
            let (value, gradient) =
                evaluate(&BEYOND, &loss, Outside::Background, &Device::flex(), DType::F64);
            let (got, slope) = evaluate(&BEYOND, &loss, Outside::Background, &device, DType::F32);
            let label = format!("{name} {loss:?}");
            assert_close(&label, &[got], &[value], GPU_ROUNDING);
            assert_close(&label, &slope, &gradient, GPU_ROUNDING);
        }
    }
}
