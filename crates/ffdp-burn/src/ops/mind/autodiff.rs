//! The chain rule of the descriptors: the image is saved, its distances are recomputed. That of their difference: the
//! gradients are known with the sum.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, TensorMetadata};

use super::{MindCall, MindOps, MindStorage, Patch};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record, record_with_gradients, scaled};

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

    fn mind_difference_3d(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        moved_bounds: FloatTensor<Self>,
        fixed_bounds: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: MindCall,
    ) -> FloatTensor<Self> {
        let [of_moved, of_fixed, weights] =
            [moved_bounds, fixed_bounds, weights].map(|tensor| tensor.into_primitive());
        let images = [moved, fixed];
        record_with_gradients::<B, C, 2>(images, scaled::<B>, |[moved, fixed], needs| {
            let (sum, to_moved, to_fixed) = B::mind_difference_3d_with_gradient(
                moved, fixed, of_moved, of_fixed, weights, call, needs,
            );
            (sum, [to_moved, to_fixed])
        })
    }

    refuse_second_order! { "mind";
        fn mind_3d_backward(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, Patch,
        ) -> FloatTensor<Self>;
        fn mind_difference_3d_with_gradient(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>,
            FloatTensor<Self>, MindCall, [bool; 2],
        ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
    }
}
