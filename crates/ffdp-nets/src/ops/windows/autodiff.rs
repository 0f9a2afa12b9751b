//! The chain rules: each operation is the adjoint of the other.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{WindowCut, WindowOps};
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct CutVjp;

impl<B: WindowOps> Vjp<B, 1> for CutVjp {
    type Saved = WindowCut;

    fn backward(
        cut: Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::join_tokens(grad, cut))]
    }
}

#[derive(Clone, Copy, Debug)]
struct JoinVjp;

impl<B: WindowOps> Vjp<B, 1> for JoinVjp {
    type Saved = WindowCut;

    fn backward(
        cut: Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::cut_tokens(grad, cut))]
    }
}

impl<B: WindowOps, C: CheckpointStrategy> WindowOps for Autodiff<B, C> {
    fn cut_tokens(tokens: FloatTensor<Self>, cut: WindowCut) -> FloatTensor<Self> {
        record::<B, C, _, 1>(CutVjp, [tokens], |[tokens], _| (B::cut_tokens(tokens, cut), cut))
    }

    fn join_tokens(windows: FloatTensor<Self>, cut: WindowCut) -> FloatTensor<Self> {
        record::<B, C, _, 1>(JoinVjp, [windows], |[windows], _| (B::join_tokens(windows, cut), cut))
    }
}
