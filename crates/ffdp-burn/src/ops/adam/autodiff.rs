//! No chain rule: an optimiser's step is not differentiated.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::part::AdamPartOps;
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

/// What is said of a piece of a step.
const PIECE: &str = "adam: a step is not differentiable; take its tensors off the tape (`inner`)";

impl<B: AdamPartOps, C: CheckpointStrategy> AdamPartOps for Autodiff<B, C> {
    fn adam_take_3d(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: AdamConstants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        panic!("{PIECE}")
    }

    fn adam_longest_3d(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: AdamConstants,
    ) -> FloatTensor<Self> {
        panic!("{PIECE}")
    }

    fn adam_power_3d(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: AdamConstants,
    ) -> FloatTensor<Self> {
        panic!("{PIECE}")
    }

    fn adam_advance_3d(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: AdamConstants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        panic!("{PIECE}")
    }

    fn adam_compose_3d(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: AdamConstants,
        _: [f64; 3],
    ) -> FloatTensor<Self> {
        panic!("{PIECE}")
    }
}
