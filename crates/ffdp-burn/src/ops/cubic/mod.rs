//! Periodic volumes between their voxels, by cubic B-splines: what a semi-Lagrangian step of transport samples.
//!
//! ```text
//! f(p + u(p)) = sum_ijk B(qx - i) B(qy - j) B(qz - k) c_ijk      q = p + u(p), indices modulo the size
//! c           = the coefficients with which f passes through all voxels: f * (B * ..)^-1 along each axis
//! ```
//! The inverse of `B = (1, 4, 1) / 6` is `sqrt 3 z^|s|`, `z = sqrt 3 - 2`: as it falls by 3.7 a voxel, a sum of few
//! neighbours has it to the last digit of f32, in parallel (GPU); the CPU takes the recursion that it comes from. Between voxels the error is of fourth order.
//! Cubic polynomials through four voxels and straight lines between two ([`PeriodicInterpolation`]) need no coefficients.
//! Sources: Unser, Splines, a perfect fit for signal and image processing, 1999;
//! Champagnat and Le Sant, Efficient cubic B-spline image interpolation on a GPU, 2012.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use serde::{Deserialize, Serialize};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// `z = sqrt 3 - 2`.
pub(crate) const POLE: f64 = -0.267_949_192_431_122_7;

/// What a periodic volume is between its voxels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeriodicInterpolation {
    /// The cubic B-spline through all voxels: two continuous derivatives, an error of fourth order. Its coefficients
    /// come first ([`cubic_coefficients`]).
    #[default]
    BSpline,
    /// The cubic polynomial through four voxels along each axis: fourth order with a larger constant, no continuous
    /// derivative, no coefficients.
    Lagrange,
    /// Straight between two voxels along each axis: second order, an eighth of the voxels read.
    Linear,
}

impl PeriodicInterpolation {
    /// The first of the four voxels around a position that counts; as many count on both sides.
    pub(crate) const fn first_tap(self) -> usize {
        match self {
            Self::BSpline | Self::Lagrange => 0,
            Self::Linear => 1,
        }
    }
}

/// Backend operations; `[N, C, D, H, W]`, displacements `[N, 3, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait CubicOps: Backend {
    /// The coefficients of a volume along those axes (D, H, W) that are asked for.
    #[fusion(dtype = volume, shape = volume)]
    fn cubic_coefficients_3d(volume: FloatTensor<Self>, axes: [bool; 3]) -> FloatTensor<Self>;

    /// What lies at `origin + p + u(p)`, `origin` (x, y, z).
    #[fusion(
        dtype = coefficients,
        shape = { let mut shape = displacement.clone(); shape[1] = coefficients[1]; shape }
    )]
    fn cubic_sample_3d(
        coefficients: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        origin: [usize; 3],
        between: PeriodicInterpolation,
    ) -> FloatTensor<Self>;
}

/// The coefficients of the periodic cubic B-spline through all voxels, for [`cubic_sample`]. Differentiable (first
/// order).
///
/// # Shapes
/// volume and result `[N, C, D, H, W]`.
///
/// # Errors of the result
/// In f32 3e-7 of the largest coefficient.
///
/// # Panics
/// If an axis is empty.
pub fn cubic_coefficients(volume: Tensor<5>) -> Tensor<5> {
    cubic_coefficients_along(volume, [true; 3])
}

/// [`cubic_coefficients`] along some axes (D, H, W): those of a volume are found axis by axis, in any order.
/// Differentiable (first order).
///
/// # Shapes
/// As [`cubic_coefficients`].
///
/// # Panics
/// If an axis is empty.
pub fn cubic_coefficients_along(volume: Tensor<5>, axes: [bool; 3]) -> Tensor<5> {
    let dims = volume.dims();
    assert!(!dims.contains(&0), "cubic_coefficients: an axis is empty, got {dims:?}");
    let volume = volume.into_dispatch();
    Tensor::from_dispatch(<Dispatch as CubicOps>::cubic_coefficients_3d(volume, axes))
}

/// A periodic cubic B-spline at the displaced voxels `p + u(p)`. Not differentiable.
///
/// # Shapes
/// coefficients `[N, C, D, H, W]`; displacement `[N, 3, D, H, W]`, components (x, y, z), in voxels, of any length;
/// result as the coefficients.
///
/// # Errors of the result
/// In f32 a displacement of some voxels is rounded to 3e-7 voxels.
///
/// # Panics
/// If the displacement has not 3 components, batches or sizes differ, or a tensor is on the autodiff tape.
pub fn cubic_sample(coefficients: Tensor<5>, displacement: Tensor<5>) -> Tensor<5> {
    let (c, u) = (coefficients.dims(), displacement.dims());
    assert!(
        c[2..] == u[2..],
        "cubic_sample: coefficients [N, C, D, H, W] need a displacement [N, 3, D, H, W], got {c:?} and {u:?}"
    );
    periodic_sample(coefficients, displacement, [0; 3], PeriodicInterpolation::BSpline)
}

/// A periodic volume at the displaced voxels of a part of it: that of number `p` in the displacement is `origin + p` of
/// the volume. Not differentiable.
///
/// # Shapes
/// values (of a B-spline the coefficients) `[N, C, D', H', W']`, periodic; displacement `[N, 3, D, H, W]`; `origin`
/// (x, y, z); result `[N, C, D, H, W]`.
///
/// # Panics
/// As [`cubic_sample`], but for the sizes.
pub fn periodic_sample(
    values: Tensor<5>,
    displacement: Tensor<5>,
    origin: [usize; 3],
    between: PeriodicInterpolation,
) -> Tensor<5> {
    let (c, u) = (values.dims(), displacement.dims());
    assert!(
        u[1] == 3 && c[0] == u[0] && !c.contains(&0) && !u.contains(&0),
        "periodic_sample: values [N, C, D, H, W] need a displacement [N, 3, D, H, W], got {c:?} and {u:?}"
    );
    Tensor::from_dispatch(<Dispatch as CubicOps>::cubic_sample_3d(
        values.into_dispatch(),
        displacement.into_dispatch(),
        origin,
        between,
    ))
}
