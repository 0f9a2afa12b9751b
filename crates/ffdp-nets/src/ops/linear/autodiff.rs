//! The chain rules of the product and of what follows it.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{Activation, LinearOps};
use crate::ops::precision::Precision;
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct ProductVjp;

impl<B: LinearOps> Vjp<B, 2> for ProductVjp {
    /// x, weight, the precision.
    type Saved = ([FloatTensor<B>; 2], Precision);

    fn backward(
        ([x, weight], precision): Self::Saved,
        grad: FloatTensor<B>,
        needs: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        [
            needs[0].then(|| B::multiply_rows_to_x(grad.clone(), weight, precision)),
            needs[1].then(|| B::multiply_rows_to_weight(x, grad, precision)),
        ]
    }
}

#[derive(Clone, Copy, Debug)]
struct ActivateVjp;

impl<B: LinearOps> Vjp<B, 2> for ActivateVjp {
    /// z where its gradient depends on it, bias, the activation.
    type Saved = (Option<FloatTensor<B>>, FloatTensor<B>, Activation);

    fn backward(
        (z, bias, activation): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        // The identity's gradient does not read z.
        let z = z.unwrap_or_else(|| grad.clone());
        let (to_z, to_bias) = B::activate_backward(z, bias, grad, activation);
        [Some(to_z), Some(to_bias)]
    }
}

impl<B: LinearOps, C: CheckpointStrategy> LinearOps for Autodiff<B, C> {
    fn multiply_rows(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 2>(ProductVjp, [x, weight], |[x, weight], _| {
            (B::multiply_rows(x.clone(), weight.clone(), precision), ([x, weight], precision))
        })
    }

    refuse_second_order! { "linear";
        fn multiply_rows_to_x(FloatTensor<Self>, FloatTensor<Self>, Precision) -> FloatTensor<Self>;
        fn multiply_rows_to_weight(
            FloatTensor<Self>, FloatTensor<Self>, Precision,
        ) -> FloatTensor<Self>;
    }

    fn activate(
        z: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 2>(ActivateVjp, [z, bias], |[z, bias], _| {
            let kept = (activation != Activation::Identity).then(|| z.clone());
            (B::activate(z, bias.clone(), activation), (kept, bias, activation))
        })
    }

    refuse_second_order! { "linear";
        fn activate_backward(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, Activation,
        ) -> (FloatTensor<Self>, FloatTensor<Self>);
    }
}
