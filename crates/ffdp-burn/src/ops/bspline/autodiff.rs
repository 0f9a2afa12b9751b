//! The chain rule of the control grid: a linear map, so nothing is saved but its tables.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{BsplineOps, Lattice};
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct BsplineVjp;

impl<B: BsplineOps> Vjp<B, 1> for BsplineVjp {
    type Saved = Lattice;

    fn backward(
        lattice: Lattice,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::bspline_3d_backward(grad, lattice))]
    }
}

impl<B: BsplineOps, C: CheckpointStrategy> BsplineOps for Autodiff<B, C> {
    fn bspline_3d(coefficients: FloatTensor<Self>, lattice: Lattice) -> FloatTensor<Self> {
        record::<B, C, _, 1>(BsplineVjp, [coefficients], |[coefficients], _| {
            (B::bspline_3d(coefficients, lattice), lattice)
        })
    }

    refuse_second_order! { "bspline";
        fn bspline_3d_backward(FloatTensor<Self>, Lattice) -> FloatTensor<Self>;
    }
}
