//! Against the same iterations composed of the public operations with autodiff, and exact cases.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::losses::{self, MutualInformation, NormalizedMutualInformation, Similarity as _};
use crate::ops::{
    AdamStep, GridSampleOptions, MomentStorage, adam, compose, gaussian, grid_sample,
};
use crate::testing::{assert_close, gpu_devices, tensor, to_f64, uniform};

/// The same f64 operations in another order, over ten iterations.
const F64_ROUNDING: f64 = 1e-12;
/// f32 rounding, which ten steps of Adam pass on, in a direction whose floor keeps noise small.
const F32_ROUNDING: f64 = 1e-4;
/// f32 rounding of one or a few steps; the sums of mutual information are the worst.
const F32_ONE_STEP: f64 = 5e-5;

const SCALE: [[f64; 3]; 3] = [[1.1, 0.0, 0.05], [0.0, 0.9, 0.0], [-0.05, 0.0, 1.0]];

fn options(measure: Measure) -> GreedyOptions {
    GreedyOptions {
        measure,
        displacement_scale: SCALE,
        step_voxels: [0.25, 0.2, 0.3],
        smooth_gradient: GaussianOptions::isotropic(1.0),
        smooth_warp: GaussianOptions::isotropic(0.5),
        adam: AdamOptions { gradient_floor: 0.1, ..AdamOptions::default() },
    }
}

fn measures() -> [Measure; 4] {
    let histogram = HistogramOptions { bins: 16, ..HistogramOptions::default() };
    [
        Measure::Lncc(LnccOptions { window: 5, ..LnccOptions::default() }),
        Measure::SquaredDifference,
        Measure::MutualInformation(histogram),
        Measure::NormalizedMutualInformation(histogram),
    ]
}

/// Smooth images, as registration has them: of noise, a step has no direction.
fn image(size: [usize; 3], batch: usize, seed: u64) -> Vec<f64> {
    let len = batch * size.iter().product::<usize>();
    let noise = tensor(
        &uniform(len, 0.0, 1.0, seed),
        [batch, 1, size[0], size[1], size[2]],
        &Device::flex(),
        DType::F64,
    );
    to_f64(gaussian(noise, &GaussianOptions::isotropic(1.5)).sub_scalar(0.3).mul_scalar(2.0))
}

fn problem(
    size: [usize; 3],
    batch: usize,
    device: &Device,
    dtype: DType,
) -> (GreedyImages, GreedyState) {
    let [d, h, w] = size;
    let moving_size = [d + 2, h, w + 1];
    let map = [1.02, 0.03, 0.0, 0.4, -0.02, 0.97, 0.01, -0.3, 0.0, 0.02, 1.01, 0.6];
    let images = GreedyImages {
        fixed: tensor(&image(size, batch, 1), [batch, 1, d, h, w], device, dtype),
        moving: tensor(&image(moving_size, batch, 2), [batch, 1, d + 2, h, w + 1], device, dtype),
        affine: tensor(&map, [1, 3, 4], device, dtype),
    };
    let field = uniform(batch * 3 * d * h * w, -0.4, 0.4, 3);
    let displacement = tensor(&field, [batch, 3, d, h, w], device, dtype);
    (images, GreedyState { displacement, moments: Moments::default() })
}

/// The measure as the public losses have it, summed.
fn summed(measure: Measure, moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1> {
    let count = fixed.shape().num_elements() as f64;
    match measure {
        Measure::Lncc(options) => {
            losses::Lncc(options).loss(moved, fixed).neg().add_scalar(1.0).mul_scalar(count)
        }
        Measure::SquaredDifference => losses::Mse.loss(moved, fixed).mul_scalar(count),
        Measure::MutualInformation(options) => {
            MutualInformation(options).loss(moved, fixed).neg().mul_scalar(count)
        }
        Measure::NormalizedMutualInformation(options) => {
            NormalizedMutualInformation(options).loss(moved, fixed).neg().mul_scalar(count)
        }
    }
}

/// One iteration, composed.
fn composed(
    images: &GreedyImages,
    state: GreedyState,
    options: &GreedyOptions,
) -> (f64, GreedyState) {
    let GreedyState { displacement, mut moments } = state;
    let GreedyImages { fixed, moving, affine } = images.clone();
    let sampling =
        GridSampleOptions { displacement_scale: options.displacement_scale, ..Default::default() };
    let tracked = displacement.clone().autodiff().require_grad();
    let [fixed, moving] = [fixed, moving].map(Tensor::autodiff);
    let moved = grid_sample(moving, Some(affine.autodiff()), Some(tracked.clone()), &sampling);
    let value = summed(options.measure, moved, fixed);
    let gradients = value.backward();
    let gradient = tracked.grad(&gradients).expect("the measure depends on the displacement");

    let gradient = gaussian(gradient, &options.smooth_gradient);
    let AdamStep { direction, longest } = adam(gradient, &mut moments, &options.adam);
    let [batch, ..] = direction.dims();
    let downhill = options.step_voxels.map(|step| step * options.measure.sign());
    let rate = tensor::<5>(&downhill, [1, 3, 1, 1, 1], &direction.device(), direction.dtype());
    let step = direction * rate / longest.clamp_min(1.0).reshape([batch, 1, 1, 1, 1]);
    let displacement = gaussian(compose(displacement, step), &options.smooth_warp);
    (to_f64(value.inner())[0], GreedyState { displacement, moments })
}

/// Fused and composed agree after each number of iterations, called at once or in parts.
fn agree(device: &Device, dtype: DType, label: &str, [one, ten]: [f64; 2]) {
    for (size, batch) in [([9, 11, 14], 1), ([8, 12, 10], 2)] {
        for measure in measures() {
            let options = options(measure);
            let (images, start) = problem(size, batch, device, dtype);
            let (mut values, mut state) = (vec![], start.clone());
            for done in 1..=10 {
                let (value, next) = composed(&images, state, &options);
                values.push(value);
                state = next;
                if done != 1 && done != 10 {
                    continue;
                }
                let tolerance = if done == 1 { one } else { ten };
                let (first, next) = greedy(&images, start.clone(), &options, 1);
                let (rest, fused) = match done {
                    1 => (None, next),
                    _ => {
                        let (rest, fused) = greedy(&images, next, &options, done - 1);
                        (Some(rest), fused)
                    }
                };
                let found: Vec<f64> =
                    [Some(first), rest].into_iter().flatten().flat_map(to_f64).collect();
                let label = format!("{label} {size:?} x {batch} {measure:?}, {done} iterations");
                let [actual, expected] =
                    [fused.displacement, state.displacement.clone()].map(to_f64);
                let field = assert_close(&label, &actual, &expected, tolerance);
                let value = assert_close(&label, &found, &values, tolerance);
                println!("greedy {label}: field {field:.1e}, measure {value:.1e}");
            }
        }
    }
}

#[test]
fn iterations_are_those_of_the_composed_operations() {
    agree(&Device::flex(), DType::F64, "cpu", [F64_ROUNDING; 2]);
}

#[test]
fn iterations_on_a_gpu_are_those_of_the_composed_operations() {
    for (name, device) in gpu_devices() {
        agree(&device, DType::F32, name, [F32_ONE_STEP, F32_ROUNDING]);
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for measure in measures() {
            for size in [[1, 9, 33], [17, 8, 10]] {
                let run = |device: &Device, dtype| {
                    let (images, state) = problem(size, 2, device, dtype);
                    let (values, state) = greedy(&images, state, &options(measure), 3);
                    (to_f64(values), to_f64(state.displacement))
                };
                let (values, field) = run(&Device::flex(), DType::F64);
                let (on_gpu, field_on_gpu) = run(&device, DType::F32);
                let label = format!("{name} {measure:?} {size:?}");
                let value = assert_close(&label, &on_gpu, &values, F32_ONE_STEP);
                let field = assert_close(&label, &field_on_gpu, &field, F32_ROUNDING);
                println!("greedy {label}: measure {value:.1e}, field {field:.1e}");
            }
        }
    }
}

/// Leaves NaN in the memory that the next tensors get.
fn poison(size: [usize; 3], device: &Device) {
    let [d, h, w] = size;
    let shapes = [[1, 3, d, h, w], [1, 1, d, h, w], [1, 1, 1, 64, 64], [1, 1, 1, 1, 256], [1; 5]];
    let held: Vec<Tensor<5>> = shapes
        .into_iter()
        .cycle()
        .take(100)
        .map(|shape| Tensor::full(shape, f32::NAN, (device, DType::F32)))
        .collect();
    device.sync().expect("the device works");
    drop(held);
}

#[test]
fn nothing_is_read_that_was_not_written() {
    for (name, device) in gpu_devices() {
        for measure in measures() {
            for size in [[9, 11, 14], [20, 24, 28], [40, 48, 56]] {
                let (images, state) = problem(size, 1, &device, DType::F32);
                let (expected, _) = greedy(&images, state.clone(), &options(measure), 3);
                let expected = to_f64(expected);
                poison(size, &device);
                let (values, state) = greedy(&images, state, &options(measure), 3);
                let label = format!("{name} {measure:?} {size:?}");
                assert_eq!(to_f64(values), expected, "{label}");
                assert!(to_f64(state.displacement).iter().all(|u| u.is_finite()), "{label}");
            }
        }
    }
}

#[test]
fn every_measure_improves() {
    for measure in measures() {
        let (images, start) = problem([12, 12, 12], 1, &Device::flex(), DType::F32);
        let (values, _) = greedy(&images, start, &options(measure), 20);
        let values = to_f64(values);
        let gained = (values[19] - values[0]) * measure.sign();
        assert!(gained > 0.1 * values[0].abs(), "{measure:?}: {values:?}");
    }
}

#[test]
fn the_first_step_is_the_sign_of_the_gradient_with_its_longest_vector_of_the_given_length() {
    // A ramp along x that is 0.1 too dark everywhere: squares fall by moving along +x.
    let ramp = |offset: f64| {
        let values: Vec<f64> = (0..216).map(|i| f64::from(i % 6) * 0.1 + offset).collect();
        tensor::<5>(&values, [1, 1, 6, 6, 6], &Device::flex(), DType::F64)
    };
    let identity = [1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0.];
    let images = GreedyImages {
        fixed: ramp(0.1),
        moving: ramp(0.0),
        affine: tensor(&identity, [1, 3, 4], &Device::flex(), DType::F64),
    };
    let displacement = Tensor::zeros([1, 3, 6, 6, 6], (&Device::flex(), DType::F64));
    let state = GreedyState { displacement, moments: Moments::default() };
    let off = GaussianOptions::isotropic(0.0);
    let options = GreedyOptions {
        displacement_scale: GridSampleOptions::default().displacement_scale,
        step_voxels: [0.25, 0.5, 0.5],
        smooth_gradient: off,
        smooth_warp: off,
        adam: AdamOptions::default(),
        ..options(Measure::SquaredDifference)
    };
    let (values, state) = greedy(&images, state, &options, 1);
    assert_close("squares", &to_f64(values), &[2.16], F64_ROUNDING);
    // In the middle the other axes show nothing, and the step is composed with no displacement.
    let middle = to_f64(state.displacement.slice([0..1, 0..3, 2..4, 2..4, 2..4]));
    let longest = to_f64(adam_longest(&images));
    let expected: Vec<f64> = (0..24).map(|i| if i < 8 { 0.25 / longest[0] } else { 0.0 }).collect();
    assert_close("step", &middle, &expected, F64_ROUNDING);
}

/// The longest vector of the signs of the gradient: where the zeros around the image begin, its
/// corners see a slope along every axis.
fn adam_longest(images: &GreedyImages) -> Tensor<1> {
    let field = Tensor::<5>::zeros([1, 3, 6, 6, 6], (&Device::flex(), DType::F64));
    let tracked = field.autodiff().require_grad();
    let moving = images.moving.clone().autodiff();
    let moved = grid_sample(moving, None, Some(tracked.clone()), &GridSampleOptions::default());
    let gradients = losses::Mse.loss(moved, images.fixed.clone().autodiff()).backward();
    let gradient = tracked.grad(&gradients).expect("tracked");
    adam(gradient, &mut Moments::default(), &AdamOptions::default()).longest
}

#[test]
fn moments_in_bf16_go_the_same_way() {
    let run = |storage| {
        let (images, start) = problem([16, 16, 16], 1, &Device::flex(), DType::F32);
        let options = options(measures()[0]);
        let options = GreedyOptions { adam: AdamOptions { storage, ..options.adam }, ..options };
        let (values, state) = greedy(&images, start, &options, 20);
        (to_f64(values)[19], to_f64(state.displacement))
    };
    let (full, field) = run(MomentStorage::Full);
    let (stored, other) = run(MomentStorage::Bf16);
    println!("measure after 20 iterations: {full} in f32, {stored} in bf16");
    assert!((stored - full).abs() < 5e-3 * full.abs(), "{stored} {full}");
    // Directions are off by a few per cent, differently from voxel to voxel.
    let error = assert_close("fields", &other, &field, 0.1);
    assert!(error > 1e-6, "nothing was rounded");
}

#[test]
#[should_panic(expected = "at least one iteration")]
fn nothing_to_do_is_refused() {
    let (images, state) = problem([8, 8, 8], 1, &Device::flex(), DType::F32);
    greedy(&images, state, &options(Measure::SquaredDifference), 0);
}

#[test]
#[should_panic(expected = "the displacement be [1, 3, 8, 8, 8]")]
fn a_displacement_of_another_size_is_refused() {
    let (images, mut state) = problem([8, 8, 8], 1, &Device::flex(), DType::F32);
    state.displacement = Tensor::zeros([1, 3, 8, 8, 9], &Device::flex());
    greedy(&images, state, &options(Measure::SquaredDifference), 1);
}

#[test]
#[should_panic(expected = "not differentiable")]
fn images_on_the_tape_are_refused() {
    let (mut images, state) = problem([8, 8, 8], 1, &Device::flex(), DType::F32);
    images.moving = images.moving.autodiff().require_grad();
    greedy(&images, state, &options(Measure::SquaredDifference), 1);
}
