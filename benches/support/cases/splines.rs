//! Cubic B-splines on control points 5 voxels apart along each axis. The inputs are the points and an image, which
//! says how large the volume is.

use burn::tensor::Tensor;
use ffdp::ops::{self, ControlGrid, HistogramOptions, ParzenKernel};

use super::super::inputs::{Kind, control_grid};
use super::case::{Case, fused, plain, scalar, tracked};
use super::losses::table;

fn grid(t: &[Tensor<5>]) -> ControlGrid {
    let [.., size] = t[1].dims();
    control_grid(size).0
}

fn field(t: &[Tensor<5>]) -> Tensor<5> {
    let [.., size] = t[1].dims();
    ops::bspline(t[0].clone(), &grid(t), [size; 3])
}

pub fn control_points() -> Vec<Case> {
    let inputs = vec![tracked(Kind::Controls), plain(Kind::Image)];
    vec![
        Case {
            name: "field of control points",
            // u; then g. The points are a hundredth of that.
            floor: [12.0, 24.0],
            inputs: inputs.clone(),
            variants: vec![fused("fused", field)],
        },
        Case {
            name: "subdivision of control points",
            floor: [1.0, 2.0],
            inputs: inputs.clone(),
            variants: vec![fused("fused", |t| ops::subdivide(t[0].clone(), &grid(t), [2; 3]).0)],
        },
        Case {
            name: "bending of control points",
            floor: [0.1, 0.2],
            inputs: inputs.clone(),
            variants: vec![fused("fused", |t| {
                scalar(ops::bspline_bending(t[0].clone(), &grid(t), [1.0; 3]))
            })],
        },
        Case {
            name: "volume of control points",
            floor: [0.1, 0.2],
            inputs,
            variants: vec![fused("fused", |t| {
                let least = ops::LEAST_DETERMINANT;
                scalar(ops::bspline_volume(t[0].clone(), &grid(t), [1.0; 3], least))
            })],
        },
    ]
}

fn whole_votes(counting: ops::Counting) -> ops::VotesOptions {
    let histogram =
        HistogramOptions { bins: 256, kernel: ParzenKernel::Delta, ..Default::default() };
    ops::VotesOptions { histogram, counting, ..Default::default() }
}

/// Of control points, a fixed and a moving image.
fn deformed_votes(t: &[Tensor<5>], options: ops::VotesOptions) -> Tensor<5> {
    let map = [1f32, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    let affine = Tensor::<1>::from_floats(map, &t[0].device()).reshape([1, 3, 4]);
    let images = ops::VotesImages { fixed: t[1].clone(), moving: t[2].clone(), affine };
    let bins = options.histogram.bins;
    let votes = ops::bspline_votes(&images, t[0].clone(), &grid(t), &options);
    votes.reshape([1, 1, 1, bins, bins])
}

/// The joint histogram of a fixed image and one that control points deform.
pub fn votes() -> Vec<Case> {
    vec![
        Case {
            name: "votes of a deformed image, 32 bins",
            // F, M; then F, M, du and du once more for its pull-back.
            floor: [8.0, 40.0],
            inputs: vec![tracked(Kind::Controls), plain(Kind::Image), plain(Kind::Image)],
            variants: vec![
                fused("fused", |t| deformed_votes(t, ops::VotesOptions::default())),
                fused("one op after the other", |t| {
                    let moved = ops::warp(t[2].clone(), field(t));
                    table(&[moved, t[1].clone()], ParzenKernel::BSpline3)
                }),
            ],
        },
        Case {
            name: "votes of a deformed image, 256 whole bins",
            floor: [8.0; 2],
            inputs: vec![plain(Kind::Controls), plain(Kind::Image), plain(Kind::Image)],
            variants: vec![
                fused("fused", |t| deformed_votes(t, whole_votes(ops::Counting::Automatic))),
                fused("fused, a band of 177", |t| {
                    deformed_votes(t, whole_votes(ops::Counting::Band(177)))
                }),
                fused("fused, global", |t| deformed_votes(t, whole_votes(ops::Counting::Global))),
            ],
        },
    ]
}
