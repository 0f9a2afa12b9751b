//! No chain rule: iterations of an optimiser are not differentiated.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{DeformOps, DeformPlan, FieldStates};

impl<B: DeformOps, C: CheckpointStrategy> DeformOps for Autodiff<B, C> {
    fn deform_3d(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FieldStates<Self>,
        _: DeformPlan,
    ) -> (FloatTensor<Self>, FieldStates<Self>) {
        panic!("deform: iterations are not differentiable; take the images off the tape (`inner`)")
    }
}
