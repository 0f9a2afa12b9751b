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
//! The three columns of `J` are three control grids evaluated with slopes along one axis
//! ([`bspline`](crate::ops::bspline())); this room is what follows at each point. Backward, with `C` the
//! cofactors: `dE/dJ = f'(det J) C / count`.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

use super::bspline::{Axis, Beyond, ControlGrid, Lattice, Map, apply};
use super::bspline_bending::{in_mm, scaled};

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

/// Backend operations of the penalty; the derivatives of a displacement along x, y, z are `[N, 3, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait BsplineVolumeOps: Backend {
    /// The mean over all points, `[1]`.
    #[fusion(dtype = along_x, shape = { let _ = (along_x, along_y, along_z); burn::tensor::Shape::from([1]) })]
    fn log_volume_3d(
        along_x: FloatTensor<Self>,
        along_y: FloatTensor<Self>,
        along_z: FloatTensor<Self>,
        least: f64,
    ) -> FloatTensor<Self>;

    /// Its gradients times `grad` `[1]`.
    #[fusion(meta = gradient_specs)]
    fn log_volume_3d_backward(
        along_x: FloatTensor<Self>,
        along_y: FloatTensor<Self>,
        along_z: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        least: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
fn gradient_specs(
    along_x: &TensorSpec,
    along_y: &TensorSpec,
    along_z: &TensorSpec,
    _grad: &TensorSpec,
    _least: &f64,
) -> (TensorSpec, TensorSpec, TensorSpec) {
    let spec = |of: &TensorSpec| TensorSpec::new(of.shape.clone(), of.dtype);
    (spec(along_x), spec(along_y), spec(along_z))
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
    let spacing = in_mm("bspline_volume", &coefficients, grid, voxel_mm);
    assert!(
        least > 0.0 && least < 1.0,
        "bspline_volume: the least determinant must lie in (0, 1), got {least}"
    );
    let along = |slope: usize| {
        let lattice = points(&coefficients, slope);
        let factors = voxel_mm.map(|mm| mm / spacing[slope]);
        apply(scaled(coefficients.clone(), factors), lattice).into_dispatch()
    };
    Tensor::from_dispatch(<Dispatch as BsplineVolumeOps>::log_volume_3d(
        along(0),
        along(1),
        along(2),
        least,
    ))
}

/// The derivative along one axis at the points of all cells, per spacing.
fn points(coefficients: &Tensor<5>, slope: usize) -> Lattice {
    let dims = coefficients.dims();
    let axis = |a: usize| {
        let controls = dims[4 - a];
        let step = 1.0 / POINTS as f64;
        Axis {
            controls,
            len: if controls == 1 { 1 } else { POINTS * (controls - 3) },
            // The first cell begins at control point 1.
            origin: -1.0 - step / 2.0,
            step,
            spacing: 1.0,
            map: if a == slope { Map::Slope } else { Map::Value },
            beyond: Beyond::Fade,
        }
    };
    Lattice { axes: [0, 1, 2].map(axis) }
}
