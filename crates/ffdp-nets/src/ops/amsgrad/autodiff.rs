//! No chain rule: an optimiser's step is not differentiated.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{AmsGradConstants, AmsGradOps};
use ffdp_kit::refuse;

impl<B: AmsGradOps, C: CheckpointStrategy> AmsGradOps for Autodiff<B, C> {
    refuse! { "amsgrad: a step is not differentiable; take its tensors off the tape (`inner`)";
        fn amsgrad_step(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>,
            FloatTensor<Self>, AmsGradConstants,
        ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
    }
}
