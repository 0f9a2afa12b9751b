//! The inverse of a displacement field, at its own voxels or at any points.
//!
//! ```text
//! given y, find s with   f(s) = s + u(y + s) = 0        z = y + s is the point that id + u moves to y
//! ```
//! `y` continuous voxel indices of the field's own grid · `u` the field in voxels, trilinear, continued
//! with its border values, so that there is a solution outside the grid, too.
//!
//! Every point is solved on its own, where it is: first by the fixed-point iteration `s <- -u(y + s)`
//! (Chen et al. 2008, "A simple fixed-point approach to invert a deformation field"), as long as it
//! brings `|f|` down, which it does where the field stretches less than its argument; from there, in
//! steep but diffeomorphic regions, by Newton's method with the exact Jacobian of the trilinear field,
//! damped so that `|f|` only falls. Where the field folds there is no single inverse; such points keep
//! the best that was found.

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

/// Fixed-point iterations: where the field stretches by less than a half, 2^-12 of it is left.
const FIXED_POINT_ITERATIONS: u32 = 12;

/// Steps of Newton's method, those that were refused and halved included.
const NEWTON_ITERATIONS: u32 = 40;

/// Longest step of a Newton iteration in voxels: beyond, the Jacobian of the cell says nothing.
const LONGEST_STEP_VOXELS: f64 = 4.0;

/// The determinant of a Jacobian below which a step is computed as if it were this large.
const LEAST_DETERMINANT: f64 = 1e-2;

/// `|f|` in voxels that counts as solved. Indices of some hundred voxels are rounded to 3e-5 in f32.
fn tolerance_voxels(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-9 } else { 5e-4 }
}

/// Backend operations of the inverse; field `[N, 3, Df, Hf, Wf]`, points and result `[N, 3, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait InverseOps: Backend {
    /// `s` at the points, or at the voxels of `points` if `at_voxels`: only its shape counts then.
    #[fusion(dtype = field, shape = points)]
    fn inverse_3d(
        field: FloatTensor<Self>,
        points: FloatTensor<Self>,
        at_voxels: bool,
    ) -> FloatTensor<Self>;
}

/// The displacement `s` of the inverse of `id + displacement`: `(id + displacement) (y + s(y)) = y`,
/// to 5e-4 voxels in f32 and 1e-9 in f64 wherever the field does not fold.
///
/// `y` are the `points`, or without them the voxels of the field's grid. Not differentiable.
///
/// # Shapes
/// displacement `[N, 3, Df, Hf, Wf]`; points, continuous voxel indices of its grid, and result
/// `[N, 3, D, H, W]`; components (x, y, z) in voxels.
///
/// # Panics
/// If a tensor has not 3 components, the batches differ or a tensor is on the autodiff tape.
pub fn inverse(displacement: Tensor<5>, points: Option<Tensor<5>>) -> Tensor<5> {
    let at_voxels = points.is_none();
    let points = points.unwrap_or_else(|| displacement.clone());
    let (field, at) = (displacement.dims(), points.dims());
    assert!(
        field[1] == 3 && at[1] == 3 && field[0] == at[0],
        "inverse: displacement and points must be [N, 3, D, H, W] of one batch, got {field:?} and {at:?}"
    );
    let (field, points) = (displacement.into_dispatch(), points.into_dispatch());
    Tensor::from_dispatch(<Dispatch as InverseOps>::inverse_3d(field, points, at_voxels))
}
