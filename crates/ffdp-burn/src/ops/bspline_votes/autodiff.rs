//! The chain rule of the fused histogram: the coefficients are saved, everything else is recomputed.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{BsplineVotesOps, VotesPlan};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct BsplineVotesVjp;

impl<B: BsplineVotesOps> Vjp<B, 1> for BsplineVotesVjp {
    type Saved = ([FloatTensor<B>; 4], VotesPlan);

    fn backward(
        ([fixed, moving, affine, coefficients], plan): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::bspline_votes_3d_backward(fixed, moving, affine, coefficients, grad, plan))]
    }
}

impl<B: BsplineVotesOps, C: CheckpointStrategy> BsplineVotesOps for Autodiff<B, C> {
    fn bspline_votes_3d(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
        plan: VotesPlan,
    ) -> FloatTensor<Self> {
        // The images are constants: they stay off the tape.
        let [fixed, moving, affine] = [fixed, moving, affine].map(|t| t.into_primitive());
        record::<B, C, _, 1>(BsplineVotesVjp, [coefficients], |[coefficients], _| {
            let saved = [fixed.clone(), moving.clone(), affine.clone(), coefficients.clone()];
            (B::bspline_votes_3d(fixed, moving, affine, coefficients, plan), (saved, plan))
        })
    }

    refuse_second_order! { "bspline_votes";
        fn bspline_votes_3d_backward(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>,
            FloatTensor<Self>, VotesPlan,
        ) -> FloatTensor<Self>;
    }
}
