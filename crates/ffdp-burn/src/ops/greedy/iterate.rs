//! The method, once for every backend.

use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
#[cfg(feature = "cube")]
use burn_cubecl::CubeBackend;

use super::compare::{Comparing, compare};
use super::{GreedyOps, GreedyOptions, GreedyPlan};
use crate::ops::adam::{AdamConstants, AdamPieces, Taken};
use crate::ops::gaussian::{Direction, GaussianOps, GaussianOptions};
use crate::ops::grid_sample::GridSampleOps;

/// The displacement and the moments of its gradient.
struct State<B: AdamPieces> {
    displacement: FloatTensor<B>,
    mean: FloatTensor<B>,
    square: FloatTensor<B>,
    power: FloatTensor<B>,
}

/// The smoothed tensor.
fn smooth<B: GaussianOps>(x: FloatTensor<B>, options: &GaussianOptions) -> FloatTensor<B> {
    match options.sigma_voxels {
        [0.0, 0.0, 0.0] => x,
        _ => B::gaussian_3d(x, *options, Direction::Forward),
    }
}

/// One iteration after `seen` others; returns the measure before it, `[1]`.
fn step<B: GridSampleOps + Comparing + GaussianOps + AdamPieces>(
    [fixed, moving, affine]: [&FloatTensor<B>; 3],
    state: State<B>,
    plan: &GreedyPlan,
    seen: i32,
) -> (FloatTensor<B>, State<B>) {
    let GreedyOptions { measure, step_voxels, smooth_gradient, smooth_warp, .. } = &plan.options;
    let State { displacement, mean, square, power } = state;
    let (moving, affine, sampling) = (moving.clone(), affine.clone(), plan.sampling);

    let moved = B::grid_sample_3d(moving.clone(), affine.clone(), displacement.clone(), sampling);
    let (value, gradient) = compare::<B>(moved, fixed.clone(), measure);
    let wanted = [false, false, true];
    let (_, _, gradient) = B::grid_sample_3d_backward(
        moving,
        affine,
        displacement.clone(),
        gradient,
        sampling,
        wanted,
    );
    let gradient = smooth::<B>(gradient, smooth_gradient);

    let constants = AdamConstants::new(&plan.options.adam, seen + 1);
    let taken = B::take_gradient(gradient, mean, square, power, constants);
    let rate = step_voxels.map(|step| measure.sign() * step);
    let displacement = B::compose_step(displacement, &taken, constants, rate);
    let displacement = smooth::<B>(displacement, smooth_warp);
    let Taken { mean, square, power, .. } = taken;
    (value, State { displacement, mean, square, power })
}

/// All iterations of a plan: the measures, the displacement, and the moments.
#[allow(clippy::type_complexity)] // As the backend operation has it.
fn iterate<B: GridSampleOps + Comparing + GaussianOps + AdamPieces>(
    images: [&FloatTensor<B>; 3],
    mut state: State<B>,
    plan: &GreedyPlan,
) -> (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) {
    let mut values = Vec::with_capacity(plan.iterations);
    for seen in (plan.seen..).take(plan.iterations) {
        let (value, next) = step::<B>(images, state, plan, seen);
        values.push(value);
        state = next;
    }
    let State { displacement, mean, square, power } = state;
    (B::float_cat(values, 0), displacement, mean, square, power)
}

/// The same lines for each backend: the trait cannot have a default body, because Burn's own
/// backends do not know our operations.
macro_rules! implement {
    ($backend:ty) => {
        impl GreedyOps for $backend {
            fn greedy_3d(
                fixed: FloatTensor<Self>,
                moving: FloatTensor<Self>,
                affine: FloatTensor<Self>,
                displacement: FloatTensor<Self>,
                mean: FloatTensor<Self>,
                square: FloatTensor<Self>,
                power: FloatTensor<Self>,
                plan: GreedyPlan,
            ) -> (
                FloatTensor<Self>,
                FloatTensor<Self>,
                FloatTensor<Self>,
                FloatTensor<Self>,
                FloatTensor<Self>,
            ) {
                let state = State { displacement, mean, square, power };
                iterate::<Self>([&fixed, &moving, &affine], state, &plan)
            }
        }
    };
}

implement!(Flex);
#[cfg(feature = "cube")]
implement!(CubeBackend);
