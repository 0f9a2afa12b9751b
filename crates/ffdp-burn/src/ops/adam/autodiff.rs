//! No chain rule: an optimiser's step is not differentiated.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{AdamConstants, AdamOps};

impl<B: AdamOps, C: CheckpointStrategy> AdamOps for Autodiff<B, C> {
    fn adam_3d(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: AdamConstants,
    ) -> (
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
    ) {
        panic!("adam: a step is not differentiable; take the gradient off the tape (`inner`)")
    }
}
