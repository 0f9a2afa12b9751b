//! The chain rule of smoothing: a linear map, so nothing is saved.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{Direction, GaussianOps, GaussianOptions};
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct GaussianVjp;

impl<B: GaussianOps> Vjp<B, 1> for GaussianVjp {
    type Saved = (GaussianOptions, Direction);

    fn backward(
        (options, direction): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        let adjoint = match direction {
            Direction::Forward => Direction::Adjoint,
            Direction::Adjoint => Direction::Forward,
        };
        [Some(B::gaussian_3d(grad, options, adjoint))]
    }
}

impl<B: GaussianOps, C: CheckpointStrategy> GaussianOps for Autodiff<B, C> {
    fn gaussian_3d(
        x: FloatTensor<Self>,
        options: GaussianOptions,
        direction: Direction,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 1>(GaussianVjp, [x], |[x], _| {
            (B::gaussian_3d(x, options, direction), (options, direction))
        })
    }
}
