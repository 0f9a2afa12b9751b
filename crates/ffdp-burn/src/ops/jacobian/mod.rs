//! Jacobian determinant of `phi(p) = p + u(p)`, and a penalty on folds.
//!
//! ```text
//! J_ac = [a = c] + D_a u_c          D_a central differences, one-sided at the border
//! det J(p)                          penalty = mean_p max(0, margin - det J(p))
//! ```
//! A determinant is the local change of volume; where it is not positive the map folds. With
//! `margin` 0 the penalty is that of Mok and Chung 2020 (`mean relu(-det J)`). An axis of one voxel
//! does not deform. Central differences do not see a fold of one voxel between two others; the
//! metrics count those as well.
//!
//! Backward, with `C` the cofactors of `J` and `g = dL/d det`:
//! ```text
//! dL/du_c(p) = sum_(a, q) g(q) C_ac(q) dD_a u_c(q)/du_c(p),     q the neighbours of p along a
//! ```
//! Each Jacobian is computed anew in the backward pass, once, and its cofactors go to both ends of its
//! differences: through registers and shared memory on a GPU, plane by plane on the CPU.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::Shape;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// What is made of the determinants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Determinant {
    /// The determinants themselves, `[N, 1, D, H, W]`.
    Field,
    /// `mean max(0, margin - det J)`, `[1]`.
    Penalty {
        /// Determinants below it are penalised.
        margin: f64,
    },
}

impl Determinant {
    fn output_shape(self, field: &Shape) -> Shape {
        match self {
            Self::Field => Shape::from([field[0], 1, field[2], field[3], field[4]]),
            Self::Penalty { .. } => Shape::from([1]),
        }
    }
}

/// Backend operations of the Jacobian determinant of a field `[N, 3, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait JacobianOps: Backend {
    /// The determinants or their penalty.
    #[fusion(dtype = field, shape = output.output_shape(field))]
    fn jacobian_3d(field: FloatTensor<Self>, output: Determinant) -> FloatTensor<Self>;

    /// The gradient of the field from `grad`, that of the output.
    #[fusion(dtype = field, shape = field)]
    fn jacobian_3d_backward(
        field: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        output: Determinant,
    ) -> FloatTensor<Self>;
}

/// Jacobian determinant at every voxel; 1 where volume is kept. Differentiable (first order).
///
/// # Shapes
/// displacement `[N, 3, D, H, W]`, in voxels; result `[N, 1, D, H, W]`.
///
/// # Panics
/// If the displacement has not 3 components.
pub fn jacobian(displacement: Tensor<5>) -> Tensor<5> {
    check(&displacement);
    let field = displacement.into_dispatch();
    Tensor::from_dispatch(<Dispatch as JacobianOps>::jacobian_3d(field, Determinant::Field))
}

/// Penalty on folds: mean over voxels of `max(0, margin - det J)`. With `margin` 0 only folds count
/// and what they fall below 0 by; a small positive margin keeps away from them. Differentiable (first
/// order); the slope at the margin itself is 0.
///
/// # Shapes
/// displacement `[N, 3, D, H, W]`, in voxels; result `[1]`.
///
/// # Panics
/// If the displacement has not 3 components or the margin is not finite.
pub fn jacobian_penalty(displacement: Tensor<5>, margin: f64) -> Tensor<1> {
    check(&displacement);
    assert!(margin.is_finite(), "jacobian_penalty: the margin must be finite, got {margin}");
    let (field, output) = (displacement.into_dispatch(), Determinant::Penalty { margin });
    Tensor::from_dispatch(<Dispatch as JacobianOps>::jacobian_3d(field, output))
}

fn check(displacement: &Tensor<5>) {
    let dims = displacement.dims();
    assert!(dims[1] == 3, "jacobian: the displacement must be [N, 3, D, H, W], got {dims:?}");
}
