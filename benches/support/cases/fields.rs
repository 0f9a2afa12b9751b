//! Fields: composed, smoothed, and how rough they are.

use burn::tensor::Tensor;
use ffdp::baseline;
use ffdp::ops::{self, Accumulation, ComposeOptions, GaussianOptions};

use super::super::inputs::Kind;
use super::case::{Case, burn, fused, scalar, tracked};

pub fn fields() -> Vec<Case> {
    vec![
        Case {
            name: "compose",
            // u, v, w; then u, v, g, du, dv.
            floor: [36.0, 96.0],
            inputs: vec![tracked(Kind::Field), tracked(Kind::Field)],
            variants: vec![
                fused("fused", |t| ops::compose(t[0].clone(), t[1].clone())),
                fused("fused, reproducible", |t| {
                    let options = ComposeOptions { accumulation: Accumulation::Reproducible };
                    ops::compose_with(t[0].clone(), t[1].clone(), &options)
                }),
                burn("burn", 290.0, |t| baseline::compose(t[0].clone(), t[1].clone())),
            ],
        },
        Case {
            name: "compose of smooth fields",
            floor: [36.0, 96.0],
            inputs: vec![tracked(Kind::Smooth), tracked(Kind::Smooth)],
            variants: vec![fused("fused", |t| ops::compose(t[0].clone(), t[1].clone()))],
        },
        Case {
            name: "exp, 7 squarings",
            // Seven times u, w; then u, g, du.
            floor: [7.0 * 24.0, 7.0 * (24.0 + 36.0)],
            inputs: vec![tracked(Kind::Field)],
            variants: vec![
                fused("fused", |t| ops::exp(t[0].clone(), 7)),
                burn("burn", 1630.0, |t| baseline::exp(t[0].clone(), 7)),
            ],
        },
        smoothing("gaussian of a field, sigma 0.5", |t| smooth(t, 0.5), |t| separable(t, 0.5)),
        smoothing("gaussian of a field, sigma 1", |t| smooth(t, 1.0), |t| separable(t, 1.0)),
        smoothing("gaussian of a field, sigma 2", |t| smooth(t, 2.0), |t| separable(t, 2.0)),
    ]
}

fn smooth(t: &[Tensor<5>], sigma: f64) -> Tensor<5> {
    ops::gaussian(t[0].clone(), &GaussianOptions::isotropic(sigma))
}

fn separable(t: &[Tensor<5>], sigma: f64) -> Tensor<5> {
    baseline::gaussian(t[0].clone(), &GaussianOptions::isotropic(sigma))
}

fn smoothing(
    name: &'static str,
    ours: fn(&[Tensor<5>]) -> Tensor<5>,
    theirs: fn(&[Tensor<5>]) -> Tensor<5>,
) -> Case {
    Case {
        name,
        // x, y; then g, dx.
        floor: [24.0, 48.0],
        inputs: vec![tracked(Kind::Field)],
        variants: vec![fused("fused", ours), burn("burn separable", 120.0, theirs)],
    }
}

pub fn regularisers() -> Vec<Case> {
    // u; then u, du.
    let floor = [12.0, 36.0];
    let inputs = vec![tracked(Kind::Field)];
    vec![
        Case {
            name: "diffusion",
            floor,
            inputs: inputs.clone(),
            variants: vec![
                fused("fused", |t| scalar(ops::diffusion(t[0].clone()))),
                burn("burn", 95.0, |t| scalar(baseline::diffusion(t[0].clone()))),
            ],
        },
        Case {
            name: "bending energy",
            floor,
            inputs: inputs.clone(),
            variants: vec![
                fused("fused", |t| scalar(ops::bending_energy(t[0].clone()))),
                burn("burn", 170.0, |t| scalar(baseline::bending_energy(t[0].clone()))),
            ],
        },
        Case {
            name: "total variation",
            floor,
            inputs: inputs.clone(),
            variants: vec![
                fused("fused", |t| scalar(ops::total_variation(t[0].clone(), 1e-3))),
                burn("burn", 100.0, |t| scalar(baseline::total_variation(t[0].clone(), 1e-3))),
            ],
        },
        Case {
            name: "jacobian penalty",
            floor,
            inputs,
            variants: vec![
                fused("fused", |t| scalar(ops::jacobian_penalty(t[0].clone(), 0.1))),
                burn("burn", 100.0, |t| scalar(baseline::jacobian_penalty(t[0].clone(), 0.1))),
            ],
        },
    ]
}
