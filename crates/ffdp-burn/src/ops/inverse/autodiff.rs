//! No chain rule: an inverse is a result, not a step of an optimisation.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::InverseOps;
use ffdp_kit::refuse;

impl<B: InverseOps, C: CheckpointStrategy> InverseOps for Autodiff<B, C> {
    refuse! { "inverse: not differentiable; take the displacement off the tape (`inner`)";
        fn inverse_3d(FloatTensor<Self>, FloatTensor<Self>, bool) -> FloatTensor<Self>;
    }
}
