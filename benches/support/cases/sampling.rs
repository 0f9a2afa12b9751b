//! Warps by fields and by affine maps.

use burn::tensor::Tensor;
use ffdp::baseline;
use ffdp::ops::{self, Accumulation, GridSampleOptions};

use super::super::inputs::Kind;
use super::case::{Case, burn, fused, plain, tracked};

fn with_map(t: &[Tensor<5>]) -> (Tensor<5>, Option<Tensor<3>>, GridSampleOptions) {
    (t[0].clone(), Some(t[1].clone().reshape([1, 3, 4])), GridSampleOptions::default())
}

pub fn sampling() -> Vec<Case> {
    vec![
        Case {
            name: "warp, gradient to the field",
            // u, I, y; then u, I, g, du.
            floor: [20.0, 52.0],
            inputs: vec![plain(Kind::Image), tracked(Kind::Field)],
            variants: vec![
                fused("fused", |t| ops::warp(t[0].clone(), t[1].clone())),
                burn("burn", 130.0, |t| baseline::warp(t[0].clone(), t[1].clone())),
            ],
        },
        Case {
            name: "warp by a smooth field",
            floor: [20.0, 52.0],
            inputs: vec![plain(Kind::Image), tracked(Kind::Smooth)],
            variants: vec![fused("fused", |t| ops::warp(t[0].clone(), t[1].clone()))],
        },
        Case {
            name: "warp, gradient to both",
            // As above, and dI.
            floor: [20.0, 56.0],
            inputs: vec![tracked(Kind::Image), tracked(Kind::Field)],
            variants: vec![
                fused("fused", |t| ops::warp(t[0].clone(), t[1].clone())),
                fused("fused, reproducible", |t| {
                    let accumulation = Accumulation::Reproducible;
                    let options = GridSampleOptions { accumulation, ..Default::default() };
                    ops::grid_sample(t[0].clone(), None, Some(t[1].clone()), &options)
                }),
                burn("burn", 190.0, |t| baseline::warp(t[0].clone(), t[1].clone())),
            ],
        },
        Case {
            name: "affine, gradient to the map",
            // I, y; then I, g.
            floor: [8.0, 16.0],
            inputs: vec![plain(Kind::Image), tracked(Kind::Affine)],
            variants: vec![
                fused("fused", |t| {
                    let (image, map, options) = with_map(t);
                    ops::grid_sample(image, map, None, &options)
                }),
                burn("burn", 130.0, |t| {
                    let (image, map, options) = with_map(t);
                    baseline::grid_sample(image, map, None, &options)
                }),
            ],
        },
    ]
}
