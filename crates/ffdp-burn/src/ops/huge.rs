//! Volumes of more than 2^31 voxels, where 32-bit indices end: the whole against its parts.
//!
//! Ignored by default: a test takes up to 60 GB of GPU memory. On a large GPU:
//! `cargo test --release --features cuda --lib huge -- --ignored --test-threads 1`.

use burn::tensor::{DType, Device, Shape, Tensor, TensorData};
use rayon::prelude::*;

use super::lncc::lncc_sum;
use super::*;
use ffdp_kit::testing::gpu_devices;

/// 2,159,976,000 voxels; whole rows of four values.
const SIZE: [usize; 3] = [1300, 1290, 1288];

/// A reproducible intensity in [0, 1]: waves and noise.
fn intensity(index: usize, seed: u64) -> f32 {
    let mut hash = (index as u64 ^ (seed << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let noise = (hash >> 40) as f32 / (1u64 << 24) as f32;
    let wave = ((index % 977) as f32 * 0.02 + seed as f32).sin();
    0.5 + 0.25 * wave + 0.25 * (noise - 0.5)
}

/// Planes `[first, last)` of a volume whose channels have the values `of(channel, index)`; dense from the start,
/// because a second copy may not fit.
fn volume(
    first: usize,
    last: usize,
    channels: usize,
    device: &Device,
    of: impl Fn(usize, usize) -> f32 + Sync,
) -> Tensor<5> {
    let area = SIZE[1] * SIZE[2];
    let depth = last - first;
    let mut values = vec![0.0f32; channels * depth * area];
    values.par_chunks_mut(area).enumerate().for_each(|(plane, values)| {
        let (channel, start) = (plane / depth, (first + plane % depth) * area);
        values.iter_mut().enumerate().for_each(|(i, v)| *v = of(channel, start + i));
    });
    let dims = [1, channels, depth, SIZE[1], SIZE[2]];
    let data = TensorData::new(values, Shape::from([dims.iter().product::<usize>()]));
    Tensor::<1>::from_data(data, (device, DType::F32)).reshape(dims)
}

/// Planes `[first, last)` of image number `seed`.
fn planes(first: usize, last: usize, seed: u64, device: &Device) -> Tensor<5> {
    volume(first, last, 1, device, |_, index| intensity(index, seed))
}

fn whole(seed: u64, device: &Device) -> Tensor<5> {
    planes(0, SIZE[0], seed, device)
}

/// Planes of a displacement in odd sixteenths of a voxel, whose sums with any index are exact: so a part samples
/// at exactly the positions of the whole.
fn displacement(first: usize, last: usize, device: &Device) -> Tensor<5> {
    volume(first, last, 3, device, |channel, index| {
        (intensity(index, 3 + channel as u64) * 8.0).floor() / 8.0 + 0.0625
    })
}

fn number(tensor: Tensor<1>) -> f64 {
    f64::from(tensor.into_data().try_to_vec::<f32>().expect("f32")[0])
}

/// The GPUs, with the memory that earlier tests of the process have left given back: the next may need most of it.
fn empty_devices() -> Vec<(&'static str, Device)> {
    let devices = gpu_devices();
    devices.iter().for_each(|(_, device)| device.memory_cleanup());
    devices
}

/// Largest difference of two tensors over the largest value of the second.
fn error(actual: Tensor<5>, expected: Tensor<5>) -> f64 {
    let scale = number(expected.clone().abs().max());
    number((actual - expected).abs().max()) / scale
}

/// Planes of a tensor, counted from its start.
fn crop(tensor: &Tensor<5>, first: usize, last: usize) -> Tensor<5> {
    let [n, c, _, h, w] = tensor.dims();
    tensor.clone().slice([0..n, 0..c, first..last, 0..h, 0..w])
}

#[test]
#[ignore = "takes 60 GB of GPU memory"]
fn lncc_past_2_to_the_31_voxels() {
    let options = LnccOptions::default();
    let margin = options.window / 2;
    let [depth, ..] = SIZE;
    let half = depth / 2;
    for (name, device) in empty_devices() {
        // Windows that a cut spoils are spoiled alike in the overlap, so they cancel.
        let part = |first, last| {
            let [moved, fixed] = [1, 2].map(|seed| planes(first, last, seed, &device));
            number(lncc_sum(moved, fixed, &options))
        };
        let parts = part(0, half + margin) + part(half - margin, depth)
            - part(half - margin, half + margin);
        let moved = whole(1, &device).autodiff().require_grad();
        let fixed = whole(2, &device).autodiff();
        let sum = lncc_sum(moved.clone(), fixed, &options);
        let value = number(sum.clone().inner());
        let gradients = sum.backward();
        let gradient = moved.grad(&gradients).expect("wanted");
        // f32 sums of a million partials each.
        assert!((value / parts - 1.0).abs() < 1e-6, "{name}: {value} against {parts}");
        // Planes around index 2^31 and at the end.
        for (first, last) in [(depth - 40, depth), (1280, 1300), (640, 660)] {
            let from = first - 4 * margin;
            let to = (last + 4 * margin).min(depth);
            let moved = planes(from, to, 1, &device).autodiff().require_grad();
            let fixed = planes(from, to, 2, &device).autodiff();
            let gradients = lncc_sum(moved.clone(), fixed, &options).backward();
            let part = moved.grad(&gradients).expect("wanted");
            let part = crop(&part, first - from, last - from);
            let error = error(crop(&gradient, first, last), part);
            println!("{name}: lncc planes {first}..{last} gradient {error:.1e}");
            // The images are read relative to another constant.
            assert!(error < 1e-4, "{name}: planes {first}..{last}: {error:.1e}");
        }
    }
}

#[test]
#[ignore = "takes 40 GB of GPU memory"]
fn sampling_past_2_to_the_31_voxels() {
    for (name, device) in empty_devices() {
        // A quarter voxel along z; crops are moved by the same map, relative to their own start.
        let affine = || {
            let map = [[[1.0f32, 0., 0., 0.], [0., 1., 0., 0.], [0., 0., 1., 0.25]]];
            Tensor::<3>::from_data(TensorData::from(map), (&device, DType::F32))
        };
        let options = GridSampleOptions::default();
        let output = grid_sample(whole(1, &device), Some(affine()), None, &options);
        for (first, last) in [(SIZE[0] - 20, SIZE[0]), (600, 620)] {
            let to = (last + 1).min(SIZE[0]);
            let part = grid_sample(planes(first, to, 1, &device), Some(affine()), None, &options);
            let error = error(crop(&output, first, last), crop(&part, 0, last - first));
            println!("{name}: grid_sample planes {first}..{last} {error:.1e}");
            // The position's fraction is rounded relative to plane 1300.
            assert!(error < 1e-4, "{name}: {error:.1e}");
        }
    }
}

#[test]
#[ignore = "takes 90 GB of GPU memory"]
fn warps_past_2_to_the_31_voxels() {
    let [depth, ..] = SIZE;
    for (name, device) in empty_devices() {
        // Upstream gradients are those of a mean of squares, so that they differ from voxel to voxel.
        let gradient = |first: usize, last: usize| {
            let field = displacement(first, last, &device).autodiff().require_grad();
            let image = planes(first, last, 1, &device).autodiff();
            let zero = Tensor::zeros_like(&image);
            let squares = mse(warp(image, field.clone()), zero);
            let gradients = squares.backward();
            field.grad(&gradients).expect("wanted")
        };
        let whole = gradient(0, depth);
        for (first, last) in [(depth - 20, depth), (1285, 1295), (600, 620)] {
            let to = (last + 2).min(depth);
            // The mean of a part is over fewer voxels.
            let share = (to - first) as f64 / depth as f64;
            let part = crop(&gradient(first, to), 0, last - first) * share;
            let error = error(crop(&whole, first, last), part);
            println!("{name}: warp planes {first}..{last} gradient {error:.1e}");
            // The same arithmetic but for one factor, which is rounded twice.
            assert!(error < 1e-6, "{name}: planes {first}..{last}: {error:.1e}");
        }
    }
}

#[test]
#[ignore = "takes 60 GB of GPU memory"]
fn composition_past_2_to_the_31_voxels() {
    let [depth, ..] = SIZE;
    for (name, device) in empty_devices() {
        let composed = |first, last| {
            let field = displacement(first, last, &device);
            compose(field.clone(), field)
        };
        let whole = composed(0, depth);
        for (first, last) in [(depth - 20, depth), (600, 620)] {
            let to = (last + 2).min(depth);
            let part = crop(&composed(first, to), 0, last - first);
            let error = error(crop(&whole, first, last), part);
            println!("{name}: compose planes {first}..{last} {error:.1e}");
            assert!(error == 0.0, "{name}: planes {first}..{last}: {error:.1e}");
        }
    }
}

#[test]
#[ignore = "takes 30 GB of GPU memory"]
fn smoothing_past_2_to_the_31_voxels() {
    for (name, device) in empty_devices() {
        let options = GaussianOptions::isotropic(1.0);
        let output = gaussian(whole(1, &device), &options);
        for (first, last) in [(SIZE[0] - 20, SIZE[0]), (600, 620)] {
            let (from, to) = (first - 8, (last + 8).min(SIZE[0]));
            let part = gaussian(planes(from, to, 1, &device), &options);
            let part = crop(&part, first - from, last - from);
            let error = error(crop(&output, first, last), part);
            println!("{name}: gaussian planes {first}..{last} {error:.1e}");
            assert!(error < 1e-6, "{name}: {error:.1e}");
        }
    }
}

#[test]
#[ignore = "takes 30 GB of GPU memory"]
fn histograms_past_2_to_the_31_voxels() {
    for (name, device) in empty_devices() {
        for kernel in [ParzenKernel::Delta, ParzenKernel::BSpline3] {
            let options = HistogramOptions { kernel, ..HistogramOptions::default() };
            let table = |first: usize, last: usize| -> Vec<f64> {
                let [a, b] = [1, 2].map(|seed| planes(first, last, seed, &device));
                let share = (last - first) as f64 / SIZE[0] as f64;
                let data = joint_histogram(a, b, &options).into_data();
                let values = data.try_to_vec::<f32>().expect("f32");
                values.into_iter().map(|p| f64::from(p) * share).collect()
            };
            let all = table(0, SIZE[0]);
            let parts: Vec<f64> =
                table(0, 500).iter().zip(table(500, SIZE[0])).map(|(a, b)| a + b).collect();
            let total: f64 = all.iter().sum();
            assert!((total - 1.0).abs() < 1e-6, "{name} {kernel:?}: {total}");
            for (whole, parts) in all.iter().zip(&parts) {
                // Exact counts, read as f32.
                assert!((whole - parts).abs() <= 2e-7 * parts.max(1e-9), "{name} {kernel:?}");
            }
        }
    }
}

#[test]
#[ignore = "takes 30 GB of GPU memory"]
fn squared_differences_past_2_to_the_31_voxels() {
    for (name, device) in empty_devices() {
        let value = |first, last| {
            let [a, b] = [1, 2].map(|seed| planes(first, last, seed, &device));
            number(mse(a, b)) * (last - first) as f64 / SIZE[0] as f64
        };
        let (all, parts) = (value(0, SIZE[0]), value(0, 500) + value(500, SIZE[0]));
        assert!((all / parts - 1.0).abs() < 1e-6, "{name}: {all} against {parts}");
    }
}
