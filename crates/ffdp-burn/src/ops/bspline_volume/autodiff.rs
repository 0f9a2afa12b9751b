//! The chain rule of the volume penalty: the gradient is known with the value.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{BsplineVolumeOps, Millimetres};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{record_with_gradients, scaled};

impl<B: BsplineVolumeOps, C: CheckpointStrategy> BsplineVolumeOps for Autodiff<B, C> {
    fn bspline_volume_3d(
        coefficients: FloatTensor<Self>,
        mm: Millimetres,
        least: f64,
    ) -> FloatTensor<Self> {
        record_with_gradients::<B, C, 1>([coefficients], scaled::<B>, |[coefficients], _| {
            let (value, gradient) = B::bspline_volume_3d_with_gradient(coefficients, mm, least);
            (value, [gradient])
        })
    }

    refuse_second_order! { "bspline_volume";
        fn bspline_volume_3d_with_gradient(
            FloatTensor<Self>, Millimetres, f64,
        ) -> (FloatTensor<Self>, FloatTensor<Self>);
    }
}
