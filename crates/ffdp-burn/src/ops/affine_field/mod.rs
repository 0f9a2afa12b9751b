//! Positions of voxels under an affine map, and vectors under a matrix: where a map of physical space takes a grid.
//!
//! ```text
//! y(p) = A p + t + M u(p)
//! ```
//! `p` the voxel (x, y, z) · `u` a vector at each voxel. One sweep, where products and sums of whole fields are five to
//! ten. Backward: `du = M^T dy`, the same op.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// What is done with voxels and vectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Maps {
    /// The rows of `[A|t]`.
    positions: [[f64; 4]; 3],
    /// The rows of `M`.
    vectors: [[f64; 3]; 3],
}

impl Maps {
    /// What the gradient goes back through.
    fn transposed(self) -> Self {
        let vectors = std::array::from_fn(|i| std::array::from_fn(|j| self.vectors[j][i]));
        Self { positions: [[0.0; 4]; 3], vectors }
    }
}

/// Backend operation of an affine field; field and result `[N, 3, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait AffineFieldOps: Backend {
    /// `A p + t + M u(p)`.
    #[fusion(dtype = field, shape = { let _ = maps; field.clone() })]
    fn affine_field_3d(field: FloatTensor<Self>, maps: Maps) -> FloatTensor<Self>;
}

/// `A p + t + M u(p)` at all voxels `p`. Differentiable with respect to the field.
///
/// # Shapes
/// positions: the rows of `[A|t]`; vectors: those of `M`; field `u` and result `[N, 3, D, H, W]`, components (x, y, z).
///
/// # Panics
/// If the field has not 3 components.
pub fn affine_field(
    positions: &[[f64; 4]; 3],
    vectors: &[[f64; 3]; 3],
    field: Tensor<5>,
) -> Tensor<5> {
    let dims = field.dims();
    assert!(dims[1] == 3, "affine_field: the field must be [N, 3, D, H, W], got {dims:?}");
    let maps = Maps { positions: *positions, vectors: *vectors };
    let field = field.into_dispatch();
    Tensor::from_dispatch(<Dispatch as AffineFieldOps>::affine_field_3d(field, maps))
}
