//! The chain rule of the normalisation.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{InstanceNormOps, InstanceNormOptions};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct InstanceNormVjp;

impl<B: InstanceNormOps> Vjp<B, 1> for InstanceNormVjp {
    /// The result and the scaling; nothing where no gradient is wanted.
    type Saved = Option<(FloatTensor<B>, FloatTensor<B>, InstanceNormOptions)>;

    fn backward(
        saved: Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [saved.map(|(y, scaling, options)| B::instance_norm_3d_backward(y, scaling, grad, options))]
    }
}

impl<B: InstanceNormOps, C: CheckpointStrategy> InstanceNormOps for Autodiff<B, C> {
    fn instance_norm_3d(x: FloatTensor<Self>, options: InstanceNormOptions) -> FloatTensor<Self> {
        record::<B, C, _, 1>(InstanceNormVjp, [x], |[x], [wanted]| {
            if !wanted {
                return (B::instance_norm_3d(x, options), None);
            }
            let (y, scaling) = B::instance_norm_3d_with_scaling(x, options);
            (y.clone(), Some((y, scaling, options)))
        })
    }

    refuse_second_order! { "instance_norm";
        fn instance_norm_3d_with_scaling(
            FloatTensor<Self>, InstanceNormOptions,
        ) -> (FloatTensor<Self>, FloatTensor<Self>);
        fn instance_norm_3d_backward(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, InstanceNormOptions,
        ) -> FloatTensor<Self>;
    }
}
