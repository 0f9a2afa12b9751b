//! The chain rule of composition: the fields are saved, everything else is recomputed.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::ComposeOps;
use crate::ops::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct ComposeVjp;

impl<B: ComposeOps> Vjp<B, 2> for ComposeVjp {
    type Saved = [FloatTensor<B>; 2];

    fn backward(
        [outer, inner]: Self::Saved,
        grad: FloatTensor<B>,
        needs: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let (outer, inner) = B::compose_3d_backward(outer, inner, grad, needs);
        [Some(outer), Some(inner)]
    }
}

impl<B: ComposeOps, C: CheckpointStrategy> ComposeOps for Autodiff<B, C> {
    fn compose_3d(outer: FloatTensor<Self>, inner: FloatTensor<Self>) -> FloatTensor<Self> {
        record::<B, C, _, 2>(ComposeVjp, [outer, inner], |[outer, inner], _| {
            (B::compose_3d(outer.clone(), inner.clone()), [outer, inner])
        })
    }

    fn compose_3d_backward(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        panic!("compose: second-order gradients are not supported")
    }
}
