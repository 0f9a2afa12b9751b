//! No chain rule: iterations of an optimiser are not differentiated.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{GreedyOps, GreedyPlan};

impl<B: GreedyOps, C: CheckpointStrategy> GreedyOps for Autodiff<B, C> {
    fn greedy_3d(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: GreedyPlan,
    ) -> (
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
    ) {
        panic!("greedy: iterations are not differentiable; take the images off the tape (`inner`)")
    }
}
