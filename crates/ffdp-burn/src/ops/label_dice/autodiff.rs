//! The chain rule of the label sums: inputs are saved, memberships are recomputed.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{FloatTensor, IntTensor};

use super::{LabelDiceOps, LabelTable};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct LabelSumsVjp;

impl<B: LabelDiceOps> Vjp<B, 1> for LabelSumsVjp {
    type Saved = (FloatTensor<B>, [IntTensor<B>; 2], LabelTable);

    fn backward(
        (displacement, [moving, fixed], table): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::label_sums_3d_backward(displacement, moving, fixed, grad, table))]
    }
}

impl<B: LabelDiceOps, C: CheckpointStrategy> LabelDiceOps for Autodiff<B, C> {
    fn label_sums_3d(
        displacement: FloatTensor<Self>,
        moving: IntTensor<Self>,
        fixed: IntTensor<Self>,
        table: LabelTable,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 1>(LabelSumsVjp, [displacement], |[displacement], _| {
            let labels = [moving.clone(), fixed.clone()];
            let saved = (displacement.clone(), labels, table.clone());
            (B::label_sums_3d(displacement, moving, fixed, table), saved)
        })
    }

    refuse_second_order! { "label_dice";
        fn label_sums_3d_backward(
            FloatTensor<Self>, IntTensor<Self>, IntTensor<Self>, FloatTensor<Self>, LabelTable,
        ) -> FloatTensor<Self>;
    }
}
