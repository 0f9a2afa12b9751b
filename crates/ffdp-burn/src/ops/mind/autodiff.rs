//! The chain rule of the descriptors: the image is saved, its distances are recomputed.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, TensorMetadata};

use super::{MindOps, MindStorage, Patch};
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct MindVjp;

impl<B: MindOps> Vjp<B, 1> for MindVjp {
    type Saved = (FloatTensor<B>, FloatTensor<B>, Patch);

    fn backward(
        (image, bounds, patch): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        // That of descriptors in half precision is in half precision.
        let grad = match grad.dtype() == bounds.dtype() {
            true => grad,
            false => B::float_cast(grad, bounds.dtype().into()),
        };
        [Some(B::mind_3d_backward(image, bounds, grad, patch))]
    }
}

impl<B: MindOps, C: CheckpointStrategy> MindOps for Autodiff<B, C> {
    fn mind_variance_3d(image: FloatTensor<Self>, patch: Patch) -> FloatTensor<Self> {
        <FloatTensor<Self>>::new(B::mind_variance_3d(image.into_primitive(), patch))
    }

    fn mind_3d(
        image: FloatTensor<Self>,
        bounds: FloatTensor<Self>,
        patch: Patch,
        storage: MindStorage,
    ) -> FloatTensor<Self> {
        let bounds = bounds.into_primitive();
        record::<B, C, _, 1>(MindVjp, [image], |[image], _| {
            let descriptors = B::mind_3d(image.clone(), bounds.clone(), patch, storage);
            (descriptors, (image, bounds, patch))
        })
    }

    fn mind_3d_backward(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Patch,
    ) -> FloatTensor<Self> {
        panic!("mind: second-order gradients are not supported")
    }
}
