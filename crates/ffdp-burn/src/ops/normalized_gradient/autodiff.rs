//! The chain rule of the normalised gradient: the image is saved, its slopes are recomputed.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{Edges, NormalizedGradientOps};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct NormalizedGradientVjp;

impl<B: NormalizedGradientOps> Vjp<B, 1> for NormalizedGradientVjp {
    type Saved = (FloatTensor<B>, Edges);

    fn backward(
        (image, edges): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::normalized_gradient_3d_backward(image, grad, edges))]
    }
}

impl<B: NormalizedGradientOps, C: CheckpointStrategy> NormalizedGradientOps for Autodiff<B, C> {
    fn normalized_gradient_3d(image: FloatTensor<Self>, edges: Edges) -> FloatTensor<Self> {
        record::<B, C, _, 1>(NormalizedGradientVjp, [image], |[image], _| {
            (B::normalized_gradient_3d(image.clone(), edges), (image, edges))
        })
    }

    refuse_second_order! { "normalized_gradient";
        fn normalized_gradient_3d_backward(
            FloatTensor<Self>, FloatTensor<Self>, Edges,
        ) -> FloatTensor<Self>;
    }
}
