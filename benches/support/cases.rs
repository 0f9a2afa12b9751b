//! What is measured: every operation with its inputs, its floor in bytes and its variants.

use burn::tensor::{Device, Int, Tensor};
use ffdp::baseline::{self, BoxFilter};
use ffdp::losses::{Mind, MutualInformation, SimilarityLoss};
use ffdp::ops::{
    self, Accumulation, AdamOptions, ComposeOptions, DeformImages, DeformOptions, DeformState,
    GaussianOptions, GradientMode, GridSampleOptions, HistogramMode, HistogramOptions,
    LabelDiceOptions, LnccOptions, Measure, MindOptions, MomentStorage, Moments, Optimizer,
    ParzenKernel, VarianceBounds,
};

use super::inputs::{Input, Kind, LABELS, control_grid};

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The value alone, without autodiff.
    Forward,
    /// The value and the gradients of the tracked inputs, the upstream gradient being ones.
    Both,
}

/// One way to compute an operation.
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// Whether it is ours.
    pub fused: bool,
    /// Memory beyond the inputs with both passes, bytes a voxel, as measured on the CPU: what a
    /// baseline is skipped by when it would not fit.
    pub stored: f64,
    /// The operation.
    pub run: fn(&[Tensor<5>]) -> Tensor<5>,
}

/// An operation.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// The fewest bytes a voxel that it must move: forward, and forward with backward.
    pub floor: [f64; 2],
    inputs: Vec<Input>,
    /// Ours first.
    pub variants: Vec<Variant>,
}

impl Case {
    /// What is timed of it; an optimiser's step has no gradient.
    pub fn passes(&self) -> &'static [Pass] {
        match self.inputs.iter().any(|input| input.tracked) {
            true => &[Pass::Forward, Pass::Both],
            false => &[Pass::Forward],
        }
    }

    /// The inputs for a pass, on `device` without autodiff.
    pub fn inputs(&self, size: usize, device: &Device, pass: Pass) -> Vec<Tensor<5>> {
        let prepare = |input: &Input| {
            let tensor = input.kind.tensor(size, device);
            match (pass, input.tracked) {
                (Pass::Forward, _) => tensor,
                (Pass::Both, true) => tensor.autodiff().require_grad(),
                (Pass::Both, false) => tensor.autodiff(),
            }
        };
        self.inputs.iter().map(prepare).collect()
    }
}

const fn tracked(kind: Kind) -> Input {
    Input { kind, tracked: true }
}

const fn plain(kind: Kind) -> Input {
    Input { kind, tracked: false }
}

fn fused(name: &'static str, run: fn(&[Tensor<5>]) -> Tensor<5>) -> Variant {
    Variant { name, fused: true, stored: 0.0, run }
}

fn burn(name: &'static str, stored: f64, run: fn(&[Tensor<5>]) -> Tensor<5>) -> Variant {
    Variant { name, fused: false, stored, run }
}

fn scalar(loss: Tensor<1>) -> Tensor<5> {
    loss.reshape([1, 1, 1, 1, 1])
}

fn window(window: usize, gradient: GradientMode) -> LnccOptions {
    LnccOptions { window, gradient, ..Default::default() }
}

fn information(t: &[Tensor<5>], options: HistogramOptions) -> Tensor<5> {
    scalar(MutualInformation(options).loss(t[0].clone(), t[1].clone()))
}

/// The joint histogram alone, 32 bins.
fn table(t: &[Tensor<5>], kernel: ParzenKernel) -> Tensor<5> {
    let options = HistogramOptions { kernel, ..Default::default() };
    ops::joint_histogram(t[0].clone(), t[1].clone(), &options).reshape([1, 1, 1, 32, 32])
}

fn with_map(t: &[Tensor<5>]) -> (Tensor<5>, Option<Tensor<3>>, GridSampleOptions) {
    (t[0].clone(), Some(t[1].clone().reshape([1, 3, 4])), GridSampleOptions::default())
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

/// All operations. Floors count every operand once in f32: images 4 bytes a voxel, fields 12.
pub fn cases() -> Vec<Case> {
    let mut cases = sampling();
    cases.extend(fields());
    cases.extend(control_points());
    cases.extend(losses());
    cases.extend(halves());
    cases.push(labels());
    cases.extend(features());
    cases.extend(regularisers());
    cases.extend(periodic());
    cases.extend(iterations());
    cases
}

fn sampling() -> Vec<Case> {
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

fn fields() -> Vec<Case> {
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

fn whole_votes(counting: ops::Counting) -> ops::VotesOptions {
    let histogram =
        HistogramOptions { bins: 256, kernel: ParzenKernel::Delta, ..Default::default() };
    ops::VotesOptions { histogram, counting, ..Default::default() }
}

/// Of control points, a fixed and a moving image.
fn deformed_votes(t: &[Tensor<5>], options: ops::VotesOptions) -> Tensor<5> {
    let [.., size] = t[1].dims();
    let map = [1f32, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    let affine = Tensor::<1>::from_floats(map, &t[0].device()).reshape([1, 3, 4]);
    let images = ops::VotesImages { fixed: t[1].clone(), moving: t[2].clone(), affine };
    let bins = options.histogram.bins;
    let votes = ops::bspline_votes(&images, t[0].clone(), &control_grid(size).0, &options);
    votes.reshape([1, 1, 1, bins, bins])
}

/// Cubic B-splines on control points 5 voxels apart along each axis; the inputs are the points and an image, which
/// says how large the volume is.
fn control_points() -> Vec<Case> {
    let inputs = vec![tracked(Kind::Controls), plain(Kind::Image)];
    vec![
        Case {
            name: "field of control points",
            // u; then g. The points are a hundredth of that.
            floor: [12.0, 24.0],
            inputs: inputs.clone(),
            variants: vec![fused("fused", |t| {
                let [.., size] = t[1].dims();
                ops::bspline(t[0].clone(), &control_grid(size).0, [size; 3])
            })],
        },
        Case {
            name: "subdivision of control points",
            floor: [1.0, 2.0],
            inputs: inputs.clone(),
            variants: vec![fused("fused", |t| {
                let [.., size] = t[1].dims();
                ops::subdivide(t[0].clone(), &control_grid(size).0, [2; 3]).0
            })],
        },
        Case {
            name: "votes of a deformed image, 32 bins",
            // F, M; then F, M, du and du once more for its pull-back.
            floor: [8.0, 40.0],
            inputs: vec![tracked(Kind::Controls), plain(Kind::Image), plain(Kind::Image)],
            variants: vec![
                fused("fused", |t| deformed_votes(t, ops::VotesOptions::default())),
                fused("one op after the other", |t| {
                    let [.., size] = t[1].dims();
                    let field = ops::bspline(t[0].clone(), &control_grid(size).0, [size; 3]);
                    let moved = ops::warp(t[2].clone(), field);
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
        Case {
            name: "bending of control points",
            floor: [0.1, 0.2],
            inputs: inputs.clone(),
            variants: vec![fused("fused", |t| {
                let [.., size] = t[1].dims();
                scalar(ops::bspline_bending(t[0].clone(), &control_grid(size).0, [1.0; 3]))
            })],
        },
        Case {
            name: "volume of control points",
            floor: [0.1, 0.2],
            inputs,
            variants: vec![fused("fused", |t| {
                let [.., size] = t[1].dims();
                let grid = control_grid(size).0;
                scalar(ops::bspline_volume(t[0].clone(), &grid, [1.0; 3], ops::LEAST_DETERMINANT))
            })],
        },
    ]
}

fn losses() -> Vec<Case> {
    // F, M; and dM in the same sweep, the upstream gradient being one number.
    let floor = [8.0, 12.0];
    let inputs = vec![tracked(Kind::Image), plain(Kind::Image)];
    vec![
        Case {
            name: "lncc w7",
            floor,
            inputs: inputs.clone(),
            variants: vec![
                fused("fused", |t| {
                    let options = window(7, GradientMode::Exact);
                    scalar(ops::lncc(t[0].clone(), t[1].clone(), &options))
                }),
                fused("fused, ANTs gradient", |t| {
                    let options = window(7, GradientMode::AntsApproximate);
                    scalar(ops::lncc(t[0].clone(), t[1].clone(), &options))
                }),
                burn("burn separable", 80.0, |t| {
                    let options = window(7, GradientMode::Exact);
                    let (moved, fixed) = (t[0].clone(), t[1].clone());
                    scalar(baseline::lncc(moved, fixed, &options, BoxFilter::Separable))
                }),
                burn("burn conv3d", 60.0, |t| {
                    let options = window(7, GradientMode::Exact);
                    let (moved, fixed) = (t[0].clone(), t[1].clone());
                    scalar(baseline::lncc(moved, fixed, &options, BoxFilter::Conv3d))
                }),
            ],
        },
        Case {
            name: "lncc w9",
            floor,
            inputs: inputs.clone(),
            variants: vec![
                fused("fused", |t| {
                    let options = window(9, GradientMode::Exact);
                    scalar(ops::lncc(t[0].clone(), t[1].clone(), &options))
                }),
                burn("burn separable", 80.0, |t| {
                    let options = window(9, GradientMode::Exact);
                    let (moved, fixed) = (t[0].clone(), t[1].clone());
                    scalar(baseline::lncc(moved, fixed, &options, BoxFilter::Separable))
                }),
            ],
        },
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
            floor,
            inputs,
            variants: vec![
                fused("fused", |t| scalar(ops::mse(t[0].clone(), t[1].clone()))),
                burn("burn", 12.0, |t| scalar(baseline::mse(t[0].clone(), t[1].clone()))),
            ],
        },
    ]
}

/// Images stored as f16; everything else is f32.
fn halves() -> Vec<Case> {
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
            variants: vec![fused("fused", |t| {
                let options = window(7, GradientMode::Exact);
                scalar(ops::lncc(t[0].clone(), t[1].clone(), &options))
            })],
        },
        Case {
            name: "lncc w7 of f16",
            floor: [4.0; 2],
            inputs: vec![plain(Kind::Half), plain(Kind::Half)],
            variants: vec![fused("fused", |t| {
                let options = window(7, GradientMode::Exact);
                scalar(ops::lncc(t[0].clone(), t[1].clone(), &options))
            })],
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
            variants: vec![fused("fused", |t| scalar(ops::mse(t[0].clone(), t[1].clone())))],
        },
    ]
}

fn labels() -> Case {
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

/// Descriptors, and the discrete search that they are made for.
fn features() -> Vec<Case> {
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

/// What Gauss-Newton-Krylov registration is made of, on periodic volumes.
fn periodic() -> Vec<Case> {
    let case = |name, bytes, inputs, run| Case {
        name,
        floor: [bytes; 2],
        inputs,
        variants: vec![fused("fused", run)],
    };
    let inverse = |t: &[Tensor<5>]| {
        let symbol = ops::Symbol::InverseRegularizer { beta: 1e-2, gamma: 1e-4 };
        ops::spectral(t[0].clone(), symbol, [1.0; 3])
    };
    // The linear sampling of the same field, which cubic sampling is held against.
    let linear = |t: &[Tensor<5>]| ops::warp(t[0].clone(), t[1].clone());
    let cubic = |t: &[Tensor<5>]| ops::cubic_sample(t[0].clone(), t[1].clone());
    vec![
        case("periodic fft and back", 8.0, vec![plain(Kind::Image)], |t| {
            let width = t[0].dims()[4];
            ops::inverse_fft(ops::fft(t[0].clone()), width)
        }),
        case("periodic inverse regulariser", 24.0, vec![plain(Kind::Field)], inverse),
        case("periodic gradient of order 8", 16.0, vec![plain(Kind::Image)], |t| {
            ops::periodic_gradient(t[0].clone(), [1.0; 3])
        }),
        case("periodic divergence of order 8", 16.0, vec![plain(Kind::Field)], |t| {
            ops::periodic_divergence(t[0].clone(), [1.0; 3])
        }),
        case("periodic cubic coefficients", 8.0, vec![plain(Kind::Image)], |t| {
            ops::cubic_coefficients(t[0].clone())
        }),
        case("periodic cubic sampling", 20.0, vec![plain(Kind::Image), plain(Kind::Smooth)], cubic),
        case(
            "periodic cubic sampling, field",
            36.0,
            vec![plain(Kind::Field), plain(Kind::Smooth)],
            cubic,
        ),
        case(
            "periodic (linear) sampling, field",
            36.0,
            vec![plain(Kind::Field), plain(Kind::Smooth)],
            linear,
        ),
    ]
}

fn regularisers() -> Vec<Case> {
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
fn iterations() -> Vec<Case> {
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
