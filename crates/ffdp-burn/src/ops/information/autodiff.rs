//! The chain rule of the loss of a joint table: the table is saved, the rest is recomputed.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{Information, InformationOps};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct InformationVjp;

impl<B: InformationOps> Vjp<B, 1> for InformationVjp {
    type Saved = (FloatTensor<B>, Information);

    fn backward(
        (votes, measure): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::information_loss_backward(votes, grad, measure))]
    }
}

impl<B: InformationOps, C: CheckpointStrategy> InformationOps for Autodiff<B, C> {
    fn information_loss(votes: FloatTensor<Self>, measure: Information) -> FloatTensor<Self> {
        record::<B, C, _, 1>(InformationVjp, [votes], |[votes], _| {
            (B::information_loss(votes.clone(), measure), (votes, measure))
        })
    }

    refuse_second_order! { "information_loss";
        fn information_loss_backward(
            FloatTensor<Self>, FloatTensor<Self>, Information,
        ) -> FloatTensor<Self>;
    }
}
