//! The chain rule of the bending energy: the coefficients are saved.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::BsplineBendingOps;
use crate::ops::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct BendingVjp;

impl<B: BsplineBendingOps> Vjp<B, 1> for BendingVjp {
    type Saved = (FloatTensor<B>, [f64; 3]);

    fn backward(
        (coefficients, spacing): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::bspline_bending_3d_backward(coefficients, grad, spacing))]
    }
}

impl<B: BsplineBendingOps, C: CheckpointStrategy> BsplineBendingOps for Autodiff<B, C> {
    fn bspline_bending_3d(coefficients: FloatTensor<Self>, spacing: [f64; 3]) -> FloatTensor<Self> {
        record::<B, C, _, 1>(BendingVjp, [coefficients], |[coefficients], _| {
            (B::bspline_bending_3d(coefficients.clone(), spacing), (coefficients, spacing))
        })
    }

    fn bspline_bending_3d_backward(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: [f64; 3],
    ) -> FloatTensor<Self> {
        panic!("bspline_bending: second-order gradients are not supported")
    }
}
