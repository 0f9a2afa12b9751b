//! Finding coefficients is symmetric; sampling serves equations that have adjoints of their own.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{CubicOps, PeriodicInterpolation};
use ffdp_kit::refuse;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct CoefficientsVjp;

impl<B: CubicOps> Vjp<B, 1> for CoefficientsVjp {
    type Saved = [bool; 3];

    fn backward(
        axes: [bool; 3],
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::cubic_coefficients_3d(grad, axes))]
    }
}

impl<B: CubicOps, C: CheckpointStrategy> CubicOps for Autodiff<B, C> {
    fn cubic_coefficients_3d(volume: FloatTensor<Self>, axes: [bool; 3]) -> FloatTensor<Self> {
        record::<B, C, _, 1>(CoefficientsVjp, [volume], |[volume], _| {
            (B::cubic_coefficients_3d(volume, axes), axes)
        })
    }

    refuse! { "cubic_sample: not differentiable; detach its inputs";
        fn cubic_sample_3d(
            FloatTensor<Self>, FloatTensor<Self>, [usize; 3], PeriodicInterpolation
        ) -> FloatTensor<Self>;
    }
}
