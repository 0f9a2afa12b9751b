//! The chain rule of the loss.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

use super::CharbonnierOps;

#[derive(Clone, Copy, Debug)]
struct CharbonnierVjp;

impl<B: CharbonnierOps> Vjp<B, 3> for CharbonnierVjp {
    /// The inputs, and epsilon.
    type Saved = ([FloatTensor<B>; 3], f64);

    fn backward(
        ([a, b, weights], epsilon): Self::Saved,
        grad: FloatTensor<B>,
        [needs_a, needs_b, needs_weights]: [bool; 3],
    ) -> [Option<FloatTensor<B>>; 3] {
        let to_weights = needs_weights
            .then(|| B::charbonnier_to_weights(a.clone(), b.clone(), grad.clone(), epsilon));
        let to_a =
            (needs_a || needs_b).then(|| B::charbonnier_to_image(a, b, weights, grad, epsilon));
        let to_b = to_a.clone().filter(|_| needs_b).map(B::float_neg);
        [to_a.filter(|_| needs_a), to_b, to_weights]
    }
}

impl<B: CharbonnierOps, C: CheckpointStrategy> CharbonnierOps for Autodiff<B, C> {
    fn charbonnier(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 3>(CharbonnierVjp, [a, b, weights], |inputs, _| {
            let [a, b, weights] = inputs.clone();
            (B::charbonnier(a, b, weights, epsilon), (inputs, epsilon))
        })
    }

    refuse_second_order! { "charbonnier";
        fn charbonnier_to_image(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, f64,
        ) -> FloatTensor<Self>;
        fn charbonnier_to_weights(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, f64,
        ) -> FloatTensor<Self>;
    }
}
