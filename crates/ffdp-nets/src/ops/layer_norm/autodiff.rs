//! The chain rule of the normalisation.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::LayerNormOps;
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct LayerNormVjp;

impl<B: LayerNormOps> Vjp<B, 3> for LayerNormVjp {
    /// x, gamma, epsilon.
    type Saved = (FloatTensor<B>, FloatTensor<B>, f64);

    fn backward(
        (x, gamma, epsilon): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 3],
    ) -> [Option<FloatTensor<B>>; 3] {
        let (to_x, to_gamma, to_beta) = B::normalise_tokens_backward(x, gamma, grad, epsilon);
        [Some(to_x), Some(to_gamma), Some(to_beta)]
    }
}

impl<B: LayerNormOps, C: CheckpointStrategy> LayerNormOps for Autodiff<B, C> {
    fn normalise_tokens(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 3>(LayerNormVjp, [x, gamma, beta], |[x, gamma, beta], _| {
            (B::normalise_tokens(x.clone(), gamma.clone(), beta, epsilon), (x, gamma, epsilon))
        })
    }

    refuse_second_order! { "layer_norm";
        fn normalise_tokens_backward(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, f64,
        ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
    }
}
