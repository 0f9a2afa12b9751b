//! Steps that can be computed by hand, and what is refused.

use super::*;
use crate::losses::{self, SimilarityLoss as _};
use crate::ops::{GridSampleOptions, MomentStorage, adam, grid_sample};
use ffdp_kit::testing::assert_close;

#[test]
fn every_measure_improves_with_every_method() {
    for measure in measures() {
        for (method, update) in [
            (DeformMethod::Greedy, Update::Compositive),
            (DeformMethod::Greedy, Update::Additive),
            (DeformMethod::Syn, Update::Compositive),
            (svf(), Update::Additive),
        ] {
            let fields = method.fields();
            let setting = Setting { fields, ..Setting::of([12, 12, 12], 1) };
            let (images, start) = setting.problem(&Device::flex(), DType::F32);
            let options = DeformOptions { method, update, ..options(measure) };
            let values = to_f64(deform(&images, start, &options, 20).0);
            let gained = (values[19] - values[0]) * options.measure.sign();
            assert!(gained > 0.1 * values[0].abs(), "{measure:?} {method:?}: {values:?}");
        }
    }
}

/// A ramp along x, against one that is 0.1 brighter everywhere: squares fall by moving along +x.
fn ramps() -> (DeformImages, Batch) {
    let ramp = |offset: f64| {
        let values: Vec<f64> = (0..216).map(|i| f64::from(i % 6) * 0.1 + offset).collect();
        tensor::<5>(&values, [1, 1, 6, 6, 6], &Device::flex(), DType::F64)
    };
    let identity = [1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0.];
    let images = DeformImages {
        fixed: ramp(0.1),
        moving: ramp(0.0),
        affine: tensor(&identity, [1, 3, 4], &Device::flex(), DType::F64),
        masks: [None, None],
    };
    let field = Tensor::zeros([1, 3, 6, 6, 6], (&Device::flex(), DType::F64));
    (images, Batch { field, moments: vec![] })
}

fn one_step(optimizer: Optimizer) -> DeformOptions {
    let off = GaussianOptions::isotropic(0.0);
    DeformOptions {
        step_voxels: [0.25, 0.5, 0.5],
        smooth_gradient: off,
        smooth_field: off,
        optimizer,
        ..DeformOptions::greedy(Measure::SquaredDifference)
    }
}

/// The first step in the middle, where the other axes show nothing.
fn middle(state: Batch) -> Vec<f64> {
    to_f64(state.field.slice([0..1, 0..3, 2..4, 2..4, 2..4]))
}

#[test]
fn the_first_step_is_the_sign_of_the_gradient_with_its_longest_vector_of_the_given_length() {
    let (images, state) = ramps();
    let options = one_step(Optimizer::Adam(AdamOptions::default()));
    let (values, state) = deform(&images, state, &options, 1);
    assert_close("squares", &to_f64(values), &[2.16], F64_ROUNDING);
    let longest = to_f64(adam_longest(&images));
    let expected: Vec<f64> = (0..24).map(|i| if i < 8 { 0.25 / longest[0] } else { 0.0 }).collect();
    assert_close("step", &middle(state), &expected, F64_ROUNDING);
}

/// The longest vector of the signs of the gradient: where the zeros around the image begin, its
/// corners see a slope along every axis.
fn adam_longest(images: &DeformImages) -> Tensor<1> {
    let field = Tensor::<5>::zeros([1, 3, 6, 6, 6], (&Device::flex(), DType::F64));
    let tracked = field.autodiff().require_grad();
    let moving = images.moving.clone().autodiff();
    let moved = grid_sample(moving, None, Some(tracked.clone()), &GridSampleOptions::default());
    let gradients = losses::Mse.loss(moved, images.fixed.clone().autodiff()).backward();
    let gradient = tracked.grad(&gradients).expect("tracked");
    adam(gradient, &mut Moments::default(), &AdamOptions::default()).longest
}

#[test]
fn a_step_of_gauss_and_newton_solves_a_linear_problem() {
    // The residual is 0.1 and the slope 0.1: one voxel along x, of which a quarter is allowed at a
    // time. Damping would shorten it in proportion to the mean slope.
    let (images, state) = ramps();
    let options = one_step(Optimizer::GaussNewton { damping: 1e-9 });
    let (_, state) = deform(&images, state, &options, 1);
    let expected: Vec<f64> = (0..24).map(|i| if i < 8 { 0.25 } else { 0.0 }).collect();
    // The damping is relative to the mean slope, a hundred times that of the ramp.
    assert_close("step", &middle(state), &expected, 1e-6);
}

#[test]
fn moments_in_bf16_go_the_same_way() {
    let run = |storage| {
        let (images, start) = problem([16, 16, 16], 1, &Device::flex(), DType::F32);
        let adam = AdamOptions { gradient_floor: 0.1, storage, ..AdamOptions::default() };
        let options = DeformOptions { optimizer: Optimizer::Adam(adam), ..options(measures()[0]) };
        let (values, state) = deform(&images, start, &options, 20);
        (to_f64(values)[19], to_f64(state.field))
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
    deform(&images, state, &options(Measure::SquaredDifference), 0);
}

#[test]
#[should_panic(expected = "the field be [1, 3, 8, 8, 8]")]
fn a_field_of_another_size_is_refused() {
    let (images, mut state) = problem([8, 8, 8], 1, &Device::flex(), DType::F32);
    state.field = Tensor::zeros([1, 3, 8, 8, 9], &Device::flex());
    deform(&images, state, &options(Measure::SquaredDifference), 1);
}

#[test]
#[should_panic(expected = "2 fields are needed, got 1")]
fn syn_needs_two_halves() {
    let (images, state) = problem([8, 8, 8], 1, &Device::flex(), DType::F32);
    let options =
        DeformOptions { method: DeformMethod::Syn, ..options(Measure::SquaredDifference) };
    deform(&images, state, &options, 1);
}

#[test]
#[should_panic(expected = "velocities are added")]
fn velocities_are_not_composed() {
    let (images, state) = problem([8, 8, 8], 1, &Device::flex(), DType::F32);
    let options = DeformOptions { method: svf(), ..options(Measure::SquaredDifference) };
    deform(&images, state, &options, 1);
}

#[test]
#[should_panic(expected = "must be [1, 1, 8, 8, 8]")]
fn a_mask_of_another_size_is_refused() {
    let (mut images, state) = problem([8, 8, 8], 1, &Device::flex(), DType::F32);
    images.masks[0] = Some(Tensor::ones([1, 1, 8, 8, 9], &Device::flex()));
    deform(&images, state, &options(Measure::SquaredDifference), 1);
}

#[test]
#[should_panic(expected = "not differentiable")]
fn images_on_the_tape_are_refused() {
    let (mut images, state) = problem([8, 8, 8], 1, &Device::flex(), DType::F32);
    images.moving = images.moving.autodiff().require_grad();
    deform(&images, state, &options(Measure::SquaredDifference), 1);
}
