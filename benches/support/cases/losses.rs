//! Similarities of images and of label maps.

use burn::tensor::{Int, Tensor};
use ffdp::baseline::{self, BoxFilter};
use ffdp::losses::{MutualInformation, SimilarityLoss};
use ffdp::ops::GradientMode::{self, AntsApproximate, Exact};
use ffdp::ops::{
    self, HistogramMode, HistogramOptions, LabelDiceOptions, LnccOptions, ParzenKernel,
};

use super::super::inputs::{Kind, LABELS};
use super::case::{Case, burn, fused, plain, scalar, tracked};

fn window(window: usize, gradient: GradientMode) -> LnccOptions {
    LnccOptions { window, gradient, ..Default::default() }
}

fn lncc(t: &[Tensor<5>], width: usize, gradient: GradientMode) -> Tensor<5> {
    scalar(ops::lncc(t[0].clone(), t[1].clone(), &window(width, gradient)))
}

fn composed_lncc(t: &[Tensor<5>], width: usize, filter: BoxFilter) -> Tensor<5> {
    scalar(baseline::lncc(t[0].clone(), t[1].clone(), &window(width, Exact), filter))
}

fn mse(t: &[Tensor<5>]) -> Tensor<5> {
    scalar(ops::mse(t[0].clone(), t[1].clone()))
}

fn information(t: &[Tensor<5>], options: HistogramOptions) -> Tensor<5> {
    scalar(MutualInformation(options).loss(t[0].clone(), t[1].clone()))
}

/// The joint histogram alone, 32 bins.
pub fn table(t: &[Tensor<5>], kernel: ParzenKernel) -> Tensor<5> {
    let options = HistogramOptions { kernel, ..Default::default() };
    ops::joint_histogram(t[0].clone(), t[1].clone(), &options).reshape([1, 1, 1, 32, 32])
}

/// F, M; and dM in the same sweep, the upstream gradient being one number.
const FLOOR: [f64; 2] = [8.0, 12.0];

pub fn local_correlations() -> Vec<Case> {
    let inputs = vec![tracked(Kind::Image), plain(Kind::Image)];
    vec![
        Case {
            name: "lncc w7",
            floor: FLOOR,
            inputs: inputs.clone(),
            variants: vec![
                fused("fused", |t| lncc(t, 7, Exact)),
                fused("fused, ANTs gradient", |t| lncc(t, 7, AntsApproximate)),
                burn("burn separable", 80.0, |t| composed_lncc(t, 7, BoxFilter::Separable)),
                burn("burn conv3d", 60.0, |t| composed_lncc(t, 7, BoxFilter::Conv3d)),
            ],
        },
        Case {
            name: "lncc w9",
            floor: FLOOR,
            inputs,
            variants: vec![
                fused("fused", |t| lncc(t, 9, Exact)),
                burn("burn separable", 80.0, |t| composed_lncc(t, 9, BoxFilter::Separable)),
            ],
        },
    ]
}

pub fn of_intensities() -> Vec<Case> {
    let inputs = vec![tracked(Kind::Image), plain(Kind::Image)];
    vec![
        Case {
            name: "mi 32 bins",
            // F, M; then, the table being known, F, M, dM.
            floor: [8.0, 20.0],
            inputs: inputs.clone(),
            variants: vec![
                fused("fused", |t| information(t, HistogramOptions::default())),
                fused("fused, approximate", |t| {
                    let mode = HistogramMode::Approximate;
                    information(t, HistogramOptions { mode, ..Default::default() })
                }),
                fused("fused, single votes", |t| {
                    let kernel = ParzenKernel::Delta;
                    information(t, HistogramOptions { kernel, ..Default::default() })
                }),
                // Counted: 32 bins of 4 bytes in twenty tensors an image.
                burn("burn parzen", 5000.0, |t| {
                    let options = HistogramOptions::default();
                    scalar(baseline::mutual_information(t[0].clone(), t[1].clone(), &options))
                }),
            ],
        },
        Case {
            name: "joint histogram",
            floor: [8.0; 2],
            inputs: vec![plain(Kind::Image), plain(Kind::Image)],
            variants: vec![
                fused("fused", |t| table(t, ParzenKernel::Delta)),
                fused("fused, b-spline", |t| table(t, ParzenKernel::BSpline3)),
            ],
        },
        Case {
            name: "mse",
            floor: FLOOR,
            inputs,
            variants: vec![
                fused("fused", mse),
                burn("burn", 12.0, |t| scalar(baseline::mse(t[0].clone(), t[1].clone()))),
            ],
        },
    ]
}

/// Images stored as f16; everything else is f32.
pub fn halves() -> Vec<Case> {
    vec![
        Case {
            name: "warp of f16",
            // u, I, y; then u, I, g, du.
            floor: [18.0, 48.0],
            inputs: vec![plain(Kind::Half), tracked(Kind::Field)],
            variants: vec![fused("fused", |t| ops::warp(t[0].clone(), t[1].clone()))],
        },
        Case {
            name: "lncc w7, fixed f16",
            floor: [6.0, 10.0],
            inputs: vec![tracked(Kind::Image), plain(Kind::Half)],
            variants: vec![fused("fused", |t| lncc(t, 7, Exact))],
        },
        Case {
            name: "lncc w7 of f16",
            floor: [4.0; 2],
            inputs: vec![plain(Kind::Half), plain(Kind::Half)],
            variants: vec![fused("fused", |t| lncc(t, 7, Exact))],
        },
        Case {
            name: "mi 32 bins of f16",
            floor: [4.0; 2],
            inputs: vec![plain(Kind::Half), plain(Kind::Half)],
            variants: vec![fused("fused", |t| information(t, HistogramOptions::default()))],
        },
        Case {
            name: "joint histogram of f16",
            floor: [4.0; 2],
            inputs: vec![plain(Kind::Half), plain(Kind::Half)],
            variants: vec![fused("fused", |t| table(t, ParzenKernel::Delta))],
        },
        Case {
            name: "mse of f16",
            floor: [4.0; 2],
            inputs: vec![plain(Kind::Half), plain(Kind::Half)],
            variants: vec![fused("fused", mse)],
        },
    ]
}

/// How [`ops::label_dice`] and its baseline are called.
type LabelOp =
    fn(Tensor<5, Int>, Tensor<5, Int>, Tensor<5>, &[i32], &LabelDiceOptions) -> Tensor<2>;

/// The labels are made integers within the timed region: 16 bytes a voxel more.
fn dice(op: LabelOp, t: &[Tensor<5>]) -> Tensor<5> {
    let ids: Vec<i32> = (0..LABELS as i32).collect();
    let [moving, fixed] = [0, 1].map(|i: usize| t[i].clone().int());
    scalar(op(moving, fixed, t[2].clone(), &ids, &LabelDiceOptions::default()).mean())
}

pub fn labels() -> Case {
    Case {
        name: "label_dice, 36 labels",
        // Two label maps, u; then the same and du.
        floor: [20.0, 52.0],
        inputs: vec![plain(Kind::Labels), plain(Kind::Labels), tracked(Kind::Field)],
        variants: vec![
            fused("fused", |t| dice(ops::label_dice, t)),
            burn("burn one-hot", 1970.0, |t| dice(baseline::label_dice, t)),
        ],
    }
}
