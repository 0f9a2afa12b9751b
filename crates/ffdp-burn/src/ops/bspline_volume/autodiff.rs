//! The chain rule of the volume penalty: the gradient is known with the value.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{BsplineVolumeOps, Millimetres};
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

    fn bspline_volume_3d_with_gradient(
        _: FloatTensor<Self>,
        _: Millimetres,
        _: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        panic!("bspline_volume: second-order gradients are not supported")
    }
}
