//! Penalty on changes of volume, from the coefficients of a control grid (Rohlfing et al. 2003).
//!
//! ```text
//! E = mean_q (log det J(q))^2       J_ca = [a = c] + d u_c / d x_a,  u and x in mm
//! ```
//! over the points `q` in the middle of the eight octants of every cell whose four control points exist along
//! each axis: the midpoint rule of the integral over space, so the number means the same on every level.
//! Without a unit; 0 where volume is kept, and equal for growth and shrinkage by one factor.
//!
//! A determinant below `least` (0 and folds included) goes on along the tangent of the square of the
//! logarithm: finite, and pushed back with the slope at `least`.
//!
//! The three columns of `J` are the control grid evaluated with slopes along one axis. Gradient, with `C` the
//! cofactors: `dE/dJ = f'(det J) C / count`, and from there by the transposed evaluations; computed with the value.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

use super::bspline::{ControlGrid, Millimetres, slopes, values};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Points of a cell along an axis.
const POINTS: usize = 2;

/// The determinant below which [`bspline_volume`] follows the tangent, unless something else is wanted: a
/// hundredth of the volume.
pub const LEAST_DETERMINANT: f64 = 1e-2;

/// Backend operations of the penalty; coefficients `[N, 3, d, h, w]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait BsplineVolumeOps: Backend {
    /// The mean over all points, `[1]`.
    #[fusion(dtype = coefficients, shape = { let _ = coefficients; burn::tensor::Shape::from([1]) })]
    fn bspline_volume_3d(
        coefficients: FloatTensor<Self>,
        mm: Millimetres,
        least: f64,
    ) -> FloatTensor<Self>;

    /// The mean `[1]` and its gradient.
    #[fusion(meta = specs)]
    fn bspline_volume_3d_with_gradient(
        coefficients: FloatTensor<Self>,
        mm: Millimetres,
        least: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

#[cfg(feature = "cube")]
use burn::{backend::fusion::custom::TensorSpec, tensor::Shape};

#[cfg(feature = "cube")]
fn specs(coefficients: &TensorSpec, _: &Millimetres, _: &f64) -> (TensorSpec, TensorSpec) {
    let spec = |shape: Shape| TensorSpec::new(shape, coefficients.dtype);
    (spec(Shape::from([1])), spec(coefficients.shape.clone()))
}

/// Mean of `(log det J)^2` over the cells of a control grid, at eight points a cell. Differentiable (first
/// order).
///
/// # Shapes
/// coefficients `[N, 3, d, h, w]` in voxels of the output grid, whose voxels measure `voxel_mm` (x, y, z);
/// `least` the determinant below which the penalty is continued, [`LEAST_DETERMINANT`] for want of a
/// better; result `[1]`.
///
/// # Errors of the result
/// f32 against f64: 1e-5 of the penalty.
///
/// # Panics
/// If there are not 3 components, an axis has 2 or 3 control points, or `least` is not in (0, 1).
pub fn bspline_volume(
    coefficients: Tensor<5>,
    grid: &ControlGrid,
    voxel_mm: [f64; 3],
    least: f64,
) -> Tensor<1> {
    let mm = checked(&coefficients, grid, voxel_mm, least);
    let coefficients = coefficients.into_dispatch();
    Tensor::from_dispatch(<Dispatch as BsplineVolumeOps>::bspline_volume_3d(
        coefficients,
        mm,
        least,
    ))
}

/// [`bspline_volume`] and its gradient to the coefficients, `[N, 3, d, h, w]`, off the tape. Not differentiable.
///
/// # Panics
/// As [`bspline_volume`].
pub fn bspline_volume_with_gradient(
    coefficients: Tensor<5>,
    grid: &ControlGrid,
    voxel_mm: [f64; 3],
    least: f64,
) -> (Tensor<1>, Tensor<5>) {
    let mm = checked(&coefficients, grid, voxel_mm, least);
    let coefficients = coefficients.into_dispatch();
    let (value, gradient) =
        <Dispatch as BsplineVolumeOps>::bspline_volume_3d_with_gradient(coefficients, mm, least);
    (Tensor::from_dispatch(value), Tensor::from_dispatch(gradient))
}

fn checked(
    coefficients: &Tensor<5>,
    grid: &ControlGrid,
    voxel_mm: [f64; 3],
    least: f64,
) -> Millimetres {
    assert!(
        least > 0.0 && least < 1.0,
        "bspline_volume: the least determinant must lie in (0, 1), got {least}"
    );
    Millimetres::of("bspline_volume", coefficients, grid, voxel_mm)
}

/// Points of the cells along an axis of so many control points.
fn points(controls: usize) -> usize {
    if controls == 1 { 1 } else { POINTS * (controls - 3) }
}

/// What the four control points of a cell weigh at one of its points: values, or slopes per spacing. An axis of one
/// control point does not vary.
fn weights(is_flat: bool, slope: bool, point: usize) -> [f64; 4] {
    let at = (point as f64 + 0.5) / POINTS as f64;
    match (is_flat, slope) {
        (true, true) => [0.0; 4],
        (true, false) => [1.0, 0.0, 0.0, 0.0],
        (false, true) => slopes(at),
        (false, false) => values(at),
    }
}
