//! The transpose of the gradient is minus the divergence, and the other way around.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::DifferencesOps;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct GradientVjp;

#[derive(Clone, Copy, Debug)]
struct DivergenceVjp;

impl<B: DifferencesOps> Vjp<B, 1> for GradientVjp {
    type Saved = [f64; 3];

    fn backward(
        voxel: [f64; 3],
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::float_neg(B::periodic_divergence_3d(grad, voxel)))]
    }
}

impl<B: DifferencesOps> Vjp<B, 1> for DivergenceVjp {
    type Saved = [f64; 3];

    fn backward(
        voxel: [f64; 3],
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::float_neg(B::periodic_gradient_3d(grad, voxel)))]
    }
}

impl<B: DifferencesOps, C: CheckpointStrategy> DifferencesOps for Autodiff<B, C> {
    fn periodic_gradient_3d(image: FloatTensor<Self>, voxel: [f64; 3]) -> FloatTensor<Self> {
        record::<B, C, _, 1>(GradientVjp, [image], |[image], _| {
            (B::periodic_gradient_3d(image, voxel), voxel)
        })
    }

    fn periodic_divergence_3d(field: FloatTensor<Self>, voxel: [f64; 3]) -> FloatTensor<Self> {
        record::<B, C, _, 1>(DivergenceVjp, [field], |[field], _| {
            (B::periodic_divergence_3d(field, voxel), voxel)
        })
    }
}
