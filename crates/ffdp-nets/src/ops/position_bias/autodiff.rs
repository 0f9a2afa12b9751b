//! The chain rule of the bias.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::PositionBiasOps;
use ffdp_kit::refuse_second_order;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct PositionBiasVjp;

impl<B: PositionBiasOps> Vjp<B, 1> for PositionBiasVjp {
    /// The window.
    type Saved = [usize; 3];

    fn backward(
        window: Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::gather_positions(grad, window))]
    }
}

impl<B: PositionBiasOps, C: CheckpointStrategy> PositionBiasOps for Autodiff<B, C> {
    fn spread_positions(table: FloatTensor<Self>, window: [usize; 3]) -> FloatTensor<Self> {
        record::<B, C, _, 1>(PositionBiasVjp, [table], |[table], _| {
            (B::spread_positions(table, window), window)
        })
    }

    refuse_second_order! { "position_bias";
        fn gather_positions(FloatTensor<Self>, [usize; 3]) -> FloatTensor<Self>;
    }
}
