//! No chain rule: an inverse is a result, not a step of an optimisation.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::InverseOps;

impl<B: InverseOps, C: CheckpointStrategy> InverseOps for Autodiff<B, C> {
    fn inverse_3d(_: FloatTensor<Self>, _: FloatTensor<Self>, _: bool) -> FloatTensor<Self> {
        panic!("inverse: not differentiable; take the displacement off the tape (`inner`)")
    }
}
