//! The chain rule of the joint histogram: the images are saved, everything else is recomputed.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{Binning, JointHistogramOps};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct JointHistogramVjp;

impl<B: JointHistogramOps> Vjp<B, 2> for JointHistogramVjp {
    type Saved = ([FloatTensor<B>; 3], Binning);

    fn backward(
        ([a, b, weights], binning): Self::Saved,
        grad: FloatTensor<B>,
        needs: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let (a, b) = B::joint_histogram_3d_backward(a, b, weights, grad, binning, needs);
        [Some(a), Some(b)]
    }
}

impl<B: JointHistogramOps, C: CheckpointStrategy> JointHistogramOps for Autodiff<B, C> {
    fn joint_histogram_3d(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        binning: Binning,
    ) -> FloatTensor<Self> {
        // Weights are constants: they stay off the tape.
        let weights = weights.into_primitive();
        record::<B, C, _, 2>(JointHistogramVjp, [a, b], |[a, b], _| {
            let saved = ([a.clone(), b.clone(), weights.clone()], binning);
            (B::joint_histogram_3d(a, b, weights, binning), saved)
        })
    }

    refuse_second_order! { "joint_histogram";
        fn joint_histogram_3d_backward(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, Binning,
            [bool; 2],
        ) -> (FloatTensor<Self>, FloatTensor<Self>);
    }
}
