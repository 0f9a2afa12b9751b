//! No chain rule: an optimiser's step is not differentiated.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::part::AdamPartOps;
use super::{AdamConstants, AdamOps, StepRule};
use ffdp_kit::refuse;

impl<B: AdamOps, C: CheckpointStrategy> AdamOps for Autodiff<B, C> {
    refuse! { "adam: a step is not differentiable; take the gradient off the tape (`inner`)";
        fn adam_3d(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>,
            AdamConstants,
        ) -> (
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>,
            FloatTensor<Self>,
        );
    }
}

/// What is said of a piece of a step.
const PIECE: &str = "adam: a step is not differentiable; take its tensors off the tape (`inner`)";

impl<B: AdamPartOps, C: CheckpointStrategy> AdamPartOps for Autodiff<B, C> {
    refuse! { PIECE;
        fn adam_take_3d(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>,
            AdamConstants,
        ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
        fn adam_longest_3d(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, AdamConstants,
        ) -> FloatTensor<Self>;
        fn adam_power_3d(FloatTensor<Self>, FloatTensor<Self>, AdamConstants) -> FloatTensor<Self>;
        fn adam_advance_3d(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>,
            AdamConstants,
        ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
        fn adam_step_3d(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>,
            FloatTensor<Self>, AdamConstants, StepRule,
        ) -> FloatTensor<Self>;
    }
}
