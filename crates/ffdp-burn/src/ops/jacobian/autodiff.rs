//! The chain rule of the determinant: the field is saved, its Jacobians are recomputed.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{Determinant, JacobianOps};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct JacobianVjp;

impl<B: JacobianOps> Vjp<B, 1> for JacobianVjp {
    type Saved = (FloatTensor<B>, Determinant);

    fn backward(
        (field, output): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::jacobian_3d_backward(field, grad, output))]
    }
}

impl<B: JacobianOps, C: CheckpointStrategy> JacobianOps for Autodiff<B, C> {
    fn jacobian_3d(field: FloatTensor<Self>, output: Determinant) -> FloatTensor<Self> {
        record::<B, C, _, 1>(JacobianVjp, [field], |[field], _| {
            (B::jacobian_3d(field.clone(), output), (field, output))
        })
    }

    refuse_second_order! { "jacobian";
        fn jacobian_3d_backward(
            FloatTensor<Self>, FloatTensor<Self>, Determinant,
        ) -> FloatTensor<Self>;
    }
}
