//! The chain rule: that of the convolution, then that of the upsampling, with little held at a time.

use std::ops::Range;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, TensorMetadata};
use burn::tensor::Slice;

use super::{JoinConv3dOps, PADDING};
use crate::ops::conv3d::{Conv3dOps, mirrored};
use crate::ops::precision::Precision;
use crate::ops::upsample::UpsampleOps;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
pub(super) struct JoinConv3dVjp;

impl<B: JoinConv3dOps + UpsampleOps + Conv3dOps> Vjp<B, 3> for JoinConv3dVjp {
    type Saved = (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, Precision);

    fn backward(
        (x, skip, weight, precision): Self::Saved,
        grad: FloatTensor<B>,
        [to_x, to_skip, to_weight]: [bool; 3],
    ) -> [Option<FloatTensor<B>>; 3] {
        let (own, all) = (x.shape()[1], weight.shape()[1]);
        // First, so that the joined channels are gone before gradients of their size come.
        let to_weight = to_weight.then(|| {
            let joined = B::upsample_3d(x, skip, true);
            B::small_conv3d_to_weight(joined, weight.clone(), grad.clone(), PADDING, precision)
        });
        let to_channels = |channels: Range<usize>| {
            let mut slices: [Slice; 5] = weight.shape().dims::<5>().map(|n| (0..n).into());
            slices[1] = channels.into();
            let part = B::float_slice(weight.clone(), &slices);
            B::small_conv3d(grad.clone(), mirrored::<B>(part), PADDING, precision)
        };
        let to_skip = to_skip.then(|| to_channels(own..all));
        let to_x = to_x.then(|| B::upsample_3d_backward(to_channels(0..own), own));
        [to_x, to_skip, to_weight]
    }
}

impl<B, C> JoinConv3dOps for Autodiff<B, C>
where
    B: JoinConv3dOps + UpsampleOps + Conv3dOps,
    C: CheckpointStrategy,
{
    fn join_conv3d(
        x: FloatTensor<Self>,
        skip: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 3>(JoinConv3dVjp, [x, skip, weight], |[x, skip, weight], _| {
            let y = B::join_conv3d(x.clone(), skip.clone(), weight.clone(), precision);
            (y, (x, skip, weight, precision))
        })
    }
}
