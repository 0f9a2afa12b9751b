//! Exact values and invariants of the table.

use burn::tensor::{DType, Tensor};

use super::*;
use ffdp_kit::testing::assert_close;

/// Truncated powers of up to 4^3, whose sum is of order 1: hundreds of times the rounding of f64.
const TRUNCATED_POWERS: f64 = 1e-12;

fn table(a: &[f64], b: &[f64], options: &HistogramOptions) -> Vec<f64> {
    let shape = [1, 1, 1, 1, a.len()];
    on_cpu([a, b], shape, options).votes
}

#[test]
fn single_votes_are_counted() {
    let delta = options(8, ParzenKernel::Delta, HistogramMode::Exact);
    // Bins of an eighth: 0, 0, 1, 3, 7, 7, and beyond either end 0 and 7.
    let a = [0.0, 0.1249, 0.125, 0.49, 0.999, 1.0, -3.0, f64::INFINITY];
    let b = [0.0, 0.0, 0.0, 0.0, 0.5, 0.5, f64::NAN, 0.5];
    let votes = table(&a, &b, &delta);
    let mut expected = vec![0.0; 64];
    // (0, 0) twice and the clamped pair, (1, 0), (3, 0), (7, 4) twice and the clamped one.
    for (row, column, count) in [(0, 0, 3.0), (1, 0, 1.0), (3, 0, 1.0), (7, 4, 3.0)] {
        expected[row * 8 + column] = count;
    }
    assert_eq!(votes, expected);
}

#[test]
fn a_vote_at_a_bin_centre_is_the_kernel_at_whole_bins() {
    // Four inner bins of 8 with the B-spline; 0.125 is the centre of the first, bin 2.
    let spline = options(8, ParzenKernel::BSpline3, HistogramMode::Exact);
    let votes = table(&[0.125], &[0.875], &spline);
    let weights = [1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0];
    let mut expected = vec![0.0; 64];
    for (i, along) in weights.iter().enumerate() {
        for (j, across) in weights.iter().enumerate() {
            expected[(1 + i) * 8 + 4 + j] = along * across;
        }
    }
    assert_close("centre", &votes, &expected, 1e-15);
}

#[test]
fn the_table_is_that_of_its_definition() {
    for kernel in KERNELS {
        for bins in [16, 32, 51] {
            let [a, b, weights] = images(2 * 150, bins, 1);
            let options = options(bins, kernel, HistogramMode::Exact);
            let shape = [2, 1, 5, 6, 5];
            let outcome = evaluate([&a, &b], Some(&weights), shape, &options, &cpu(), DType::F64);
            let expected: Vec<f64> = [0..150, 150..300]
                .into_iter()
                .flat_map(|n| direct(&a[n.clone()], &b[n.clone()], &weights[n], bins, kernel))
                .collect();
            let label = format!("{kernel:?} {bins}");
            assert_close(&label, &outcome.votes, &expected, TRUNCATED_POWERS);
        }
    }
}

#[test]
fn approximate_is_exact_at_the_centres_of_the_bins() {
    for kernel in KERNELS {
        let [a, b, _] = images(300, 32, 2);
        let approximate = options(32, kernel, HistogramMode::Approximate);
        let inner = approximate.inner_bins() as f64;
        let centres = |image: &[f64]| -> Vec<f64> {
            image.iter().map(|v| ((v * inner).floor().min(inner - 1.0) + 0.5) / inner).collect()
        };
        let exact = options(32, kernel, HistogramMode::Exact);
        let expected = table(&centres(&a), &centres(&b), &exact);
        assert_close(&format!("{kernel:?}"), &table(&a, &b, &approximate), &expected, ROUNDING);
    }
}

#[test]
fn probabilities_sum_to_one() {
    for kernel in KERNELS {
        for mode in [HistogramMode::Exact, HistogramMode::Approximate] {
            for constant in [None, Some(0.0), Some(1.0), Some(0.37)] {
                let mut inputs = images(2 * 60, 16, 3);
                if let Some(constant) = constant {
                    inputs[0].fill(constant);
                    inputs[1].fill(constant);
                }
                let [a, b, weights] = inputs
                    .map(|v| -> Tensor<5> { tensor(&v, [2, 1, 3, 4, 5], &cpu(), DType::F64) });
                let options = options(16, kernel, mode);
                let label = format!("{kernel:?} {mode:?} {constant:?}");
                for joint in [
                    joint_histogram(a.clone(), b.clone(), &options),
                    weighted_joint_histogram(a, b, weights, &options),
                ] {
                    assert!(to_f64(joint.clone()).iter().all(|p| *p >= 0.0), "{label}");
                    let sums = to_f64(joint.sum_dim(2).sum_dim(1));
                    assert_close(&label, &sums, &[1.0, 1.0], ROUNDING);
                }
            }
        }
    }
}

#[test]
fn exchanging_the_images_transposes_the_table() {
    for kernel in KERNELS {
        for mode in [HistogramMode::Exact, HistogramMode::Approximate] {
            let [a, b, _] = images(200, 24, 4);
            let options = options(24, kernel, mode);
            let (votes, exchanged) = (table(&a, &b, &options), table(&b, &a, &options));
            let transposed: Vec<f64> =
                (0..24 * 24).map(|cell| exchanged[cell % 24 * 24 + cell / 24]).collect();
            assert_close(&format!("{kernel:?} {mode:?}"), &votes, &transposed, ROUNDING);
        }
    }
}

#[test]
fn marginals_belong_to_one_image() {
    let mut devices = ffdp_kit::testing::gpu_devices();
    devices.push(("cpu", cpu()));
    for (name, device) in devices {
        for kernel in KERNELS {
            let [a, b, c] = images(600, 24, 17);
            let options = options(24, kernel, HistogramMode::Exact);
            let rows = |other: &[f64]| -> Vec<f64> {
                let shape = [1, 1, 6, 10, 10];
                let votes = evaluate([&a, other], None, shape, &options, &device, DType::F32).votes;
                votes.chunks(24).map(|row| row.iter().sum()).collect()
            };
            let label = format!("{name} {kernel:?}");
            // A row's cells are rounded to f32; the integers of a GPU add up to the same.
            assert_close(&label, &rows(&b), &rows(&c), 1e-6);
            let expected: Vec<f64> = a.iter().fold(vec![0.0; 24], |mut sum, v| {
                sum.iter_mut().zip(shares(*v, 24, kernel)).for_each(|(sum, share)| *sum += share);
                sum
            });
            assert_close(&label, &rows(&b), &expected, 1e-5);
        }
    }
}

#[test]
fn a_mask_selects_voxels() {
    let [a, b, _] = images(200, 32, 5);
    let mask: Vec<f64> = (0..200).map(|voxel| f64::from(voxel % 3 == 0)).collect();
    let kept = |image: &[f64]| -> Vec<f64> { image.iter().step_by(3).copied().collect() };
    for kernel in KERNELS {
        for mode in [HistogramMode::Exact, HistogramMode::Approximate] {
            let options = options(32, kernel, mode);
            let shape = [1, 1, 1, 10, 20];
            let masked = evaluate([&a, &b], Some(&mask), shape, &options, &cpu(), DType::F64);
            let expected = table(&kept(&a), &kept(&b), &options);
            assert_close(&format!("{kernel:?} {mode:?}"), &masked.votes, &expected, ROUNDING);
            // Beyond [0, 1] weights are clamped, and those that are no number count as 0.
            let wild: Vec<f64> = mask.iter().map(|m| if *m > 0.0 { 7.0 } else { -1.0 }).collect();
            let clamped = evaluate([&a, &b], Some(&wild), shape, &options, &cpu(), DType::F64);
            assert_eq!(clamped.votes, masked.votes, "{kernel:?} {mode:?}");
        }
    }
    let image = |v: &[f64]| -> Tensor<5> { tensor(v, [1, 1, 1, 10, 20], &cpu(), DType::F64) };
    let nothing = Tensor::zeros([1, 1, 1, 10, 20], (&cpu(), DType::F64));
    let joint = weighted_joint_histogram(image(&a), image(&b), nothing, &Default::default());
    assert!(to_f64(joint).iter().all(|p| *p == 0.0));
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let [a, b, _] = images(41_000, 32, 6);
    let options = HistogramOptions::default();
    let results = [1, 2, 5].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("a small pool").install(|| table(&a, &b, &options))
    });
    assert!(results[1..].iter().all(|votes| *votes == results[0]));
}

#[test]
#[should_panic(expected = "images [1, 2, 1, 1, 3] and [1, 2, 1, 1, 3] must have one shape and one")]
fn several_channels_are_refused() {
    let image = Tensor::<5>::zeros([1, 2, 1, 1, 3], &cpu());
    joint_histogram(image.clone(), image, &HistogramOptions::default());
}

#[test]
#[should_panic(expected = "weights [1, 1, 1, 1, 2] must have the shape [1, 1, 1, 1, 3]")]
fn weights_of_another_shape_are_refused() {
    let image = |w| Tensor::<5>::zeros([1, 1, 1, 1, w], &cpu());
    weighted_joint_histogram(image(3), image(3), image(2), &HistogramOptions::default());
}

#[test]
#[should_panic(expected = "the bins must lie in 8..=256, got 7")]
fn too_few_bins_are_refused() {
    table(&[0.5], &[0.5], &options(7, ParzenKernel::Delta, HistogramMode::Exact));
}

#[test]
#[should_panic(expected = "needs at least 16 bins, of which 12 are padding, got 15")]
fn a_kernel_wider_than_the_table_is_refused() {
    let wide = ParzenKernel::Gaussian { sigma_bins: 2.0 };
    table(&[0.5], &[0.5], &options(15, wide, HistogramMode::Exact));
}
