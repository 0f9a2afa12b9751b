//! New tensors without gaps.
//!
//! Burn pads the rows of a new tensor of several axes on CUDA: 700 values of f32 take the room of 768. An operation
//! would copy it first, and as CubeCL's pools cut everything out of pages as large as the largest buffer, all pages
//! would be a tenth larger for as long as the process lives. A new tensor of one axis is dense.

use burn::Tensor;
use burn::tensor::{DType, Device};

/// Zeros that lie next to each other.
///
/// # Shapes
/// `dims`.
pub fn dense_zeros<const D: usize>(dims: [usize; D], device: &Device, dtype: DType) -> Tensor<D> {
    Tensor::<1>::zeros([dims.into_iter().product::<usize>()], (device, dtype)).reshape(dims)
}
