//! The chain rule of an affine field: nothing is saved but the matrix.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{AffineFieldOps, Maps};
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct AffineFieldVjp;

impl<B: AffineFieldOps> Vjp<B, 1> for AffineFieldVjp {
    type Saved = Maps;

    fn backward(
        maps: Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::affine_field_3d(grad, maps.transposed()))]
    }
}

impl<B: AffineFieldOps, C: CheckpointStrategy> AffineFieldOps for Autodiff<B, C> {
    fn affine_field_3d(field: FloatTensor<Self>, maps: Maps) -> FloatTensor<Self> {
        record::<B, C, _, 1>(AffineFieldVjp, [field], |[field], _| {
            (B::affine_field_3d(field, maps), maps)
        })
    }
}
