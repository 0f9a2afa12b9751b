//! Symbols are symmetric: the gradient goes through the same operator.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{ModeBlock, SpectralOps, Symbol};
use ffdp_kit::refuse;
use ffdp_kit::vjp::{Vjp, record};

#[derive(Clone, Copy, Debug)]
struct SpectralVjp;

impl<B: SpectralOps> Vjp<B, 1> for SpectralVjp {
    type Saved = (Symbol, [f64; 3]);

    fn backward(
        (symbol, voxel_mm): Self::Saved,
        grad: FloatTensor<B>,
        _: [bool; 1],
    ) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::spectral_3d(grad, symbol, voxel_mm))]
    }
}

impl<B: SpectralOps, C: CheckpointStrategy> SpectralOps for Autodiff<B, C> {
    fn spectral_3d(
        field: FloatTensor<Self>,
        symbol: Symbol,
        voxel_mm: [f64; 3],
    ) -> FloatTensor<Self> {
        record::<B, C, _, 1>(SpectralVjp, [field], |[field], _| {
            (B::spectral_3d(field, symbol, voxel_mm), (symbol, voxel_mm))
        })
    }

    refuse! { "multiply_modes: not differentiable; detach its input, or use `spectral`";
        fn multiply_modes_3d(FloatTensor<Self>, Symbol, [f64; 3], ModeBlock) -> FloatTensor<Self>;
    }
}
