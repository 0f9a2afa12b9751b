//! The smallest and the largest value of each component of a field: how far a displacement reaches.
//!
//! ```text
//! low_c = min_p u_c(p),   high_c = max_p u_c(p)        longest = max_p |u(p)|
//! ```
//! One sweep over the field. Burn's own reductions (0.22.1) would be four, each of them tuned on each device before
//! its first use, which took 4 of the 7 s that two H200s needed to begin with a level in shards.

use burn::Tensor;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};
#[cfg(feature = "cube")] // asked for by fusion
use burn::tensor::Shape;

#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Backend operation of the extremes of a field `[N, C, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait ExtremesOps: Backend {
    /// `[N, C, 2]`: the smallest, the largest.
    #[fusion(dtype = field, shape = Shape::from([field[0], field[1], 2]))]
    fn extremes_3d(field: FloatTensor<Self>) -> FloatTensor<Self>;

    /// `[1]`: the square of the length of the longest vector.
    #[fusion(dtype = field, shape = { let _ = field; Shape::from([1]) })]
    fn longest_3d(field: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl<B: ExtremesOps, C: CheckpointStrategy> ExtremesOps for Autodiff<B, C> {
    fn extremes_3d(_: FloatTensor<Self>) -> FloatTensor<Self> {
        panic!("extremes: not differentiable; take the field off the tape (`inner`)")
    }

    fn longest_3d(_: FloatTensor<Self>) -> FloatTensor<Self> {
        panic!("longest: not differentiable; take the field off the tape (`inner`)")
    }
}

/// The smallest and the largest value of each component. Not differentiable.
///
/// A value that is no number is ignored or makes both ends of its component so, as the device has it; where
/// there are no others, the smallest may be above the largest.
///
/// # Shapes
/// field `[N, C, D, H, W]`, off the tape; result `[N, C, 2]`.
///
/// # Panics
/// On the tape.
pub fn extremes(field: Tensor<5>) -> Tensor<3> {
    Tensor::from_dispatch(<Dispatch as ExtremesOps>::extremes_3d(field.into_dispatch()))
}

/// The square of the length of a field's longest vector, `[1]`, over the whole batch. Not differentiable. A vector with
/// a value that is no number is ignored or is the longest, as the device has it.
///
/// # Shapes
/// field `[N, C, D, H, W]`, off the tape: vectors of C components.
///
/// # Panics
/// On the tape.
pub fn longest_squared(field: Tensor<5>) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as ExtremesOps>::longest_3d(field.into_dispatch()))
}
