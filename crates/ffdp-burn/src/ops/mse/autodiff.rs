//! The chain rule of the squared difference.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::MseOps;
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct SquaredDifferenceVjp;

impl<B: MseOps> Vjp<B, 2> for SquaredDifferenceVjp {
    type Saved = [FloatTensor<B>; 2];

    fn backward(
        [a, b]: Self::Saved,
        grad: FloatTensor<B>,
        needs: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let to_a = B::squared_difference_backward(a, b, grad);
        match needs {
            [_, false] => [Some(to_a), None],
            [false, true] => [None, Some(B::float_neg(to_a))],
            [true, true] => [Some(to_a.clone()), Some(B::float_neg(to_a))],
        }
    }
}

impl<B: MseOps, C: CheckpointStrategy> MseOps for Autodiff<B, C> {
    fn squared_difference(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        record::<B, C, _, 2>(SquaredDifferenceVjp, [a, b], |[a, b], _| {
            (B::squared_difference(a.clone(), b.clone()), [a, b])
        })
    }

    refuse_second_order! { "mse";
        fn squared_difference_backward(
            FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>,
        ) -> FloatTensor<Self>;
    }
}
