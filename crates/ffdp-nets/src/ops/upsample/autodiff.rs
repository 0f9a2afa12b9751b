//! The chain rule of upsampling.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, TensorMetadata};
use burn::tensor::Slice;

use super::UpsampleOps;
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct UpsampleVjp;

impl<B: UpsampleOps> Vjp<B, 2> for UpsampleVjp {
    /// Channels of `x`.
    type Saved = usize;

    fn backward(
        channels: usize,
        grad: FloatTensor<B>,
        [to_x, to_skip]: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let shape = grad.shape();
        let skip = |grad: FloatTensor<B>| {
            let mut slices: [Slice; 5] = std::array::from_fn(|a| (0..shape[a]).into());
            slices[1] = (channels..shape[1]).into();
            B::float_slice(grad, &slices)
        };
        let to_skip = to_skip.then(|| skip(grad.clone()));
        [to_x.then(|| B::upsample_3d_backward(grad, channels)), to_skip]
    }
}

/// Without a skip there is one input.
#[derive(Clone, Copy, Debug)]
struct PlainVjp;

impl<B: UpsampleOps> Vjp<B, 1> for PlainVjp {
    /// Channels of `x`.
    type Saved = usize;

    fn backward(
        channels: usize,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::upsample_3d_backward(grad, channels))]
    }
}

impl<B: UpsampleOps, C: CheckpointStrategy> UpsampleOps for Autodiff<B, C> {
    fn upsample_3d(
        x: FloatTensor<Self>,
        skip: FloatTensor<Self>,
        joins: bool,
    ) -> FloatTensor<Self> {
        if !joins {
            return record::<B, C, _, 1>(PlainVjp, [x], |[x], _| {
                let channels = x.shape()[1];
                (B::upsample_3d(x.clone(), x, false), channels)
            });
        }
        record::<B, C, _, 2>(UpsampleVjp, [x, skip], |[x, skip], _| {
            let channels = x.shape()[1];
            (B::upsample_3d(x, skip, true), channels)
        })
    }

    refuse_second_order! { "upsample";
        fn upsample_3d_backward(FloatTensor<Self>, usize) -> FloatTensor<Self>;
    }
}
