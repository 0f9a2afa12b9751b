//! The chain rule of LNCC: the gradients are known with the sum, and multiplying them costs nothing where the upstream
//! gradient is 1.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{LnccCall, LnccOps};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::record_with_gradients;

impl<B: LnccOps, C: CheckpointStrategy> LnccOps for Autodiff<B, C> {
    fn lncc_3d(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: LnccCall,
    ) -> FloatTensor<Self> {
        let weights = weights.into_primitive();
        let images = [moved, fixed];
        record_with_gradients::<B, C, 2>(images, B::lncc_3d_scaled, |[moved, fixed], needs| {
            let (sum, to_moved, to_fixed) =
                B::lncc_3d_with_gradient(moved, fixed, weights, call, needs);
            (sum, [to_moved, to_fixed])
        })
    }

    refuse_second_order! { "lncc";
        fn lncc_3d_with_gradient(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, LnccCall, [bool; 2],
        ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
        fn lncc_3d_scaled(FloatTensor<Self>, FloatTensor<Self>) -> FloatTensor<Self>;
    }
}
