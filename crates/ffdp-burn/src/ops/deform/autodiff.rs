//! No chain rule: iterations of an optimiser are not differentiated.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{DeformOps, DeformPlan, FieldStates};
use ffdp_kit::refuse;

impl<B: DeformOps, C: CheckpointStrategy> DeformOps for Autodiff<B, C> {
    refuse! { "deform: iterations are not differentiable; take the images off the tape (`inner`)";
        fn deform_3d(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>,
            FloatTensor<Self>, FieldStates<Self>, DeformPlan,
        ) -> (FloatTensor<Self>, FieldStates<Self>);
    }
}
