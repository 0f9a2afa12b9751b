//! The chain rule of LNCC: the upstream gradient is one number, so the forward pass stores the
//! finished gradients and the backward pass multiplies them by it, which costs nothing where it is 1.

use burn::backend::Autodiff;
use burn::backend::TensorMetadata;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{LnccCall, LnccOps};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct LnccVjp;

impl<B: LnccOps> Vjp<B, 2> for LnccVjp {
    type Saved = [Option<FloatTensor<B>>; 2];

    fn backward(
        saved: Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        saved.map(|gradient| gradient.map(|gradient| B::lncc_3d_scaled(gradient, grad.clone())))
    }
}

impl<B: LnccOps, C: CheckpointStrategy> LnccOps for Autodiff<B, C> {
    fn lncc_3d(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: LnccCall,
    ) -> FloatTensor<Self> {
        let weights = weights.into_primitive();
        record::<B, C, _, 2>(LnccVjp, [moved, fixed], |[moved, fixed], needs| {
            if needs == [false, false] {
                return (B::lncc_3d(moved, fixed, weights, call), [None, None]);
            }
            assert_eq!(moved.shape(), fixed.shape());
            let (sum, to_moved, to_fixed) =
                B::lncc_3d_with_gradient(moved, fixed, weights, call, needs);
            (sum, [needs[0].then_some(to_moved), needs[1].then_some(to_fixed)])
        })
    }

    refuse_second_order! { "lncc";
        fn lncc_3d_with_gradient(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, LnccCall, [bool; 2],
        ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
        fn lncc_3d_scaled(FloatTensor<Self>, FloatTensor<Self>) -> FloatTensor<Self>;
    }
}
