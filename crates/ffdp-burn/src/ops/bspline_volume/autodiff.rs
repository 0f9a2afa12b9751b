//! The chain rule of the volume penalty: the gradient is known with the value.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{BsplineVolumeOps, Millimetres};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{KnownGradient, record};

impl<B: BsplineVolumeOps, C: CheckpointStrategy> BsplineVolumeOps for Autodiff<B, C> {
    fn bspline_volume_3d(
        coefficients: FloatTensor<Self>,
        mm: Millimetres,
        least: f64,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 1>(KnownGradient, [coefficients], |[coefficients], _| {
            B::bspline_volume_3d_with_gradient(coefficients, mm, least)
        })
    }

    refuse_second_order! { "bspline_volume";
        fn bspline_volume_3d_with_gradient(
            FloatTensor<Self>, Millimetres, f64,
        ) -> (FloatTensor<Self>, FloatTensor<Self>);
    }
}
