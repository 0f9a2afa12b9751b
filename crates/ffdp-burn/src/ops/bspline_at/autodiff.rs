//! Points are carried once a registration is over: not differentiable.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{Beyond, BsplineAtOps};
use ffdp_kit::refuse;

impl<B: BsplineAtOps, C: CheckpointStrategy> BsplineAtOps for Autodiff<B, C> {
    refuse! { "bspline_at: not differentiable; detach its inputs";
        fn bspline_at_3d(FloatTensor<Self>, FloatTensor<Self>, Beyond) -> FloatTensor<Self>;
    }
}
