//! No chain rule: an optimiser's step is not differentiated.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{AmsGradConstants, AmsGradOps};

impl<B: AmsGradOps, C: CheckpointStrategy> AmsGradOps for Autodiff<B, C> {
    fn amsgrad_step(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: AmsGradConstants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        panic!("amsgrad: a step is not differentiable; take its tensors off the tape (`inner`)")
    }
}
