//! Sums over whole volumes: of weights, of squares, of what lies inside a mask.
//!
//! ```text
//! s_r = sum_{p in part r} x_p        dL/dx_p = dL/ds_r
//! ```
//! A tensor is cut into parts of one length that follow each other, such as the entries of a batch. One sweep, with
//! compensated sums. Burn's own reductions (0.22.1) measure the rates of a device before they choose a kernel for their
//! first use on it: seconds, for a sum of microseconds.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::DType;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Backend operation of the sums of the parts of a tensor.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait FieldSumOps: Backend {
    /// The sum of each of so many parts of one length, `[parts]`.
    #[fusion(dtype = x, shape = { let _ = x; burn::tensor::Shape::from([*parts]) })]
    fn part_sums(x: FloatTensor<Self>, parts: usize) -> FloatTensor<Self>;
}

fn part_sums(x: Tensor<5>, parts: usize) -> Tensor<1> {
    let x = match x.dtype() {
        DType::F16 | DType::BF16 => x.cast(DType::F32),
        _ => x,
    };
    Tensor::from_dispatch(<Dispatch as FieldSumOps>::part_sums(x.into_dispatch(), parts))
}

/// The sum of all values, `[1]`; of halves in f32. Differentiable.
///
/// # Errors of the result
/// f32 against f64: 2e-7 of the sum of the sizes. Reproducible bit by bit on one device.
pub fn sum_of_all(x: Tensor<5>) -> Tensor<1> {
    part_sums(x, 1)
}

/// The sum of each entry of a batch, `[N]`, as [`sum_of_all`].
pub fn sum_of_fields(x: Tensor<5>) -> Tensor<1> {
    let batch = x.dims()[0];
    part_sums(x, batch)
}

/// The sum of each channel of each entry, `[N, C, 1, 1, 1]`, as [`sum_of_all`].
pub fn sum_of_channels(x: Tensor<5>) -> Tensor<5> {
    let [batch, channels, ..] = x.dims();
    part_sums(x, batch * channels).reshape([batch, channels, 1, 1, 1])
}
