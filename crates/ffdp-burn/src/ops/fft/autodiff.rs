//! Spectra are what operators are made of, which have rules of their own: not differentiable.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;

use super::{Direction, FftOps};

impl<B: FftOps, C: CheckpointStrategy> FftOps for Autodiff<B, C> {
    fn fft_3d(_: FloatTensor<Self>) -> FloatTensor<Self> {
        panic!("fft: not differentiable; detach its input, or use `spectral`")
    }

    fn inverse_fft_3d(_: FloatTensor<Self>, _: usize) -> FloatTensor<Self> {
        panic!("inverse_fft: not differentiable; detach its input, or use `spectral`")
    }

    fn fft_rows_3d(_: FloatTensor<Self>) -> FloatTensor<Self> {
        panic!("fft_rows: not differentiable; detach its input")
    }

    fn inverse_fft_rows_3d(_: FloatTensor<Self>, _: usize, _: f64) -> FloatTensor<Self> {
        panic!("inverse_fft_rows: not differentiable; detach its input")
    }

    fn fft_lines_3d(_: FloatTensor<Self>, _: usize, _: Direction) -> FloatTensor<Self> {
        panic!("fft_lines: not differentiable; detach its input")
    }
}
