//! Steps of optimisers.

use burn::tensor::Tensor;
use ffdp::ops::{
    self, AdamOptions, DeformImages, DeformOptions, DeformState, GridSampleOptions,
    HistogramOptions, LnccOptions, Measure, MomentStorage, Moments, Optimizer,
};

use super::super::inputs::Kind;
use super::case::{Case, fused, plain};

/// Steps in one run of an optimiser: its state is made anew for every run, which must not count.
const STEPS: usize = 10;

fn adam_steps(t: &[Tensor<5>], storage: MomentStorage, gradient_floor: f64) -> Tensor<5> {
    let options = AdamOptions { gradient_floor, storage, ..AdamOptions::default() };
    let mut moments = Moments::default();
    let mut step = || ops::adam(t[0].clone(), &mut moments, &options).direction;
    (1..STEPS).for_each(|_| drop(step()));
    step()
}

fn greedy_adam(storage: MomentStorage) -> AdamOptions {
    AdamOptions { gradient_floor: 0.1, storage, ..AdamOptions::default() }
}

fn greedy(t: &[Tensor<5>], measure: Measure, storage: MomentStorage) -> Tensor<5> {
    let affine = t[2].clone().reshape([1, 3, 4]);
    let (fixed, moving) = (t[0].clone(), t[1].clone());
    let images = DeformImages { fixed, moving, affine, masks: [None, None] };
    let [_, _, d, h, w] = t[0].dims();
    let field = Tensor::zeros([1, 3, d, h, w], &t[0].device());
    let state = DeformState { field, moments: Moments::default() };
    let optimizer = Optimizer::Adam(greedy_adam(storage));
    let options = DeformOptions { optimizer, ..DeformOptions::greedy(measure) };
    ops::deform(&images, vec![state], &options, STEPS).1.remove(0).field
}

/// The same from one op after the other, with autodiff, and LNCC.
fn greedy_composed(t: &[Tensor<5>]) -> Tensor<5> {
    let options = DeformOptions::greedy(Measure::Lncc(LnccOptions::default()));
    let [_, _, d, h, w] = t[0].dims();
    let mut field = Tensor::zeros([1, 3, d, h, w], &t[0].device());
    let mut moments = Moments::default();
    for _ in 0..STEPS {
        let tracked = field.clone().autodiff().require_grad();
        let [fixed, moving, affine] = [0, 1, 2].map(|i| t[i].clone().autodiff());
        let affine = Some(affine.reshape([1, 3, 4]));
        let sampling = GridSampleOptions::default();
        let moved = ops::grid_sample(moving, affine, Some(tracked.clone()), &sampling);
        let gradients = ops::lncc(moved, fixed, &LnccOptions::default()).backward();
        let gradient = tracked.grad(&gradients).expect("the loss depends on the field");
        let gradient = ops::gaussian(gradient, &options.smooth_gradient);
        let step = ops::adam(gradient, &mut moments, &greedy_adam(MomentStorage::Full));
        let length = step.longest.clamp_min(1.0).reshape([1, 1, 1, 1, 1]);
        let step = step.direction * length.recip().mul_scalar(-0.25);
        field = ops::gaussian(ops::compose(field, step), &options.smooth_field);
    }
    field
}

/// Ten steps each: divide by ten.
pub fn iterations() -> Vec<Case> {
    use MomentStorage::{Bf16, Full};
    let steps = STEPS as f64;
    // F, M, and u, m, v read and written.
    let (floor, inputs) =
        ([80.0 * steps; 2], vec![plain(Kind::Image), plain(Kind::Image), plain(Kind::Affine)]);
    vec![
        Case {
            name: "10 steps of adam",
            // g, m, v; m, v, d.
            floor: [72.0 * steps; 2],
            inputs: vec![plain(Kind::Field)],
            variants: vec![
                fused("fused", |t| adam_steps(t, Full, 0.1)),
                fused("fused, no floor", |t| adam_steps(t, Full, 0.0)),
                fused("fused, bf16", |t| adam_steps(t, Bf16, 0.1)),
            ],
        },
        Case {
            name: "10 greedy iterations, lncc w7",
            floor,
            inputs: inputs.clone(),
            variants: vec![
                fused("fused", |t| greedy(t, Measure::Lncc(LnccOptions::default()), Full)),
                fused("fused, bf16", |t| greedy(t, Measure::Lncc(LnccOptions::default()), Bf16)),
                fused("one op after the other", greedy_composed),
            ],
        },
        Case {
            name: "10 greedy iterations of f16",
            // F and M in half precision.
            floor: [76.0 * steps; 2],
            inputs: vec![plain(Kind::Half), plain(Kind::Half), plain(Kind::Affine)],
            variants: vec![
                fused("fused", |t| greedy(t, Measure::Lncc(LnccOptions::default()), Full)),
                fused("fused, bf16", |t| greedy(t, Measure::Lncc(LnccOptions::default()), Bf16)),
            ],
        },
        Case {
            name: "10 greedy iterations, mse",
            floor,
            inputs: inputs.clone(),
            variants: vec![fused("fused", |t| greedy(t, Measure::SquaredDifference, Full))],
        },
        Case {
            name: "10 greedy iterations, mi 32 bins",
            floor,
            inputs,
            variants: vec![fused("fused", |t| {
                greedy(t, Measure::MutualInformation(HistogramOptions::default()), Full)
            })],
        },
    ]
}
