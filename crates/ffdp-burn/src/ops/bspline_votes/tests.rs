//! Against the three operations that it fuses, counts from the definition, finite differences, and ways to count.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::ops::{
    GridSampleOptions, Information, ParzenKernel, bspline, grid_sample, information_loss,
};
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64, uniform};

/// Of a smooth function of samples in f64, over steps of 1e-4.
const FINITE_DIFFERENCES: f64 = 1e-6;
/// A sample is rounded by some 1e-6 of an intensity, and a vote of 32 bins moves by 30 times that.
const GPU_VOTES: f64 = 5e-5;
/// The slopes of the pieces in f32, and sums over supports of either sign.
const GPU_GRADIENT: f64 = 2e-4;

struct Case {
    images: [Vec<f64>; 2],
    batch: usize,
    fixed: [usize; 3],
    moving: [usize; 3],
    grid: ControlGrid,
    controls: [usize; 3],
    coefficients: Vec<f64>,
    affine: [f64; 12],
}

const IDENTITY: [f64; 12] = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
/// Turned, scaled and shifted a little.
const TILTED: [f64; 12] =
    [0.97, 0.02, -0.01, 0.31, -0.03, 1.02, 0.02, 0.27, 0.01, -0.02, 0.99, 0.23];

/// What f32 holds.
fn single(values: Vec<f64>) -> Vec<f64> {
    values.into_iter().map(|v| f64::from(v as f32)).collect()
}

fn case(batch: usize, fixed: [usize; 3], moving: [usize; 3], spacing: [f64; 3]) -> Case {
    let (grid, controls) = ControlGrid::covering(fixed, spacing);
    let count = |size: [usize; 3]| batch * size.iter().product::<usize>();
    let coefficients = normal(3 * count(controls), 5).into_iter().map(|v| 0.8 * v).collect();
    Case {
        images: [
            single(uniform(count(fixed), 0.0, 1.0, 1)),
            single(uniform(count(moving), 0.0, 1.0, 2)),
        ],
        batch,
        fixed,
        moving,
        grid,
        controls,
        coefficients: single(coefficients),
        affine: TILTED,
    }
}

fn shaped(batch: usize, channels: usize, [d, h, w]: [usize; 3]) -> [usize; 5] {
    [batch, channels, d, h, w]
}

impl Case {
    fn on(&self, device: &Device, dtype: DType) -> (VotesImages, Tensor<5>) {
        let image =
            |values: &[f64], size| tensor(values, shaped(self.batch, 1, size), device, dtype);
        let images = VotesImages {
            fixed: image(&self.images[0], self.fixed),
            moving: image(&self.images[1], self.moving),
            affine: tensor(&self.affine, [1, 3, 4], device, dtype),
        };
        let shape = shaped(self.batch, 3, self.controls);
        (images, tensor(&self.coefficients, shape, device, dtype))
    }

    fn votes(&self, options: &VotesOptions, device: &Device, dtype: DType) -> Vec<f64> {
        let (images, coefficients) = self.on(device, dtype);
        to_f64(bspline_votes(&images, coefficients, &self.grid, options))
    }

    /// The warped image.
    fn moved(&self, options: &VotesOptions, device: &Device, dtype: DType) -> Tensor<5> {
        let (images, coefficients) = self.on(device, dtype);
        let field = bspline(coefficients, &self.grid, self.fixed);
        let sampling = GridSampleOptions {
            displacement_scale: options.displacement_scale,
            ..GridSampleOptions::default()
        };
        grid_sample(images.moving, Some(images.affine), Some(field), &sampling)
    }

    /// A number made of the votes, and its gradient.
    fn gradient(
        &self,
        options: &VotesOptions,
        (device, dtype): (&Device, DType),
        coefficients: &[f64],
    ) -> (f64, Vec<f64>) {
        let device = device.clone().autodiff();
        let (images, _) = self.on(&device, dtype);
        let shape = shaped(self.batch, 3, self.controls);
        let tracked: Tensor<5> = tensor(coefficients, shape, &device, dtype).require_grad();
        let votes = bspline_votes(&images, tracked.clone(), &self.grid, options);
        let dims = votes.dims();
        let factors = tensor(&normal(dims.iter().product(), 9), dims, &device, dtype);
        let number = (votes * factors).sum();
        let gradients = number.backward();
        let gradient = tracked.grad(&gradients).expect("the number depends on the coefficients");
        (to_f64(number.inner())[0], to_f64(gradient))
    }
}

fn cases() -> Vec<Case> {
    vec![
        case(1, [20, 21, 35], [18, 24, 33], [5.0, 4.5, 6.0]),
        case(2, [9, 17, 40], [9, 17, 40], [4.0; 3]),
        case(1, [1, 30, 31], [1, 30, 31], [5.0; 3]),
        case(1, [40, 3, 2], [38, 4, 3], [7.0, 2.0, 3.0]),
        case(1, [1, 1, 1], [2, 2, 2], [3.0; 3]),
    ]
}

fn whole(bins: usize, counting: Counting) -> VotesOptions {
    let kernel = ParzenKernel::Delta;
    let histogram = HistogramOptions { bins, kernel, ..Default::default() };
    VotesOptions { histogram, counting, ..Default::default() }
}

/// Smooth kernels, with a scale of the displacement that is not the identity.
fn smooth(bins: usize, kernel: ParzenKernel) -> VotesOptions {
    let histogram = HistogramOptions { bins, kernel, ..Default::default() };
    let displacement_scale = [[0.9, 0.1, 0.0], [0.0, 1.1, 0.05], [-0.1, 0.0, 0.8]];
    VotesOptions { histogram, displacement_scale, ..Default::default() }
}

#[test]
fn every_voxel_has_one_vote_in_the_bins_of_its_intensities() {
    for case in cases() {
        let options = whole(256, Counting::Automatic);
        let votes = case.votes(&options, &Device::flex(), DType::F64);
        let moved = to_f64(case.moved(&options, &Device::flex(), DType::F64));
        let mut expected = vec![0.0; case.batch * 256 * 256];
        let voxels = moved.len() / case.batch;
        let bin = |value: f64| ((value * 256.0) as usize).min(255);
        for (voxel, (m, f)) in moved.iter().zip(&case.images[0]).enumerate() {
            expected[(voxel / voxels * 256 + bin(*m)) * 256 + bin(*f)] += 1.0;
        }
        assert_eq!(votes, expected, "{:?}", case.fixed);
        assert_eq!(votes.iter().sum::<f64>(), moved.len() as f64);
    }
}

#[test]
fn differences_agree() {
    // Coefficients about a constant shift keep every sample within its cell: no kink of the interpolation is met.
    let mut case = case(1, [5, 4, 6], [7, 6, 8], [2.5, 3.0, 2.0]);
    case.affine = IDENTITY;
    let still = normal(case.coefficients.len(), 3);
    let around: Vec<f64> = still.iter().map(|v| 0.45 + 0.03 * v.clamp(-3.0, 3.0)).collect();
    let identity = VotesOptions::default().displacement_scale;
    for kernel in [ParzenKernel::BSpline3, ParzenKernel::Gaussian { sigma_bins: 0.7 }] {
        let options = VotesOptions { displacement_scale: identity, ..smooth(16, kernel) };
        let outcomes = gradcheck(&["coefficients"], std::slice::from_ref(&around), 1e-4, |x| {
            let (loss, gradient) = case.gradient(&options, (&Device::flex(), DType::F64), &x[0]);
            (loss, vec![gradient])
        });
        assert!(outcomes[0].error < FINITE_DIFFERENCES, "{kernel:?}: {outcomes:?}");
    }
}

#[test]
fn a_gpu_counts_what_the_cpu_counts() {
    for (name, device) in gpu_devices() {
        for case in cases() {
            for kernel in [ParzenKernel::BSpline3, ParzenKernel::Linear] {
                let options = smooth(32, kernel);
                let label = format!("{name} {:?} {kernel:?}", case.fixed);
                let on_gpu = case.votes(&options, &device, DType::F32);
                let on_cpu = case.votes(&options, &Device::flex(), DType::F64);
                let votes = assert_close(&label, &on_gpu, &on_cpu, GPU_VOTES);
                assert_eq!(on_gpu, case.votes(&options, &device, DType::F32), "{label}");
                if kernel != ParzenKernel::BSpline3 {
                    continue;
                }
                let gradient = |device: &Device, dtype| {
                    case.gradient(&options, (device, dtype), &case.coefficients).1
                };
                let expected = gradient(&Device::flex(), DType::F64);
                let to = gradient(&device, DType::F32);
                let error = assert_close(&label, &to, &expected, GPU_GRADIENT);
                println!("bspline_votes {label}: votes {votes:.1e} gradient {error:.1e}");
            }
        }
    }
}

/// All ways to count, band widths from nearly nothing on.
const COUNTINGS: [Counting; 5] = [
    Counting::Automatic,
    Counting::Band(177),
    Counting::Band(40),
    Counting::Band(2),
    Counting::Global,
];

#[test]
fn all_ways_to_count_agree_to_the_bit() {
    for (name, device) in gpu_devices() {
        for case in cases() {
            for bins in [16, 255, 256] {
                let of = |counting| case.votes(&whole(bins, counting), &device, DType::F32);
                let expected = of(Counting::Automatic);
                let voxels = case.images[0].len() as f64;
                assert_eq!(expected.iter().sum::<f64>(), voxels, "{name} {:?}", case.fixed);
                for counting in COUNTINGS {
                    assert!(of(counting) == expected, "{name} {bins} {counting:?}");
                }
                // Samples that are rounded otherwise fall into a neighbouring bin now and then.
                let on_cpu =
                    case.votes(&whole(bins, Counting::Global), &Device::flex(), DType::F64);
                let moved: f64 = expected.iter().zip(&on_cpu).map(|(a, b)| (a - b).abs()).sum();
                assert!(moved <= 2.0 + 2e-3 * voxels, "{name} {bins}: {moved} of {voxels}");
            }
        }
    }
}

/// Images that lie on each other, so that samples are exact.
fn unmoved(size: [usize; 3], images: [Vec<f64>; 2]) -> Case {
    let mut case = case(1, size, size, [6.0; 3]);
    case.images = images.map(single);
    case.affine = IDENTITY;
    case.coefficients.iter_mut().for_each(|c| *c = 0.0);
    case
}

fn devices() -> Vec<(String, Device, DType)> {
    let gpus = gpu_devices().into_iter();
    let gpus = gpus.map(|(name, device)| (name.to_string(), device, DType::F32));
    std::iter::once(("cpu".to_string(), Device::flex(), DType::F32)).chain(gpus).collect()
}

#[test]
fn one_voxel_beyond_the_band_changes_nothing_but_where_it_is_counted() {
    let size = [12, 20, 37];
    let len = size.iter().product();
    let fixed = uniform(len, 0.0, 1.0, 4);
    let noise = uniform(len, -0.05, 0.05, 6);
    let mut moving: Vec<f64> =
        fixed.iter().zip(noise).map(|(f, n)| (f + n).clamp(0.0, 1.0)).collect();
    let near = unmoved(size, [fixed.clone(), moving.clone()]);
    moving[4711] = (fixed[4711] + 0.5) % 1.0;
    let beyond = unmoved(size, [fixed, moving]);
    let expected = [&near, &beyond]
        .map(|case| case.votes(&whole(256, Counting::Global), &Device::flex(), DType::F64));
    assert_eq!(expected[0].iter().zip(&expected[1]).filter(|(a, b)| a != b).count(), 2);
    for (name, device, dtype) in devices() {
        for (case, expected) in [&near, &beyond].into_iter().zip(&expected) {
            let mut losses = Vec::new();
            for counting in [Counting::Band(62), Counting::Global, Counting::Automatic] {
                let votes = case.votes(&whole(256, counting), &device, dtype);
                assert!(votes == *expected, "{name} {counting:?}");
                let table = tensor(&votes, [1, 256, 256], &device, dtype);
                losses.push(to_f64(information_loss(table, Information::Normalized))[0]);
            }
            assert!(losses.iter().all(|loss| *loss == losses[0]), "{name} {losses:?}");
        }
    }
}

#[test]
fn constant_images_have_all_votes_in_one_cell() {
    // More of them than 16 bits hold, and in neighbours that share a word.
    let size = [70, 64, 65];
    let len: usize = size.iter().product();
    for (name, device, dtype) in devices() {
        for (value, cell) in [(0.5, 128), (0.503_906_25, 129)] {
            let case = unmoved(size, [vec![0.5; len], vec![value; len]]);
            for counting in COUNTINGS {
                let votes = case.votes(&whole(256, counting), &device, dtype);
                let full: Vec<_> = votes.iter().enumerate().filter(|(_, v)| **v > 0.0).collect();
                assert_eq!(full, [(cell * 256 + 128, &(len as f64))], "{name} {counting:?}");
                let table = tensor(&votes, [1, 256, 256], &device, dtype);
                assert_eq!(to_f64(information_loss(table, Information::Normalized))[0], 1.0);
            }
        }
    }
}

#[test]
#[should_panic(expected = "coefficients [N, 3, d, h, w]")]
fn other_channels_are_refused() {
    let image = || Tensor::zeros([1, 2, 3, 3, 3], &Device::flex());
    let affine = tensor(&IDENTITY, [1, 3, 4], &Device::flex(), DType::F32);
    let images = VotesImages { fixed: image(), moving: image(), affine };
    let (grid, [d, h, w]) = ControlGrid::covering([3; 3], [2.0; 3]);
    let coefficients = Tensor::zeros([1, 3, d, h, w], &Device::flex());
    bspline_votes(&images, coefficients, &grid, &VotesOptions::default());
}
