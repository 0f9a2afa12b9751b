//! Free-form deformation: the dense displacement of a control grid of cubic B-splines
//! (Rueckert et al. 1999; Ikeda et al. 2014, section III-B).
//!
//! ```text
//! u(p) = sum_ijk B(tx - i) B(ty - j) B(tz - k) phi_ijk        t = (p - origin) / spacing, per axis
//! ```
//! `B` the cubic B-spline, 4 control points wide · `phi` the coefficients, on any spacing · `p` the
//! voxel of the output grid or of a part of it. The result has the unit of the coefficients.
//!
//! Backward, with `g = dL/du`, the transpose, one axis after the other:
//! ```text
//! dL/dphi_ijk = sum_p B(tx - i) B(ty - j) B(tz - k) g(p)
//! ```
//! Gathered: each control point owns its sum, so there are no atomics and no order.
//!
//! Which four control points a voxel sees, and with which weights, depends on one axis at a time: the
//! tables of `taps.rs`, computed in f64 on the host (the paper's lookup table). The op is the product of
//! three tables, whatever is in them: values, slopes, or the two-scale relation of [`subdivide`]. Read
//! `taps.rs` next.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::Shape;

mod autodiff;
mod control_grid;
#[cfg(feature = "cube")]
pub(crate) mod cube;
pub(crate) mod flex;
mod subdivision;
mod taps;
#[cfg(test)]
mod tests;

pub use control_grid::{ControlGrid, Millimetres};
pub use subdivision::subdivide;
pub use taps::Beyond;
pub(crate) use taps::{Axis, GaussPoint, Map, basis_at_gauss_points, slopes, taps_at, values};

/// The three tables that a backend receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lattice {
    /// Along x, y, z.
    pub(crate) axes: [Axis; 3],
}

impl Lattice {
    /// Extent (D, H, W) of the control grid.
    pub(crate) fn controls(&self) -> [usize; 3] {
        [2, 1, 0].map(|axis| self.axes[axis].controls)
    }

    /// Extent (D, H, W) of the output.
    pub(crate) fn size(&self) -> [usize; 3] {
        [2, 1, 0].map(|axis| self.axes[axis].len)
    }

    fn shape(&self, of: &Shape, [d, h, w]: [usize; 3]) -> Shape {
        Shape::from([of[0], of[1], d, h, w])
    }

    pub(crate) fn output(&self, coefficients: &Shape) -> Shape {
        self.shape(coefficients, self.size())
    }

    pub(crate) fn input(&self, grad: &Shape) -> Shape {
        self.shape(grad, self.controls())
    }
}

/// Backend operations of the control grid. Shapes: coefficients `[N, C, d, h, w]`, output and its
/// gradient `[N, C, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait BsplineOps: Backend {
    /// The output at every voxel.
    #[fusion(dtype = coefficients, shape = lattice.output(coefficients))]
    fn bspline_3d(coefficients: FloatTensor<Self>, lattice: Lattice) -> FloatTensor<Self>;

    /// The transpose: the gradient of the coefficients.
    #[fusion(dtype = grad, shape = lattice.input(grad))]
    fn bspline_3d_backward(grad: FloatTensor<Self>, lattice: Lattice) -> FloatTensor<Self>;
}

/// The dense field of a control grid at the voxels of an output grid of extent `size` (D, H, W).
/// Differentiable (first order).
///
/// # Shapes
/// coefficients `[N, 3, d, h, w]`, components (x, y, z); result `[N, 3, D, H, W]`, in the unit of the
/// coefficients: voxels of the output grid, for [`warp`](crate::ops::warp).
///
/// # Errors of the result
/// f32 against f64: a few 1e-7 of the largest coefficient. Reproducible bit by bit on one device.
///
/// # Panics
/// If there are not 3 components, or the spacing is not positive and finite.
pub fn bspline(coefficients: Tensor<5>, grid: &ControlGrid, size: [usize; 3]) -> Tensor<5> {
    bspline_part(coefficients, grid, [0; 3], size)
}

/// A part of [`bspline`]: the voxels from `start` (D, H, W) of the output grid on, `size` of them. The same
/// bits as the cut of the whole, wherever the part is evaluated.
///
/// # Shapes
/// coefficients `[N, 3, d, h, w]`; result `[N, 3, D, H, W]` of the part.
///
/// # Panics
/// As [`bspline`].
pub fn bspline_part(
    coefficients: Tensor<5>,
    grid: &ControlGrid,
    start: [usize; 3],
    size: [usize; 3],
) -> Tensor<5> {
    grid.check();
    let dims = coefficients.dims();
    assert!(dims[1] == 3, "bspline: the coefficients must be [N, 3, d, h, w], got {dims:?}");
    let controls = [dims[2], dims[3], dims[4]];
    apply(coefficients, grid.lattice(controls, start, size, [Map::Value; 3]))
}

/// The adjoint of [`bspline_part`]: the gradient of the coefficients from that of the voxels from `start` on. Of
/// parts that make up a grid, the sum is that of the whole. Not differentiable.
///
/// # Shapes
/// gradient `[N, 3, D, H, W]` of the part; result `[N, 3, ..controls]`, `controls` (d, h, w) the control points.
///
/// # Panics
/// As [`bspline`].
pub fn bspline_pull_back(
    gradient: Tensor<5>,
    grid: &ControlGrid,
    controls: [usize; 3],
    start: [usize; 3],
) -> Tensor<5> {
    grid.check();
    let dims = gradient.dims();
    assert!(dims[1] == 3, "bspline: the gradient must be [N, 3, D, H, W], got {dims:?}");
    let size = [dims[2], dims[3], dims[4]];
    let lattice = grid.lattice(controls, start, size, [Map::Value; 3]);
    let gradient = gradient.into_dispatch();
    Tensor::from_dispatch(<Dispatch as BsplineOps>::bspline_3d_backward(gradient, lattice))
}

/// The product of three tables.
pub(crate) fn apply(coefficients: Tensor<5>, lattice: Lattice) -> Tensor<5> {
    let coefficients = coefficients.into_dispatch();
    Tensor::from_dispatch(<Dispatch as BsplineOps>::bspline_3d(coefficients, lattice))
}
