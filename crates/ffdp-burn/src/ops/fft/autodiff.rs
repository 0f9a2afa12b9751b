//! Spectra are what operators are made of, which have rules of their own: not differentiable.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{Direction, FftOps};
use ffdp_kit::refuse;

impl<B: FftOps, C: CheckpointStrategy> FftOps for Autodiff<B, C> {
    refuse! { "fft: not differentiable; detach its input, or use `spectral`";
        fn fft_3d(FloatTensor<Self>) -> FloatTensor<Self>;
    }

    refuse! { "inverse_fft: not differentiable; detach its input, or use `spectral`";
        fn inverse_fft_3d(FloatTensor<Self>, usize) -> FloatTensor<Self>;
    }

    refuse! { "fft_rows: not differentiable; detach its input";
        fn fft_rows_3d(FloatTensor<Self>) -> FloatTensor<Self>;
    }

    refuse! { "inverse_fft_rows: not differentiable; detach its input";
        fn inverse_fft_rows_3d(FloatTensor<Self>, usize, f64) -> FloatTensor<Self>;
    }

    refuse! { "fft_lines: not differentiable; detach its input";
        fn fft_lines_3d(FloatTensor<Self>, usize, Direction) -> FloatTensor<Self>;
    }
}
