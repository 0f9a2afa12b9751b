//! Bending energy of a control grid, from its coefficients, exactly (Rueckert et al. 1999).
//!
//! ```text
//! E = 1/3 sum_c 1/V integral sum_ab (d_a d_b u_c)^2 dx  =  sum_c phi_c^T K phi_c
//! K = 1/3 sum_ab 1/V  G_z^(p_z) G_y^(p_y) G_x^(p_x)       G^(p)_ij = integral B^(p)(t - i) B^(p)(t - j) dt
//! ```
//! `u` the displacement in mm, derivatives by mm, the integral over the cells whose four control points
//! exist, `V` their volume, `p` how often `d_a d_b` differentiates along an axis. The integrals of products
//! of splines are known, so `K` is a sum of products of banded matrices, seven entries a row.
//!
//! In 1/mm^2. A mean over space and over the three components, so it is the same number on every level: the
//! same field on a denser grid has the same energy, exactly. It is that of
//! [`bending_energy`](crate::ops::bending_energy) for a dense field in the limit of small voxels. 0 for
//! affine fields.
//!
//! Gradient: `dE/dphi = 2 K phi`, `K` being symmetric; a by-product of the energy, and computed with it.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

use super::bspline::{ControlGrid, GaussPoint, Millimetres, basis_at_gauss_points};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Neighbours that a control point shares a cell with, to either side.
const REACH: usize = 3;

/// A row of a banded matrix: the entries from `i - REACH` to `i + REACH`.
type Band = [f64; 2 * REACH + 1];

/// How often a term differentiates along x, y, z, and its factor.
struct Term {
    orders: [usize; 3],
    weight: f64,
}

/// The six kinds of second derivatives; mixed ones occur twice.
fn terms(spacing: [f64; 3], batch: usize) -> [Term; 6] {
    let kinds = [[2, 0, 0], [0, 2, 0], [0, 0, 2], [1, 1, 0], [1, 0, 1], [0, 1, 1]];
    kinds.map(|orders| {
        let times = if orders.contains(&2) { 1.0 } else { 2.0 };
        let per_mm = |a: usize| spacing[a].powi(-2 * orders[a] as i32);
        let scale = (0..3).map(per_mm).product::<f64>();
        Term { orders, weight: times * scale / (3 * batch) as f64 }
    })
}

/// `G^(order)` of an axis, over the mean cell.
fn gram(controls: usize, order: usize) -> Vec<Band> {
    let mut rows = vec![[0.0; 2 * REACH + 1]; controls];
    if controls == 1 {
        rows[0][REACH] = f64::from(u8::from(order == 0));
        return rows;
    }
    let cells = controls - 3;
    for GaussPoint { weight, basis } in basis_at_gauss_points(order) {
        for cell in 0..cells {
            for (i, a) in basis.iter().enumerate() {
                for (j, b) in basis.iter().enumerate() {
                    rows[cell + i][REACH + j - i] += weight * a * b / cells as f64;
                }
            }
        }
    }
    rows
}

/// Backend operations of the bending energy; coefficients `[N, 3, d, h, w]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait BsplineBendingOps: Backend {
    /// The energy, `[1]`.
    #[fusion(dtype = coefficients, shape = { let _ = coefficients; burn::tensor::Shape::from([1]) })]
    fn bspline_bending_3d(coefficients: FloatTensor<Self>, mm: Millimetres) -> FloatTensor<Self>;

    /// The energy `[1]` and its gradient.
    #[fusion(meta = specs)]
    fn bspline_bending_3d_with_gradient(
        coefficients: FloatTensor<Self>,
        mm: Millimetres,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

#[cfg(feature = "cube")]
use burn::{backend::fusion::custom::TensorSpec, tensor::Shape};

#[cfg(feature = "cube")]
fn specs(coefficients: &TensorSpec, _mm: &Millimetres) -> (TensorSpec, TensorSpec) {
    let spec = |shape: Shape| TensorSpec::new(shape, coefficients.dtype);
    (spec(Shape::from([1])), spec(coefficients.shape.clone()))
}

/// Bending energy of the field of a control grid, in 1/mm^2: the mean over its cells and over the
/// components of the squared second derivatives. Differentiable (first order).
///
/// # Shapes
/// coefficients `[N, 3, d, h, w]` in voxels of the output grid, whose voxels measure `voxel_mm` (x, y, z);
/// result `[1]`.
///
/// # Errors of the result
/// f32 against f64: 1e-6 of the energy.
///
/// # Panics
/// If there are not 3 components, or an axis has 2 or 3 control points, which have no complete cell.
pub fn bspline_bending(
    coefficients: Tensor<5>,
    grid: &ControlGrid,
    voxel_mm: [f64; 3],
) -> Tensor<1> {
    let mm = Millimetres::of("bspline_bending", &coefficients, grid, voxel_mm);
    let coefficients = coefficients.into_dispatch();
    Tensor::from_dispatch(<Dispatch as BsplineBendingOps>::bspline_bending_3d(coefficients, mm))
}

/// [`bspline_bending`] and its gradient to the coefficients, `[N, 3, d, h, w]`, off the tape. Not differentiable.
///
/// # Panics
/// As [`bspline_bending`].
pub fn bspline_bending_with_gradient(
    coefficients: Tensor<5>,
    grid: &ControlGrid,
    voxel_mm: [f64; 3],
) -> (Tensor<1>, Tensor<5>) {
    let mm = Millimetres::of("bspline_bending", &coefficients, grid, voxel_mm);
    let coefficients = coefficients.into_dispatch();
    let (energy, gradient) =
        <Dispatch as BsplineBendingOps>::bspline_bending_3d_with_gradient(coefficients, mm);
    (Tensor::from_dispatch(energy), Tensor::from_dispatch(gradient))
}
