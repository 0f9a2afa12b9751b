//! The chain rule of the mean.

use burn::backend::Autodiff;
use burn::backend::TensorMetadata;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::MeanPoolOps;
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct MeanPoolVjp;

impl<B: MeanPoolOps> Vjp<B, 1> for MeanPoolVjp {
    /// The extents of x.
    type Saved = [usize; 3];

    fn backward(
        size: Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::mean_pool_3d_backward(grad, size))]
    }
}

impl<B: MeanPoolOps, C: CheckpointStrategy> MeanPoolOps for Autodiff<B, C> {
    fn mean_pool_3d(x: FloatTensor<Self>) -> FloatTensor<Self> {
        record::<B, C, _, 1>(MeanPoolVjp, [x], |[x], _| {
            let shape = x.shape();
            (B::mean_pool_3d(x), [shape[2], shape[3], shape[4]])
        })
    }

    refuse_second_order! { "mean_pool";
        fn mean_pool_3d_backward(FloatTensor<Self>, [usize; 3]) -> FloatTensor<Self>;
    }
}
