//! The chain rule of composition: the fields are saved, everything else is recomputed.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::ComposeOps;
use crate::ops::grid_sample::Accumulation;
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct ComposeVjp;

impl<B: ComposeOps> Vjp<B, 2> for ComposeVjp {
    type Saved = ([FloatTensor<B>; 2], Accumulation);

    fn backward(
        ([outer, inner], accumulation): Self::Saved,
        grad: FloatTensor<B>,
        needs: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let (outer, inner) = B::compose_3d_backward(outer, inner, grad, needs, accumulation);
        [Some(outer), Some(inner)]
    }
}

#[derive(Clone, Copy, Debug)]
struct SquareVjp;

impl<B: ComposeOps> Vjp<B, 1> for SquareVjp {
    type Saved = (FloatTensor<B>, Accumulation);

    fn backward(
        (field, accumulation): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::square_3d_backward(field, grad, accumulation))]
    }
}

impl<B: ComposeOps, C: CheckpointStrategy> ComposeOps for Autodiff<B, C> {
    fn compose_3d(
        outer: FloatTensor<Self>,
        inner: FloatTensor<Self>,
        accumulation: Accumulation,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 2>(ComposeVjp, [outer, inner], |[outer, inner], _| {
            let saved = ([outer.clone(), inner.clone()], accumulation);
            (B::compose_3d(outer, inner, accumulation), saved)
        })
    }

    fn square_3d(field: FloatTensor<Self>, accumulation: Accumulation) -> FloatTensor<Self> {
        record::<B, C, _, 1>(SquareVjp, [field], |[field], _| {
            (B::square_3d(field.clone(), accumulation), (field, accumulation))
        })
    }

    refuse_second_order! { "compose";
        fn compose_3d_backward(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, [bool; 2], Accumulation,
        ) -> (FloatTensor<Self>, FloatTensor<Self>);
    }

    refuse_second_order! { "exp";
        fn square_3d_backward(
            FloatTensor<Self>, FloatTensor<Self>, Accumulation,
        ) -> FloatTensor<Self>;
    }
}
