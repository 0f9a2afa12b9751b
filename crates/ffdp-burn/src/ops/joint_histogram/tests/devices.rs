//! GPU against CPU, reproducibility, carries, strided inputs.

use burn::tensor::{DType, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices};

/// A cell gets what rounding to 2^-23 of a vote takes from 15 others, half a unit each at most: 9e-7; a weight as small
/// as one of these images of one voxel counts in the same units.
const GPU_VOTES: f64 = 2e-6;
/// A cell of a wide Gaussian gets 0.05 of a vote at most, of which the 1e-7 that rounding down moves
/// to the nearest cell is more.
const GPU_WIDE: f64 = 5e-6;
/// A handful of f32 products and sums, for the Gaussian of exponentials; in an image of one voxel
/// the terms cancel, else the errors are below 1e-6.
const GPU_GRADIENT: f64 = 3e-5;

#[test]
fn gpu_agrees_with_cpu() {
    let b_spline = ParzenKernel::BSpline3;
    // From one voxel to several cubes; tables in 32 copies, in few, and in none.
    let mut cases = vec![
        ([1, 1, 1, 1, 1], 16, b_spline),
        ([1, 1, 1, 7, 1], 9, b_spline),
        ([3, 1, 9, 10, 11], 64, b_spline),
        ([1, 1, 17, 13, 37], 128, b_spline),
        ([2, 1, 12, 13, 20], 256, b_spline),
        ([1, 1, 17, 13, 37], 256, ParzenKernel::Gaussian { sigma_bins: 0.5 }),
        ([2, 1, 17, 13, 37], 255, ParzenKernel::Delta),
        ([1, 1, 47, 48, 49], 32, b_spline),
    ];
    // Volumes that do not divide into vectors, and some that do.
    cases.extend(KERNELS.map(|kernel| ([2, 1, 13, 17, 19], 32, kernel)));
    cases.extend(KERNELS.map(|kernel| ([2, 1, 12, 17, 20], 20, kernel)));
    for (name, device) in gpu_devices() {
        for (shape, bins, kernel) in cases.iter().copied() {
            for mode in [HistogramMode::Exact, HistogramMode::Approximate] {
                for weighted in [false, true] {
                    let [a, b, weights] = images(shape.iter().product(), bins, 11);
                    let (images, weights) = ([&a[..], &b], weighted.then_some(&weights[..]));
                    let options = options(bins, kernel, mode);
                    let run = |device: &Device, dtype| {
                        evaluate(images, weights, shape, &options, device, dtype)
                    };
                    let expected = run(&cpu(), DType::F64);
                    let actual = run(&device, DType::F32);
                    let label = format!("{name} {shape:?} {options:?} weighted {weighted}");
                    if kernel == ParzenKernel::Delta && !weighted {
                        assert_eq!(actual.votes, expected.votes, "{label}: counts");
                    }
                    let limit = match kernel {
                        ParzenKernel::Gaussian { .. } => GPU_WIDE,
                        _ => GPU_VOTES,
                    };
                    let votes = assert_close(&label, &actual.votes, &expected.votes, limit);
                    print!("joint_histogram {label}: votes {votes:.1e}");
                    for (actual, expected) in actual.gradients.iter().zip(&expected.gradients) {
                        print!(
                            " gradient {:.1e}",
                            assert_close(&label, actual, expected, GPU_GRADIENT)
                        );
                    }
                    println!();
                }
            }
        }
    }
}

#[test]
fn a_gpu_repeats_itself_bit_by_bit() {
    for (name, device) in gpu_devices() {
        let shape = [1, 1, 40, 41, 42];
        let [a, b, weights] = images(shape.iter().product(), 32, 12);
        for bins in [32, 200] {
            let options = HistogramOptions { bins, ..Default::default() };
            let run = || evaluate([&a, &b], Some(&weights), shape, &options, &device, DType::F32);
            let (first, second) = (run(), run());
            assert_eq!(first.votes, second.votes, "{name} {bins}");
            assert_eq!(first.gradients, second.gradients, "{name} {bins}");
        }
    }
}

#[test]
fn the_order_of_the_voxels_does_not_matter() {
    for (name, device) in gpu_devices() {
        let shape = [1, 1, 60, 61, 64];
        let len = shape.iter().product();
        let inputs = images(len, 32, 13);
        // A step that shares no factor with the number of voxels visits each once.
        let permuted = inputs
            .each_ref()
            .map(|image| (0..len).map(|voxel| image[voxel * 100_003 % len]).collect::<Vec<_>>());
        for (bins, kernel) in [
            (32, ParzenKernel::BSpline3),
            (32, ParzenKernel::Delta),
            (64, ParzenKernel::Linear),
            (200, ParzenKernel::BSpline3),
        ] {
            for weighted in [false, true] {
                let options = options(bins, kernel, HistogramMode::Exact);
                let of = |[a, b, weights]: &[Vec<f64>; 3]| {
                    let weights = weighted.then_some(&weights[..]);
                    votes_of([a, b], weights, shape, &options, &device)
                };
                assert_eq!(of(&inputs), of(&permuted), "{name} {options:?} weighted {weighted}");
            }
        }
    }
}

fn votes_of(
    images: [&[f64]; 2],
    weights: Option<&[f64]>,
    shape: [usize; 5],
    options: &HistogramOptions,
    device: &Device,
) -> Vec<f64> {
    let image = |v: &[f64]| -> Tensor<5> { tensor(v, shape, device, DType::F32) };
    to_f64(joint_votes(image(images[0]), image(images[1]), weights.map(image), options))
}

#[test]
fn the_votes_of_a_constant_image_are_those_of_a_voxel() {
    // 576 votes of one cell fill a word: tables are emptied or carry, and totals carry.
    let spline = ParzenKernel::BSpline3;
    for (name, device) in gpu_devices() {
        for (kernel, bins, len) in [
            (spline, 32, 3),
            (spline, 32, 99_999),
            (spline, 32, 6_000_000),
            (spline, 64, 6_000_000),
            (spline, 128, 100_000),
            (spline, 200, 100_000),
            (ParzenKernel::Linear, 32, 1_000_000),
        ] {
            for weight in [None, Some(1.0), Some(0.3f32)] {
                let options = options(bins, kernel, HistogramMode::Exact);
                // Near the centre of a bin, where one cell takes most.
                let value = ((bins / 2) as f64 + 0.502) / options.inner_bins() as f64;
                let value = f64::from(value as f32);
                let filled = |value: f64| -> Tensor<5> {
                    Tensor::full([1, 1, 1, 1, len], value, (&device, DType::F32))
                };
                let weights = weight.map(|weight| filled(f64::from(weight)));
                let votes = joint_votes(filled(value), filled(value), weights, &options);
                let votes = to_f64(votes);
                let weight_of_voxel = f64::from(weight.unwrap_or(1.0));
                let count = len as f64 * weight_of_voxel;
                let label = format!("{name} {kernel:?} {bins} bins, {len} voxels of {weight:?}");
                let expected = table(&[value], &[value], &options);
                let expected: Vec<f64> = expected.into_iter().map(|vote| vote * count).collect();
                let error = assert_close(&label, &votes, &expected, GPU_VOTES);
                // The integers add up to the votes: the weight is rounded to a multiple of 2^-23, and each cell to an f32.
                let rounded = 0.5f64.powi(24) * (1.0 / weight_of_voxel + 1.0);
                let total = votes.iter().sum::<f64>() / count;
                assert!((total - 1.0).abs() < rounded, "{label}: {total}");
                println!("constant {label}: {error:.1e}");
            }
        }
    }
}

fn table(a: &[f64], b: &[f64], options: &HistogramOptions) -> Vec<f64> {
    on_cpu([a, b], [1, 1, 1, 1, a.len()], options).votes
}

#[test]
fn single_votes_are_counted_past_the_integers_of_f32() {
    let len = (1 << 24) + 3;
    for (name, device) in gpu_devices() {
        let mut image = Tensor::<5>::full([1, 1, 1, 1, len], 0.5, (&device, DType::F32));
        let options = options(32, ParzenKernel::Delta, HistogramMode::Exact);
        let votes = to_f64(joint_votes(image.clone(), image.clone(), None, &options));
        assert_eq!(votes[16 * 32 + 16], f64::from(len as f32), "{name}");
        assert_eq!(votes.iter().filter(|votes| **votes > 0.0).count(), 1, "{name}");
        // Two voxels elsewhere.
        image = image.slice_fill([0..1, 0..1, 0..1, 0..1, 0..2], 0.0);
        let votes = to_f64(joint_votes(image.clone(), image, None, &options));
        assert_eq!((votes[0], votes[16 * 32 + 16]), (2.0, f64::from((len - 2) as f32)), "{name}");
    }
}

#[test]
fn each_gradient_alone_equals_both_together() {
    let mut devices = gpu_devices();
    devices.push(("cpu", cpu()));
    for (name, device) in devices {
        let device = device.autodiff();
        let [a, b, _] = images(60, 32, 14)
            .map(|v| -> Tensor<5> { tensor(&v, [1, 1, 3, 4, 5], &device, DType::F32) });
        let run = |track: [bool; 2]| {
            let [a, b] = [(&a, track[0]), (&b, track[1])]
                .map(|(t, track)| if track { t.clone().require_grad() } else { t.clone() });
            let joint = joint_histogram(a.clone(), b.clone(), &HistogramOptions::default());
            let gradients = (joint.clone() * joint).backward();
            [a, b].map(|t| t.grad(&gradients).map(to_f64))
        };
        let both = run([true, true]);
        for (i, track) in [(0, [true, false]), (1, [false, true])] {
            let alone = run(track);
            assert!(alone[1 - i].is_none(), "{name}: the other wants none");
            let [alone, both] = [&alone[i], &both[i]].map(|g| g.as_ref().expect("wanted"));
            // The same sums; a GPU's compiler may fuse multiplications differently.
            assert_close(name, alone, both, 1e-6);
        }
    }
}

#[test]
fn one_image_against_itself() {
    // The same buffer twice, which a GPU must allow.
    for (name, device) in gpu_devices() {
        let [a, ..] = images(500, 32, 15);
        let of = |device: &Device| {
            let a: Tensor<5> = tensor(&a, [1, 1, 5, 10, 10], device, DType::F32);
            to_f64(joint_histogram(a.clone(), a, &HistogramOptions::default()))
        };
        assert_close(name, &of(&device), &of(&cpu()), GPU_VOTES);
    }
}

#[test]
fn intensities_beyond_the_range_are_clamped() {
    let mut devices = gpu_devices();
    devices.push(("cpu", cpu()));
    let wild = [-1.0, -1e30, f64::NEG_INFINITY, f64::NAN, 2.0, 1e30, f64::INFINITY];
    let tame = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    let other = [0.2, 0.4, 0.6, 0.8, 0.1, 0.3, 0.5];
    for (name, device) in devices {
        for kernel in KERNELS {
            for mode in [HistogramMode::Exact, HistogramMode::Approximate] {
                let options = options(20, kernel, mode);
                let of = |a: &[f64]| {
                    evaluate([a, &other], None, [1, 1, 1, 1, 7], &options, &device, DType::F32)
                };
                let (wild, tame) = (of(&wild), of(&tame));
                assert_eq!(wild.votes, tame.votes, "{name} {options:?}");
                assert!(wild.gradients[0].iter().all(|g| *g == 0.0), "{name} {options:?}");
                assert_eq!(wild.gradients[1], tame.gradients[1], "{name} {options:?}");
            }
        }
    }
}

#[test]
fn strided_inputs_give_the_same_result() {
    let mut devices = gpu_devices();
    devices.push(("cpu", cpu()));
    for (name, device) in devices {
        let [a, b, weights] = images(120, 32, 16)
            .map(|v| -> Tensor<5> { tensor(&v, [2, 1, 3, 4, 5], &device, DType::F32) });
        let joint = |a, b, weights| {
            to_f64(weighted_joint_histogram(a, b, weights, &HistogramOptions::default()))
        };
        let expected = joint(a.clone(), b.clone(), weights.clone());
        // Stored in another order, seen in the usual one.
        let stored = |t: Tensor<5>| {
            let data = t.permute([4, 3, 2, 1, 0]).into_data();
            Tensor::<5>::from_data(data, &device).permute([4, 3, 2, 1, 0])
        };
        assert_eq!(joint(stored(a), stored(b), stored(weights)), expected, "{name}");
    }
}
