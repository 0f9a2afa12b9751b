//! The chain rule of the convolution.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{Conv3dOps, mirrored, mirrored_padding};
use crate::ops::precision::Precision;
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct Conv3dVjp;

impl<B: Conv3dOps> Vjp<B, 2> for Conv3dVjp {
    type Saved = (FloatTensor<B>, FloatTensor<B>, [usize; 3], Precision);

    fn backward(
        (x, weight, padding, precision): Self::Saved,
        grad: FloatTensor<B>,
        needs: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let to_x = needs[0].then(|| {
            let back = mirrored_padding::<B>(&weight, padding);
            B::small_conv3d(grad.clone(), mirrored::<B>(weight.clone()), back, precision)
        });
        let to_weight =
            needs[1].then(|| B::small_conv3d_to_weight(x, weight, grad, padding, precision));
        [to_x, to_weight]
    }
}

impl<B: Conv3dOps, C: CheckpointStrategy> Conv3dOps for Autodiff<B, C> {
    fn small_conv3d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        padding: [usize; 3],
        precision: Precision,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 2>(Conv3dVjp, [x, weight], |[x, weight], _| {
            let y = B::small_conv3d(x.clone(), weight.clone(), padding, precision);
            (y, (x, weight, padding, precision))
        })
    }

    refuse_second_order! { "conv3d";
        fn small_conv3d_to_weight(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, [usize; 3], Precision,
        ) -> FloatTensor<Self>;
    }
}
