//! The chain rule of the bending energy: the gradient is known with the value.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{BsplineBendingOps, Millimetres};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{record_with_gradients, scaled};

impl<B: BsplineBendingOps, C: CheckpointStrategy> BsplineBendingOps for Autodiff<B, C> {
    fn bspline_bending_3d(coefficients: FloatTensor<Self>, mm: Millimetres) -> FloatTensor<Self> {
        record_with_gradients::<B, C, 1>([coefficients], scaled::<B>, |[coefficients], _| {
            let (value, gradient) = B::bspline_bending_3d_with_gradient(coefficients, mm);
            (value, [gradient])
        })
    }

    refuse_second_order! { "bspline_bending";
        fn bspline_bending_3d_with_gradient(
            FloatTensor<Self>, Millimetres,
        ) -> (FloatTensor<Self>, FloatTensor<Self>);
    }
}
