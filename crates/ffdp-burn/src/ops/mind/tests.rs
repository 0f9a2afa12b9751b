//! Exact cases, the formula written out, invariance to contrast, finite differences, and GPU against CPU; comparisons
//! against stored descriptors.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64, uniform};

/// Sums of 343 squares in f64, in another order.
const F64_ROUNDING: f64 = 1e-12;
/// Smooth between its kinks: Richardson differences with step 1e-4.
const FINITE_DIFFERENCES: f64 = 1e-7;
/// Means of 27 squares in f32; their excess over the least is a difference, which is divided by a mean of such.
const GPU_VALUE: f64 = 2e-5;
/// As above, divided once more.
const GPU_GRADIENT: f64 = 1e-4;

const SHAPES: [[usize; 5]; 7] = [
    [1, 1, 7, 6, 5],
    [2, 1, 3, 4, 5],
    [1, 1, 1, 1, 1],
    [1, 1, 1, 9, 2],
    [1, 1, 2, 1, 7],
    [1, 1, 19, 10, 33],
    [1, 1, 11, 17, 70],
];

fn options(radius_voxels: usize, dilation_voxels: usize) -> MindOptions {
    MindOptions { radius_voxels, dilation_voxels, ..MindOptions::default() }
}

fn cpu(values: &[f64], shape: [usize; 5]) -> Tensor<5> {
    tensor(values, shape, &Device::flex(), DType::F64)
}

/// Distances by the formula, voxel after voxel.
fn direct(image: &[f64], [d, h, w]: [usize; 3], options: &MindOptions) -> Vec<[f64; CHANNELS]> {
    let inside = |p: i64, len: usize| p.clamp(0, len as i64 - 1);
    let size = [w, h, d];
    let at = |p: [i64; 3]| {
        let p: [i64; 3] = std::array::from_fn(|a| inside(p[a], size[a]));
        image[((p[2] * h as i64 + p[1]) * w as i64 + p[0]) as usize]
    };
    let r = options.radius_voxels as i64;
    let dilation = options.dilation_voxels as i64;
    let distance = |p: [i64; 3], [a, b]: [usize; 2]| {
        let (mut sum, mut count) = (0.0, 0.0);
        for oz in -r..=r {
            for oy in -r..=r {
                for ox in -r..=r {
                    let o = [ox, oy, oz];
                    let q: [i64; 3] =
                        std::array::from_fn(|axis| inside(p[axis] + o[axis], size[axis]));
                    let near = |n: usize| {
                        let mut q = q;
                        q[n / 2] += if n.is_multiple_of(2) { dilation } else { -dilation };
                        at(q)
                    };
                    sum += (near(a) - near(b)).powi(2);
                    count += 1.0;
                }
            }
        }
        sum / count
    };
    let voxels = (0..d * h * w).map(|v| [v % w, v / w % h, v / w / h].map(|i| i as i64));
    voxels.map(|p| PAIRS.map(|pair| distance(p, pair))).collect()
}

/// `V` by the formula.
fn direct_variance(distances: &[f64; CHANNELS]) -> f64 {
    let least = distances.iter().copied().fold(f64::INFINITY, f64::min);
    distances.iter().map(|distance| distance - least).sum::<f64>() / 12.0
}

#[test]
fn pairs_are_the_square_root_of_two_apart() {
    let place = |n: usize| {
        let (axis, sign) = NEIGHBOURS[n];
        std::array::from_fn::<isize, 3, _>(|a| if a == axis { sign } else { 0 })
    };
    for (k, [a, b]) in PAIRS.into_iter().enumerate() {
        let squared: isize = (0..3).map(|i| (place(a)[i] - place(b)[i]).pow(2)).sum();
        assert_eq!(squared, 2, "pair {k}");
        assert!(PAIRS[..k].iter().all(|other| *other != [a, b]), "pair {k} twice");
    }
}

#[test]
fn descriptors_are_those_of_the_formula() {
    for shape in SHAPES {
        for options in [options(1, 2), options(0, 1), options(2, 1), options(3, 3)] {
            let image = normal(shape.iter().product(), 1);
            let len = shape[2] * shape[3] * shape[4];
            let actual = to_f64(mind(cpu(&image, shape), &options));
            let sums = to_f64(mind_variance(cpu(&image, shape), &options));
            for (n, image) in image.chunks(len).enumerate() {
                let distances = direct(image, [shape[2], shape[3], shape[4]], &options);
                let mean = distances.iter().map(direct_variance).sum::<f64>() / len as f64;
                let label = format!("{shape:?} {options:?}");
                assert_close(&label, &[sums[n]], &[mean * len as f64], F64_ROUNDING);
                let mut expected = vec![0.0; CHANNELS * len];
                for (p, distances) in distances.iter().enumerate() {
                    let least = distances.iter().copied().fold(f64::INFINITY, f64::min);
                    let variance = direct_variance(distances).clamp(1e-3 * mean, 1e3 * mean);
                    for (k, distance) in distances.iter().enumerate() {
                        // A mean of zero is of an image without any difference.
                        let excess = distance - least;
                        expected[k * len + p] =
                            if excess == 0.0 { 1.0 } else { (-excess / variance).exp() };
                    }
                }
                let actual = &actual[n * CHANNELS * len..][..CHANNELS * len];
                assert_close(&label, actual, &expected, 1e-10);
            }
        }
    }
}

/// A step along x: the neighbours on one side resemble each other, and those on both sides do not.
#[test]
fn an_edge_is_described_by_its_direction() {
    let shape = [1, 1, 9, 9, 9];
    let image: Vec<f64> = (0..729).map(|p| if p % 9 < 4 { 0.0 } else { 1.0 }).collect();
    let values = to_f64(mind(cpu(&image, shape), &options(0, 1)));
    // Of voxel (4, 4, 4): x- lies on the other side.
    let of = |k: usize| values[k * 729 + 4 * 81 + 4 * 9 + 4];
    for (k, pair) in PAIRS.iter().enumerate() {
        let crosses = pair.contains(&1);
        // E is 1 for the four pairs that cross, so that V is a third.
        let expected = if crosses { (-3.0f64).exp() } else { 1.0 };
        assert!((of(k) - expected).abs() < F64_ROUNDING, "{k}: {}", of(k));
    }
}

#[test]
fn a_constant_image_is_described_by_ones() {
    for (_, device) in devices() {
        let image = tensor::<5>(&[0.7; 60], [1, 1, 3, 4, 5], &device, DType::F32);
        assert_eq!(to_f64(mind(image, &MindOptions::default())), [1.0; 720]);
    }
}

fn devices() -> Vec<(&'static str, Device)> {
    std::iter::once(("cpu", Device::flex())).chain(gpu_devices()).collect()
}

#[test]
fn inverted_and_scaled_contrast_give_the_same_descriptors() {
    let shape = [1, 1, 8, 9, 10];
    let image = normal(720, 2);
    let expected = to_f64(mind(cpu(&image, shape), &MindOptions::default()));
    for (factor, shift) in [(3.7, -20.0), (-1.0, 1.0), (-0.02, 5.0)] {
        let other: Vec<f64> = image.iter().map(|value| factor * value + shift).collect();
        let actual = to_f64(mind(cpu(&other, shape), &MindOptions::default()));
        assert_close(&format!("{factor} {shift}"), &actual, &expected, 1e-10);
    }
}

/// The descriptors of a part, from their reach within its ends on, with the mean of the whole.
#[test]
fn parts_have_the_descriptors_of_the_whole() {
    let options = options(1, 2);
    let reach = options.reach_voxels();
    let image = cpu(&normal(20 * 6 * 7, 3), [1, 1, 20, 6, 7]);
    let mean = mind_variance(image.clone(), &options).mul_scalar(1.0 / (20.0 * 42.0));
    let whole = mind(image.clone(), &options);
    let part = mind_within(image.narrow(2, 10 - reach, 10 + reach), mean, &options);
    let (actual, expected) = (part.narrow(2, reach, 10), whole.narrow(2, 10, 10));
    assert_close("the second half", &to_f64(actual), &to_f64(expected), F64_ROUNDING);
}

/// `sum g S` and its gradient.
fn evaluate(
    image: &[f64],
    shape: [usize; 5],
    options: &MindOptions,
    (device, dtype): (&Device, DType),
) -> (f64, Vec<f64>) {
    let device = device.clone().autodiff();
    let image: Tensor<5> = tensor(image, shape, &device, dtype).require_grad();
    let descriptor = mind(image.clone(), options);
    let upstream = normal(descriptor.shape().num_elements(), 9);
    let upstream = tensor::<5>(&upstream, descriptor.dims(), &device, dtype);
    let loss = (descriptor * upstream).sum();
    let gradients = loss.backward();
    (to_f64(loss.inner())[0], to_f64(image.grad(&gradients).expect("it is tracked")))
}

#[test]
fn gradients_agree_with_finite_differences() {
    // No gradient reaches the bounds, so they are fixed here; one case is clamped from both sides.
    let fixed = |low, high| VarianceBounds::Fixed { low, high };
    for (shape, r, d, bounds) in [
        ([1, 1, 4, 5, 3], 1, 2, fixed(1e-6, 1e6)),
        ([2, 1, 3, 2, 4], 1, 1, fixed(1e-6, 1e6)),
        ([1, 1, 1, 6, 1], 1, 2, fixed(1e-6, 1e6)),
        ([1, 1, 2, 2, 5], 2, 1, fixed(1e-6, 1e6)),
        ([1, 1, 5, 4, 4], 0, 1, fixed(1.0, 2.0)),
        ([1, 1, 6, 5, 4], 3, 3, fixed(1e-6, 1e6)),
    ] {
        let options = MindOptions { bounds, ..options(r, d) };
        let image = normal(shape.iter().product(), 4);
        let checks = gradcheck(&["image"], &[image], 1e-4, |inputs| {
            let at = (&Device::flex(), DType::F64);
            let (loss, gradient) = evaluate(&inputs[0], shape, &options, at);
            (loss, vec![gradient])
        });
        for check in checks {
            assert!(check.error < FINITE_DIFFERENCES, "{shape:?} {options:?}: {check:?}");
        }
    }
}

/// The descriptors do not see a constant, so their gradients add up to zero.
#[test]
fn gradients_add_up_to_zero() {
    for shape in SHAPES {
        let image = normal(shape.iter().product(), 5);
        let at = (&Device::flex(), DType::F64);
        let (_, gradient) = evaluate(&image, shape, &MindOptions::default(), at);
        let sum: f64 = gradient.iter().sum();
        let scale: f64 = gradient.iter().map(|g| g.abs()).sum();
        assert!(sum.abs() <= 1e-12 * scale.max(1.0), "{shape:?}: {sum} of {scale}");
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for shape in SHAPES {
            for (r, d) in [(1, 2), (0, 1), (2, 1), (3, 4)] {
                // Both sides get what f32 can hold.
                let image: Vec<f64> = normal(shape.iter().product(), 6)
                    .into_iter()
                    .map(|value| f64::from(value as f32))
                    .collect();
                let options = options(r, d);
                let label = format!("{name} {shape:?} {r} {d}");
                let expected = to_f64(mind(cpu(&image, shape), &options));
                let on_gpu = tensor::<5>(&image, shape, &device, DType::F32);
                let value =
                    assert_close(&label, &to_f64(mind(on_gpu, &options)), &expected, GPU_VALUE);
                let at = (&Device::flex(), DType::F64);
                let (_, expected) = evaluate(&image, shape, &options, at);
                let (_, actual) = evaluate(&image, shape, &options, (&device, DType::F32));
                let gradient = assert_close(&label, &actual, &expected, GPU_GRADIENT);
                println!("mind {label}: value {value:.1e} gradient {gradient:.1e}");
            }
        }
    }
}

#[test]
fn half_precision_is_that_of_the_widened_image() {
    for (name, device) in devices() {
        if !device.supports_dtype(DType::F16) {
            continue;
        }
        let image = tensor::<5>(&normal(300, 7), [1, 1, 5, 6, 10], &device, DType::F16);
        let actual = mind(image.clone(), &MindOptions::default());
        assert_eq!(actual.dtype(), DType::F32);
        let expected = mind(image.cast(DType::F32), &MindOptions::default());
        assert_close(name, &to_f64(actual), &to_f64(expected), 2e-6);
    }
}

#[test]
fn descriptors_are_stored_in_half_precision() {
    let shape = [1, 1, 5, 6, 10];
    for (name, device) in devices() {
        let image = tensor::<5>(&normal(300, 7), shape, &device, DType::F32);
        let expected = to_f64(mind(image, &MindOptions::default()));
        for (storage, dtype, rounding) in
            [(MindStorage::F16, DType::F16, 3e-4), (MindStorage::Bf16, DType::BF16, 2.5e-3)]
        {
            if !device.supports_dtype(dtype) {
                continue;
            }
            let image = tensor::<5>(&normal(300, 7), shape, &device, DType::F32);
            let image = image.autodiff().require_grad();
            let options = MindOptions { storage, ..MindOptions::default() };
            let stored = mind(image.clone(), &options);
            assert_eq!(stored.dtype(), dtype, "{name}");
            assert_close(name, &to_f64(stored.clone().inner()), &expected, rounding);
            let gradient = image.grad(&stored.sum().backward()).expect("it is tracked");
            assert_eq!(gradient.dtype(), DType::F32, "{name}");
        }
    }
}

#[test]
fn strided_inputs_give_the_same_result() {
    for (name, device) in devices() {
        let image = tensor::<5>(&normal(120, 8), [1, 1, 4, 5, 6], &device, DType::F32);
        let stored = image.clone().permute([0, 1, 4, 3, 2]);
        let data = stored.into_data();
        let strided = Tensor::<5>::from_data(data, &device).permute([0, 1, 4, 3, 2]);
        let of = |image| to_f64(mind(image, &MindOptions::default()));
        assert_eq!(of(strided), of(image), "{name}");
    }
}

#[test]
#[should_panic(expected = "mind: the image must be [N, 1, D, H, W]")]
fn several_channels_are_refused() {
    mind(cpu(&[0.0; 24], [1, 3, 2, 2, 2]), &MindOptions::default());
}

/// What of two images and weights is compared.
type Difference = fn(Tensor<5>, Tensor<5>, Option<Tensor<5>>, &MindOptions) -> Tensor<1>;

/// The formula, of descriptors that are stored.
fn of_stored(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    weights: Option<Tensor<5>>,
    options: &MindOptions,
) -> Tensor<1> {
    let difference = mind(moved, options) - mind(fixed, options);
    let squares = difference.clone() * difference;
    let weighted = match weights {
        Some(weights) => squares * weights,
        None => squares,
    };
    weighted.sum().mul_scalar(1.0 / CHANNELS as f64)
}

/// Three times a difference and its gradients to both images, divided by three: the tape scales them.
fn by_tape(
    difference: Difference,
    images: &[Tensor<5>; 2],
    weights: Option<&Tensor<5>>,
    options: &MindOptions,
) -> [Vec<f64>; 3] {
    let [moved, fixed] = images.clone().map(|image| image.autodiff().require_grad());
    let weights = weights.cloned().map(Tensor::autodiff);
    let sum = difference(moved.clone(), fixed.clone(), weights, options);
    let gradients = sum.clone().mul_scalar(3.0).backward();
    let to = |image: Tensor<5>| image.grad(&gradients).expect("it is tracked").div_scalar(3.0);
    [to_f64(sum.inner()), to_f64(to(moved)), to_f64(to(fixed))]
}

/// Value and gradients by [`mind_difference_with_gradient`], as [`by_tape`] gives them; none that is not needed.
fn at_once(
    images: &[Tensor<5>; 2],
    weights: Option<&Tensor<5>>,
    options: &MindOptions,
    needs: [bool; 2],
) -> [Option<Vec<f64>>; 3] {
    let [moved, fixed] = images.clone();
    let (sum, gradients) =
        mind_difference_with_gradient(moved, fixed, weights.cloned(), options, needs);
    let [to_moved, to_fixed] = gradients.map(|gradient| gradient.map(to_f64));
    [Some(to_f64(sum)), to_moved, to_fixed]
}

/// Two images, with weights and without, as f32 can hold them.
fn compared_images(shape: [usize; 5]) -> ([Tensor<5>; 2], [Option<Tensor<5>>; 2]) {
    let len = shape.iter().product();
    let single = |values: Vec<f64>| -> Vec<f64> {
        values.into_iter().map(|value| f64::from(value as f32)).collect()
    };
    let images = [10, 11].map(|seed| cpu(&single(normal(len, seed)), shape));
    (images, [None, Some(cpu(&single(uniform(len, 0.0, 1.0, 12)), shape))])
}

/// Bounds of both kinds, patches and dilations in use.
fn compared_options() -> Vec<MindOptions> {
    let fixed = VarianceBounds::Fixed { low: 1e-2, high: 1e30 };
    let patches = [(0, 1), (1, 2), (2, 3)];
    let of = |bounds| patches.map(|(r, d)| MindOptions { bounds, ..options(r, d) });
    [of(VarianceBounds::OfMean), of(fixed)].concat()
}

#[test]
fn a_difference_is_that_of_stored_descriptors() {
    for shape in SHAPES {
        let (images, both) = compared_images(shape);
        for (options, weights) in
            compared_options().iter().flat_map(|o| both.iter().map(move |w| (o, w)))
        {
            let weights = weights.as_ref();
            let label = format!("{shape:?} {options:?}, weights {}", weights.is_some());
            let expected = by_tape(of_stored, &images, weights, options);
            let actual = by_tape(mind_difference, &images, weights, options);
            for (actual, expected) in actual.iter().zip(&expected) {
                assert_close(&label, actual, expected, F64_ROUNDING);
            }
            for needs in [[false, false], [true, false], [false, true], [true, true]] {
                let label = format!("{label}, needs {needs:?}");
                let actual = at_once(&images, weights, options, needs);
                assert_eq!([actual[1].is_some(), actual[2].is_some()], needs, "{label}");
                for (actual, expected) in actual.iter().zip(&expected) {
                    if let Some(actual) = actual {
                        assert_close(&label, actual, expected, F64_ROUNDING);
                    }
                }
            }
        }
    }
}

#[test]
fn a_difference_on_the_gpu_is_that_of_stored_descriptors() {
    for ((name, device), shape) in gpu_devices().iter().flat_map(|d| SHAPES.map(|s| (d, s))) {
        let (images, both) = compared_images(shape);
        let there =
            |image: &Tensor<5>| tensor::<5>(&to_f64(image.clone()), shape, device, DType::F32);
        let on_gpu = images.each_ref().map(there);
        // In turn: each kind of bounds and each patch has weights and none. A kernel is compiled for each that differs.
        for (i, options) in compared_options().iter().enumerate() {
            let weights = &both[i % 2];
            let label = format!("{name} {shape:?} {options:?}, weights {}", weights.is_some());
            let expected = by_tape(of_stored, &images, weights.as_ref(), options);
            let weights = weights.as_ref().map(there);
            let weights = weights.as_ref();
            let check = |label: &str, actual: [Option<Vec<f64>>; 3]| {
                for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                    let tolerance = if i == 0 { GPU_VALUE } else { GPU_GRADIENT };
                    if let Some(actual) = actual {
                        assert_close(label, actual, expected, tolerance);
                    }
                }
            };
            for needs in [[false, false], [true, false], [false, true], [true, true]] {
                let label = format!("{label}, needs {needs:?}");
                check(&label, at_once(&on_gpu, weights, options, needs));
            }
            check(&label, by_tape(mind_difference, &on_gpu, weights, options).map(Some));
        }
    }
}

#[test]
fn a_difference_of_half_precision_is_that_of_the_widened_images() {
    let shape = [2, 1, 5, 6, 10];
    let (images, both) = compared_images(shape);
    for ((name, device), dtype) in
        devices().iter().flat_map(|device| [DType::F16, DType::BF16].map(|dtype| (device, dtype)))
    {
        if !device.supports_dtype(dtype) {
            continue;
        }
        let half =
            images.each_ref().map(|image| tensor(&to_f64(image.clone()), shape, device, dtype));
        let wide = half.clone().map(|image: Tensor<5>| image.cast(DType::F32));
        for weights in &both {
            let weights = weights
                .as_ref()
                .map(|weights| tensor::<5>(&to_f64(weights.clone()), shape, device, DType::F32));
            let of = |images| at_once(images, weights.as_ref(), &MindOptions::default(), [true; 2]);
            for (actual, expected) in of(&half).iter().zip(&of(&wide)) {
                let [actual, expected] = [actual, expected].map(|o| o.as_ref().expect("needed"));
                assert_close(&format!("{name} {dtype:?}"), actual, expected, 2e-6);
            }
        }
    }
}

/// Of one of two images at most: those of the other are never stored.
#[test]
fn a_difference_of_descriptors_in_half_precision_is_about_the_same() {
    let shape = [1, 1, 5, 6, 10];
    let (images, _) = compared_images(shape);
    for (name, device) in devices() {
        let images =
            images.each_ref().map(|i| tensor(&to_f64(i.clone()), shape, &device, DType::F32));
        for (storage, dtype, rounding) in
            [(MindStorage::F16, DType::F16, 1e-3), (MindStorage::Bf16, DType::BF16, 1e-2)]
        {
            if !device.supports_dtype(dtype) {
                continue;
            }
            let full = MindOptions::default();
            let stored = MindOptions { storage, ..full };
            let of = |options| at_once(&images, None, options, [true; 2]);
            for (actual, expected) in of(&stored).iter().zip(&of(&full)) {
                let [actual, expected] = [actual, expected].map(|o| o.as_ref().expect("needed"));
                assert_close(&format!("{name} {storage:?}"), actual, expected, rounding);
            }
        }
    }
}

#[test]
#[should_panic(
    expected = "mind: moved [1, 1, 2, 3, 4] and fixed [1, 1, 2, 4, 3] must have the same shape"
)]
fn images_of_two_shapes_are_not_compared() {
    let [moved, fixed] = [[1, 1, 2, 3, 4], [1, 1, 2, 4, 3]].map(|shape| cpu(&[0.0; 24], shape));
    mind_difference(moved, fixed, None, &MindOptions::default());
}
