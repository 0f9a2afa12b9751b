//! The field of a control grid at any points, exactly: what carries points and images through a transform
//! without a dense field in between.
//!
//! ```text
//! u(q) = sum_ijk B(qx - i) B(qy - j) B(qz - k) phi_ijk
//! ```
//! `q` a continuous index of the control grid: its first point is 0, the next one 1. At the voxels of a grid
//! along the same axes [`bspline`](crate::ops::bspline()) is much faster, and differentiable.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

use super::bspline::Beyond;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Backend operation; coefficients `[N, 3, d, h, w]`, indices and result `[N, 3, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait BsplineAtOps: Backend {
    /// `u` at the indices.
    #[fusion(dtype = indices, shape = { let _ = coefficients; indices.clone() })]
    fn bspline_at_3d(
        coefficients: FloatTensor<Self>,
        indices: FloatTensor<Self>,
        beyond: Beyond,
    ) -> FloatTensor<Self>;
}

/// The field at any points, in the unit of the coefficients. Not differentiable.
///
/// # Shapes
/// coefficients `[N, 3, d, h, w]`; indices `[N, 3, D, H, W]`, components (x, y, z), in control points;
/// result `[N, 3, D, H, W]`.
///
/// # Errors of the result
/// An index of some hundreds is rounded to 3e-5 in f32; in f64 sums of 64 products.
///
/// # Panics
/// If a tensor has not 3 components, the batches differ or a tensor is on the autodiff tape.
pub fn bspline_at(coefficients: Tensor<5>, indices: Tensor<5>, beyond: Beyond) -> Tensor<5> {
    let (phi, at) = (coefficients.dims(), indices.dims());
    assert!(
        phi[1] == 3 && at[1] == 3 && phi[0] == at[0],
        "bspline_at: coefficients and indices must be [N, 3, D, H, W] of one batch, got {phi:?} and {at:?}"
    );
    Tensor::from_dispatch(<Dispatch as BsplineAtOps>::bspline_at_3d(
        coefficients.into_dispatch(),
        indices.into_dispatch(),
        beyond,
    ))
}
