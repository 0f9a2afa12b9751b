//! Descriptors, and the discrete search that they are made for.

use ffdp::losses::{Mind, SimilarityLoss};
use ffdp::ops::{self, MindOptions, VarianceBounds};

use super::super::inputs::Kind;
use super::case::{Case, fused, plain, scalar, tracked};

pub fn features() -> Vec<Case> {
    vec![
        Case {
            name: "mind",
            // I, the twelve channels; then the same, g and dI.
            floor: [52.0, 108.0],
            inputs: vec![tracked(Kind::Image)],
            variants: vec![
                fused("fused", |t| ops::mind(t[0].clone(), &MindOptions::default())),
                fused("fused, fixed bounds", |t| ops::mind(t[0].clone(), &fixed_bounds())),
            ],
        },
        Case {
            name: "mind as a loss",
            floor: [8.0, 12.0],
            inputs: vec![tracked(Kind::Image), plain(Kind::Image)],
            variants: vec![fused("fused", |t| {
                scalar(Mind::default().loss(t[0].clone(), t[1].clone()))
            })],
        },
        Case {
            name: "normalised gradient",
            // I, n; then I, g, dI.
            floor: [16.0, 36.0],
            inputs: vec![tracked(Kind::Image)],
            variants: vec![fused("fused", |t| {
                ops::normalized_gradient(t[0].clone(), [1.0; 3], 0.02)
            })],
        },
        Case {
            name: "discrete search, spacing 6, radius 4",
            // F, M; and the costs of both directions, written and read for each theta and once before.
            floor: [8.0 + 2.0 * 8.0 * 4.0 * 729.0 / 216.0; 2],
            inputs: vec![plain(Kind::Image), plain(Kind::Image)],
            variants: vec![fused("fused", |t| {
                ops::discrete(t[0].clone(), t[1].clone(), &Default::default()).forward
            })],
        },
    ]
}

fn fixed_bounds() -> MindOptions {
    let bounds = VarianceBounds::Fixed { low: 1e-5, high: 1.0 };
    MindOptions { bounds, ..MindOptions::default() }
}
