//! The chain rule of roughness: the field is saved, its differences are recomputed.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{RegularityOps, Roughness};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct RoughnessVjp;

impl<B: RegularityOps> Vjp<B, 1> for RoughnessVjp {
    type Saved = (FloatTensor<B>, Roughness);

    fn backward(
        (field, roughness): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::roughness_3d_backward(field, grad, roughness))]
    }
}

impl<B: RegularityOps, C: CheckpointStrategy> RegularityOps for Autodiff<B, C> {
    fn roughness_3d(field: FloatTensor<Self>, roughness: Roughness) -> FloatTensor<Self> {
        record::<B, C, _, 1>(RoughnessVjp, [field], |[field], _| {
            (B::roughness_3d(field.clone(), roughness), (field, roughness))
        })
    }

    refuse_second_order! { "regularity";
        fn roughness_3d_backward(
            FloatTensor<Self>, FloatTensor<Self>, Roughness,
        ) -> FloatTensor<Self>;
    }
}
