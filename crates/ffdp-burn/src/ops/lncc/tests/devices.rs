//! GPU against CPU, wanted gradients, strided inputs.

use burn::tensor::{DType, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices};

/// Windows are differences of sums of f32 products: a few 1e-7 of the second moments, several
/// times that of a variance, averaged over many voxels in the value.
const GPU_VALUE: f64 = 1e-5;
/// As above, divided by the variances once more and not averaged.
const GPU_GRADIENT: f64 = 1e-4;
/// Intensities around 1e4: f32 images are relative to their mean inside, but the zeros outside are
/// not, and windows at the border difference second moments of 1e8.
const GPU_OFFSET: f64 = 2e-3;

#[test]
fn gpu_agrees_with_cpu() {
    // The larger ones span several tiles (at most 56 x 30 columns) and several chunks along z; rows
    // whose length is a multiple of 4 are read four values at a time.
    let cases = [
        ([1, 1, 1, 1, 1], 3, 0.0),
        ([1, 1, 1, 9, 1], 5, 0.0),
        ([2, 3, 9, 10, 11], 7, 0.0),
        ([1, 1, 3, 4, 5], 9, 0.0),
        ([1, 1, 5, 6, 7], 21, 0.0),
        ([1, 1, 41, 33, 70], 7, 0.0),
        ([1, 2, 30, 35, 132], 7, 0.0),
        ([1, 1, 17, 33, 60], 11, 0.0),
        ([1, 1, 33, 30, 44], 15, 0.0),
        ([1, 1, 26, 31, 64], 5, 0.0),
        ([1, 2, 50, 17, 33], 9, 0.0),
        ([1, 1, 130, 9, 34], 3, 0.0),
        // Without a margin outside the image, whose zeros are far from the mean.
        ([1, 1, 20, 30, 120], 7, 3.0),
        ([1, 1, 12, 30, 119], 9, 3.0),
        ([1, 1, 20, 19, 37], 7, 1e4),
    ];
    for (name, device) in gpu_devices() {
        for (shape, w, offset) in cases {
            let images = pair(shape.iter().product(), 16).map(|image| -> Vec<f64> {
                // Both sides get what f32 can hold.
                image.into_iter().map(|v| f64::from((v + offset) as f32)).collect()
            });
            let images = [&images[0][..], &images[1][..]];
            for gradient in [GradientMode::Exact, GradientMode::AntsApproximate] {
                // Every window is a shader of its own, which takes seconds to compile on a CPU.
                if gradient == GradientMode::AntsApproximate && ![3, 7].contains(&w) {
                    continue;
                }
                let options = LnccOptions { gradient, ..window(w) };
                let (expected, gradients) = on_cpu(images, shape, &options);
                let (actual, others) = evaluate(images, shape, &options, &device, DType::F32);
                let label = format!("{name} {shape:?} window {w} offset {offset} {gradient:?}");
                let (value, slope) = match offset == 0.0 {
                    true => (GPU_VALUE, GPU_GRADIENT),
                    false => (GPU_OFFSET, GPU_OFFSET),
                };
                let error = (actual - expected).abs();
                assert!(error <= value, "{label}: {actual} against {expected}");
                print!("lncc {label}: value {error:.1e}");
                for (actual, expected) in others.iter().zip(&gradients) {
                    print!(" gradient {:.1e}", assert_close(&label, actual, expected, slope));
                }
                println!();
            }
        }
    }
}

/// The finished gradients are multiplied by the upstream gradient in their own memory, if that is not 1.
#[test]
fn a_multiple_of_the_loss_has_that_multiple_of_the_gradients() {
    let shape = [1, 2, 6, 7, 9];
    let [moved, fixed] = pair(shape.iter().product(), 23);
    let devices = gpu_devices().into_iter().map(|(_, device)| (device, DType::F32));
    for (device, dtype) in devices.chain([(cpu(), DType::F64)]) {
        let (_, once) = evaluate([&moved, &fixed], shape, &window(5), &device, dtype);
        let device = device.autodiff();
        let images = [&moved, &fixed].map(|image| tensor(image, shape, &device, dtype));
        let [moved, fixed] = images.map(|image: Tensor<5>| image.require_grad());
        let loss = lncc(moved.clone(), fixed.clone(), &window(5));
        // Exact, so that every device agrees with itself to the last bit.
        let gradients = loss.mul_scalar(-4.0).backward();
        for (image, once) in [moved, fixed].iter().zip(once) {
            let multiple = to_f64(image.grad(&gradients).expect("both want a gradient"));
            let expected: Vec<f64> = once.iter().map(|value| -4.0 * value).collect();
            assert_eq!(multiple, expected);
        }
    }
}

#[test]
fn gaussian_windows_on_a_gpu_agree_with_the_cpu() {
    for (name, device) in gpu_devices() {
        for (shape, w, sigma) in [([1, 1, 12, 19, 61], 7, 1.5), ([1, 2, 11, 34, 20], 9, 2.0)] {
            let images = pair(shape.iter().product(), 22).map(|image| -> Vec<f64> {
                image.into_iter().map(|v| f64::from(v as f32)).collect()
            });
            let images = [&images[0][..], &images[1][..]];
            let options = gaussian_window(w, sigma);
            let (expected, gradients) = on_cpu(images, shape, &options);
            let (actual, others) = evaluate(images, shape, &options, &device, DType::F32);
            let label = format!("{name} {shape:?} window {w} sigma {sigma}");
            assert!((actual - expected).abs() <= GPU_VALUE, "{label}: {actual} against {expected}");
            for (actual, expected) in others.iter().zip(&gradients) {
                assert_close(&label, actual, expected, GPU_GRADIENT);
            }
        }
    }
}

#[test]
fn each_gradient_alone_equals_both_together() {
    let mut devices = gpu_devices();
    devices.push(("cpu", cpu()));
    for (name, device) in devices {
        let device = device.autodiff();
        let images = pair(3 * 60, 17);
        let [moved, fixed] = images
            .map(|image| -> Tensor<5> { tensor(&image, [1, 3, 3, 4, 5], &device, DType::F32) });
        for gradient in [GradientMode::Exact, GradientMode::AntsApproximate] {
            let options = LnccOptions { gradient, ..window(3) };
            let run = |track: [bool; 2]| {
                let [moved, fixed] = [(&moved, track[0]), (&fixed, track[1])]
                    .map(|(t, track)| if track { t.clone().require_grad() } else { t.clone() });
                let gradients = lncc(moved.clone(), fixed.clone(), &options).backward();
                [moved, fixed].map(|t| t.grad(&gradients).map(to_f64))
            };
            let both = run([true, true]);
            for (i, track) in [(0, [true, false]), (1, [false, true])] {
                let alone = run(track);
                let label = format!("{name} {gradient:?} input {i}");
                assert!(alone[1 - i].is_none(), "{label}: the other wants none");
                let [alone, both] = [&alone[i], &both[i]].map(|g| g.as_ref().expect("wanted"));
                // The same sums; a GPU's compiler may fuse multiplications differently.
                assert_close(&label, alone, both, 1e-6);
            }
        }
    }
}

#[test]
fn strided_inputs_give_the_same_result() {
    let mut devices = gpu_devices();
    devices.push(("cpu", cpu()));
    for (name, device) in devices {
        let [moved, fixed] = pair(120, 18)
            .map(|image| -> Tensor<5> { tensor(&image, [1, 2, 3, 4, 5], &device, DType::F32) });
        let expected = to_f64(lncc(moved.clone(), fixed.clone(), &window(3)));
        // Stored in another order, seen in the usual one.
        let stored = |t: Tensor<5>| {
            let data = t.permute([4, 3, 2, 1, 0]).into_data();
            Tensor::<5>::from_data(data, &device).permute([4, 3, 2, 1, 0])
        };
        assert_eq!(to_f64(lncc(stored(moved), stored(fixed), &window(3))), expected, "{name}");
    }
}
