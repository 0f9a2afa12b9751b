//! The baseline and the fused operations agree, in value and in every gradient.

use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};

use super::BoxFilter;
use crate::losses::{MutualInformation, Pair, SimilarityLoss, similarities};
use crate::ops::deform::{
    DeformImages, DeformMethod, DeformOptions, DeformState, Measure, Penalties, Update,
};
use crate::ops::grid_sample::Accumulation;
use crate::ops::{
    self, GaussianOptions, GridSampleOptions, HistogramOptions, LnccFloor, LnccOptions, Moments,
    Padding, ParzenKernel,
};
use ffdp_kit::testing::{assert_close, gpu_devices, normal, tensor, to_f64, uniform};

/// The same f64 sums in another order, through a dozen operations; measured below 2e-15.
const ROUNDING: f64 = 1e-13;

/// On a GPU in f32, where convolutions may round to TF32 (5e-4) and variances lose digits to cancellation.
const IN_SINGLE: f64 = 5e-3;

type Inputs = Vec<Tensor<5>>;

/// Values and gradients of `sum(y * weights)` for inputs of the given shapes and values.
fn evaluate(
    (device, dtype): (&Device, DType),
    inputs: &[([usize; 5], Vec<f64>)],
    op: impl Fn(Inputs) -> Tensor<5>,
) -> (Vec<f64>, Vec<Vec<f64>>) {
    let device = device.clone().autodiff();
    let inputs: Inputs = inputs
        .iter()
        .map(|(shape, values)| tensor(values, *shape, &device, dtype).require_grad())
        .collect();
    let y = op(inputs.clone());
    let weights = tensor(&normal(y.shape().num_elements(), 99), y.dims(), &device, dtype);
    let gradients = (y.clone() * weights).backward();
    let of = |t: &Tensor<5>| to_f64(t.grad(&gradients).expect("every input wants a gradient"));
    (to_f64(y.inner()), inputs.iter().map(of).collect())
}

/// Asserts that two ways to compute the same agree.
fn agree(
    label: &str,
    inputs: &[([usize; 5], Vec<f64>)],
    fused: impl Fn(Inputs) -> Tensor<5>,
    baseline: impl Fn(Inputs) -> Tensor<5>,
) {
    let cpu = (&Device::flex(), DType::F64);
    let (expected, gradients) = evaluate(cpu, inputs, fused);
    let (actual, others) = evaluate(cpu, inputs, &baseline);
    let value = assert_close(label, &actual, &expected, ROUNDING);
    print!("{label}: value {value:.1e}");
    for (i, (actual, expected)) in others.iter().zip(&gradients).enumerate() {
        let label = format!("{label} input {i}");
        print!(" gradient {:.1e}", assert_close(&label, actual, expected, ROUNDING));
    }
    println!();
}

/// [`agree`], and the baseline on GPUs with both: it was tested on the processor alone, and a training by it became NaN.
fn agree_everywhere(
    label: &str,
    inputs: &[([usize; 5], Vec<f64>)],
    fused: impl Fn(Inputs) -> Tensor<5>,
    baseline: impl Fn(Inputs) -> Tensor<5>,
) {
    let (expected, gradients) = evaluate((&Device::flex(), DType::F64), inputs, &fused);
    for (name, device) in gpu_devices() {
        let (found, slopes) = evaluate((&device, DType::F32), inputs, &baseline);
        let label = format!("{name} {label}");
        let mut errors = vec![assert_close(&label, &found, &expected, IN_SINGLE)];
        for (i, (found, expected)) in slopes.iter().zip(&gradients).enumerate() {
            errors.push(assert_close(&format!("{label} input {i}"), found, expected, IN_SINGLE));
        }
        println!("{label}: {errors:?}");
    }
    agree(label, inputs, fused, baseline);
}

fn random(shape: [usize; 5], seed: u64) -> ([usize; 5], Vec<f64>) {
    (shape, normal(shape.iter().product(), seed))
}

fn field(shape: [usize; 5], reach: f64, seed: u64) -> ([usize; 5], Vec<f64>) {
    (shape, uniform(shape.iter().product(), -reach, reach, seed))
}

/// A scalar loss as a tensor of rank 5.
fn scalar(loss: Tensor<1>) -> Tensor<5> {
    loss.reshape([1, 1, 1, 1, 1])
}

#[test]
fn warping_agrees() {
    for (shape, size, reach) in [
        ([2, 2, 4, 5, 3], [4, 5, 3], 2.0),
        ([1, 3, 3, 4, 5], [2, 6, 7], 8.0),
        ([1, 1, 1, 5, 1], [1, 5, 2], 1.5),
    ] {
        let fields = [shape[0], 3, size[0], size[1], size[2]];
        let inputs = [random(shape, 1), field(fields, reach, 2)];
        let fused = |t: Inputs| ops::warp(t[0].clone(), t[1].clone());
        let baseline = |t: Inputs| super::warp(t[0].clone(), t[1].clone());
        agree_everywhere(&format!("warp {shape:?} to {size:?}"), &inputs, fused, baseline);
    }
}

#[test]
fn composite_sampling_agrees() {
    // Odd digits: on the lattice the slope is that of either side, as rounding has it.
    let rows = [
        0.9013, 0.1007, -0.0531, 0.3071, -0.1037, 1.1019, 0.0213, -0.4093, 0.0307, 0.0011, 0.9529,
        0.2017,
    ];
    for (affines, displaced, padding) in [
        (1, true, Padding::Zeros),
        (2, true, Padding::Border),
        (1, false, Padding::Zeros),
        (2, false, Padding::Border),
    ] {
        let maps = rows.iter().chain(rows.iter().rev()).take(12 * affines).copied().collect();
        let mut inputs = vec![random([2, 2, 4, 5, 6], 3), ([1, 1, affines, 3, 4], maps)];
        if displaced {
            inputs.push(field([2, 3, 3, 4, 5], 1.3, 4));
        }
        let options = GridSampleOptions {
            padding,
            displacement_scale: [[0.9, 0.1, 0.0], [-0.1, 1.2, 0.05], [0.02, 0.0, 0.8]],
            size: Some([3, 4, 5]),
            ..Default::default()
        };
        let sample = |t: &Inputs| {
            let affine = t[1].clone().reshape([affines, 3, 4]);
            (t[0].clone(), Some(affine), t.get(2).cloned())
        };
        let fused = |t: Inputs| {
            let (image, affine, field) = sample(&t);
            ops::grid_sample(image, affine, field, &options)
        };
        let baseline = |t: Inputs| {
            let (image, affine, field) = sample(&t);
            super::grid_sample(image, affine, field, &options)
        };
        let label = format!("{affines} affine, displaced {displaced}, {padding:?}");
        agree(&label, &inputs, fused, baseline);
    }
}

#[test]
fn composition_and_exponential_agree() {
    let inputs = [field([2, 3, 4, 3, 5], 1.0, 5), field([2, 3, 3, 4, 5], 1.5, 6)];
    let fused = |t: Inputs| ops::compose(t[0].clone(), t[1].clone());
    let baseline = |t: Inputs| super::compose(t[0].clone(), t[1].clone());
    agree_everywhere("compose", &inputs, fused, baseline);
    for steps in [0, 1, 4] {
        let inputs = [field([1, 3, 4, 5, 6], 1.0, 7)];
        let fused = |t: Inputs| ops::exp(t[0].clone(), steps);
        let baseline = |t: Inputs| super::exp(t[0].clone(), steps);
        agree(&format!("exp {steps}"), &inputs, fused, baseline);
    }
}

#[test]
fn lncc_agrees_with_both_filters_and_floors() {
    let cells = [BoxFilter::Conv3d, BoxFilter::Separable]
        .map(|filter| [LnccFloor::Denominator, LnccFloor::Common].map(|floor| (filter, floor)));
    let cubic = ([1, 1, 16, 16, 16], 5);
    for (shape, window) in
        [cubic, ([2, 2, 5, 6, 7], 3), ([1, 1, 9, 8, 10], 7), ([1, 1, 3, 4, 2], 9)]
    {
        for (filter, floor) in cells.into_iter().flatten() {
            let options = LnccOptions { window, epsilon: 1e-3, floor, ..Default::default() };
            let inputs = [random(shape, 8), random(shape, 9)];
            let fused = |t: Inputs| scalar(ops::lncc(t[0].clone(), t[1].clone(), &options));
            let baseline =
                |t: Inputs| scalar(super::lncc(t[0].clone(), t[1].clone(), &options, filter));
            let label = format!("lncc {shape:?} window {window} {filter:?} {floor:?}");
            match (shape, window) == cubic {
                true => agree_everywhere(&label, &inputs, fused, baseline),
                false => agree(&label, &inputs, fused, baseline),
            }
        }
    }
}

#[test]
fn joint_histogram_and_mutual_information_agree() {
    let image = |shape: [usize; 5], seed| (shape, uniform(shape.iter().product(), 0.0, 1.0, seed));
    for kernel in [ParzenKernel::BSpline3, ParzenKernel::Gaussian { sigma_bins: 1.3 }] {
        for (shape, bins) in [([2, 1, 4, 5, 6], 32), ([1, 1, 1, 7, 1], 17)] {
            let options = HistogramOptions { bins, kernel, ..Default::default() };
            let inputs = [image(shape, 13), image(shape, 14)];
            let table = |t: Tensor<3>| {
                let [n, b, _] = t.dims();
                t.reshape([n, 1, 1, b, b])
            };
            let fused =
                |t: Inputs| table(ops::joint_histogram(t[0].clone(), t[1].clone(), &options));
            let baseline =
                |t: Inputs| table(super::joint_histogram(t[0].clone(), t[1].clone(), &options));
            agree(&format!("joint_histogram {shape:?} {kernel:?}"), &inputs, fused, baseline);
            let loss = MutualInformation(options);
            let fused = |t: Inputs| scalar(loss.loss(t[0].clone(), t[1].clone()));
            let baseline =
                |t: Inputs| scalar(super::mutual_information(t[0].clone(), t[1].clone(), &options));
            agree(&format!("mutual information {shape:?} {kernel:?}"), &inputs, fused, baseline);
        }
    }
}

#[test]
fn mse_agrees() {
    let inputs = [random([2, 3, 3, 4, 5], 10), random([2, 3, 3, 4, 5], 11)];
    let fused = |t: Inputs| scalar(ops::mse(t[0].clone(), t[1].clone()));
    let baseline = |t: Inputs| scalar(super::mse(t[0].clone(), t[1].clone()));
    agree_everywhere("mse", &inputs, fused, baseline);
}

/// Also one that no kernel knows.
#[test]
fn every_similarity_agrees() {
    let shape = [2, 1, 6, 7, 8];
    let image = |seed| (shape, uniform(shape.iter().product(), 0.05, 0.95, seed));
    let inputs = [image(15), image(16)];
    let built_in =
        similarities::Similarity::built_in().into_iter().map(|(chosen, _)| chosen.loss());
    for similarity in built_in.chain([Arc::new(Absolute) as Arc<dyn SimilarityLoss>]) {
        let fused = |t: Inputs| scalar(similarity.loss(t[0].clone(), t[1].clone()));
        let baseline =
            |t: Inputs| scalar(super::similarity(&*similarity, t[0].clone(), t[1].clone()));
        agree(&format!("{similarity:?}"), &inputs, fused, baseline);
    }
}

/// The mean absolute difference.
#[derive(Debug)]
struct Absolute;

impl SimilarityLoss for Absolute {
    fn partial(&self, pair: &Pair) -> Tensor<1> {
        (pair.moved.clone() - pair.fixed.clone()).abs().sum()
    }

    fn finish(&self, total: Tensor<1>, count: Tensor<1>) -> Tensor<1> {
        total / count
    }
}

#[test]
fn gaussian_agrees() {
    for sigma_voxels in [[1.0, 0.5, 1.5], [0.0, 2.0, 0.0], [3.5, 3.5, 3.5]] {
        let options = GaussianOptions { sigma_voxels, truncate: 3.0 };
        let inputs = [random([2, 3, 4, 5, 6], 12)];
        let fused = |t: Inputs| ops::gaussian(t[0].clone(), &options);
        let baseline = |t: Inputs| super::gaussian(t[0].clone(), &options);
        agree_everywhere(&format!("gaussian {sigma_voxels:?}"), &inputs, fused, baseline);
    }
}

/// Ten iterations, with the rounding that Adam's direction passes on from one to the next.
#[test]
fn iterations_agree() {
    let device = Device::flex();
    let smooth = |shape: [usize; 5], seed| {
        let noise = uniform(shape.iter().product(), 0.0, 1.0, seed);
        let noise = tensor(&noise, shape, &device, DType::F64);
        ops::gaussian(noise, &GaussianOptions::isotropic(1.5)).mul_scalar(2.0).sub_scalar(0.5)
    };
    let map = [1.02, 0.03, 0.0, 0.4, -0.02, 0.97, 0.01, -0.3, 0.0, 0.02, 1.01, 0.6];
    let images = DeformImages {
        fixed: smooth([1, 1, 9, 11, 14], 1),
        moving: smooth([1, 1, 11, 11, 15], 2),
        affine: tensor(&map, [1, 3, 4], &device, DType::F64),
        masks: [None, None],
    };
    let bins = HistogramOptions { bins: 16, ..HistogramOptions::default() };
    let lncc = Measure::Lncc(LnccOptions { window: 5, ..LnccOptions::default() });
    let svf = DeformMethod::Svf { squarings: 4, accumulation: Accumulation::Reproducible };
    let rough = Penalties { diffusion: 0.3, bending: 0.05, total_variation: 0.1 };
    let of = |measure| DeformOptions {
        displacement_scale: [[1.1, 0.0, 0.05], [0.0, 0.9, 0.0], [-0.05, 0.0, 1.0]],
        step_voxels: [0.25, 0.2, 0.3],
        ..DeformOptions::greedy(measure)
    };
    for options in [
        of(lncc),
        of(Measure::SquaredDifference),
        of(Measure::MutualInformation(bins)),
        of(Measure::NormalizedMutualInformation(bins)),
        DeformOptions { penalties: rough, update: Update::Additive, ..of(lncc) },
        DeformOptions { method: svf, penalties: rough, update: Update::Additive, ..of(lncc) },
    ] {
        let start = || {
            let field = uniform(3 * 9 * 11 * 14, -0.4, 0.4, 3);
            let field = tensor(&field, [1, 3, 9, 11, 14], &device, DType::F64);
            vec![DeformState { field, moments: Moments::default() }]
        };
        let [(fused, of_fused), (composed, of_composed)] =
            [ops::deform, super::deform].map(|deform| deform(&images, start(), &options, 10));
        let label = format!("{options:?}");
        assert_close(&label, &to_f64(composed), &to_f64(fused), 100.0 * ROUNDING);
        let [found, expected] = [of_composed, of_fused].map(|state| to_f64(state[0].field.clone()));
        assert_close(&label, &found, &expected, 100.0 * ROUNDING);
    }
}

#[test]
#[should_panic(expected = "autodiff gives the exact gradient, not AntsApproximate")]
fn an_approximate_gradient_is_refused() {
    let image = Tensor::<5>::zeros([1, 1, 2, 2, 2], &Device::flex());
    let gradient = ops::GradientMode::AntsApproximate;
    let options = LnccOptions { gradient, ..Default::default() };
    super::lncc(image.clone(), image, &options, BoxFilter::Conv3d);
}
