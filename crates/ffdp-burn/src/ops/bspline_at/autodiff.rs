//! Points are carried once a registration is over: not differentiable.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{Beyond, BsplineAtOps};

impl<B: BsplineAtOps, C: CheckpointStrategy> BsplineAtOps for Autodiff<B, C> {
    fn bspline_at_3d(_: FloatTensor<Self>, _: FloatTensor<Self>, _: Beyond) -> FloatTensor<Self> {
        panic!("bspline_at: not differentiable; detach its inputs")
    }
}
