//! Composition of displacement fields, and the exponential of a velocity field by scaling and
//! squaring (Arsigny et al. 2006).
//!
//! ```text
//! phi o psi = id + w,    w(p) = v(p) + u(p + v(p))        phi = id + u, psi = id + v
//! exp(v): u_0 = v / 2^k,  u_{i+1} = u_i o u_i,  k times
//! ```
//! Backward, with `g = dL/dw`: `dL/dv = g + (grad u)^T g` (local), `dL/du` = scatter of `g`.
//! Outside the grid a field continues with its border values, so that translations compose exactly
//! everywhere. No grid is stored; the tape of `exp` keeps the intermediate fields only.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

use crate::ops::grid_sample::Accumulation;

/// Options of [`compose_with`] and [`exp_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComposeOptions {
    /// How the gradient to the outer field is added up on a GPU; fast by default.
    pub accumulation: Accumulation,
}

/// Backend operations of composition; fields `[N, 3, D, H, W]`. The forward passes take the
/// accumulation along for the tape.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait ComposeOps: Backend {
    /// `w(p) = v(p) + u(p + v(p))`, with `u` the outer and `v` the inner field.
    #[fusion(dtype = inner, shape = inner)]
    fn compose_3d(
        outer: FloatTensor<Self>,
        inner: FloatTensor<Self>,
        accumulation: Accumulation,
    ) -> FloatTensor<Self>;

    /// `u(p) + u(p + u(p))`: a squaring, whose two gradients arrive in one tensor.
    #[fusion(dtype = field, shape = field)]
    fn square_3d(field: FloatTensor<Self>, accumulation: Accumulation) -> FloatTensor<Self>;

    /// The gradients of outer and inner; a placeholder `[1]` where `needs` is false.
    #[fusion(meta = gradient_specs)]
    fn compose_3d_backward(
        outer: FloatTensor<Self>,
        inner: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: [bool; 2],
        accumulation: Accumulation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The gradient of the field that was squared.
    #[fusion(dtype = field, shape = field)]
    fn square_3d_backward(
        field: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        accumulation: Accumulation,
    ) -> FloatTensor<Self>;
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
fn gradient_specs(
    outer: &TensorSpec,
    inner: &TensorSpec,
    _grad: &TensorSpec,
    needs: &[bool; 2],
    _accumulation: &Accumulation,
) -> (TensorSpec, TensorSpec) {
    let spec = |input: &TensorSpec, needed: bool| match needed {
        true => input.clone(),
        false => TensorSpec::new([1].into(), input.dtype),
    };
    (spec(outer, needs[0]), spec(inner, needs[1]))
}

/// The displacement of `(id + outer) o (id + inner)`: first `inner`, then `outer`.
///
/// Differentiable in both fields (first order). On a GPU the last bits of the gradient to `outer`
/// depend on the order of additions; [`compose_with`] can ask them not to.
///
/// # Shapes
/// outer `[N, 3, Do, Ho, Wo]`, inner and result `[N, 3, D, H, W]`; components (x, y, z) in voxels,
/// both grids of the same spacing and origin.
///
/// # Panics
/// If a field has not 3 components or the batches differ.
pub fn compose(outer: Tensor<5>, inner: Tensor<5>) -> Tensor<5> {
    compose_with(outer, inner, &ComposeOptions::default())
}

/// [`compose`] with options.
///
/// # Panics
/// As [`compose`].
pub fn compose_with(outer: Tensor<5>, inner: Tensor<5>, options: &ComposeOptions) -> Tensor<5> {
    let (u, v) = (outer.dims(), inner.dims());
    assert!(
        u[1] == 3 && v[1] == 3 && u[0] == v[0],
        "compose: fields must be [N, 3, D, H, W] of one batch, got outer {u:?} and inner {v:?}"
    );
    let (outer, inner) = (outer.into_dispatch(), inner.into_dispatch());
    let composed = <Dispatch as ComposeOps>::compose_3d(outer, inner, options.accumulation);
    Tensor::from_dispatch(composed)
}

/// The displacement of the diffeomorphism `exp(velocity)`: flow along a stationary velocity field
/// for unit time, by `steps` squarings (7 is the usual number). `exp(-v)` is its inverse.
///
/// # Shapes
/// velocity and result `[N, 3, D, H, W]`, in voxels.
///
/// # Panics
/// If the field has not 3 components, or `steps` is above 30.
pub fn exp(velocity: Tensor<5>, steps: usize) -> Tensor<5> {
    exp_with(velocity, steps, &ComposeOptions::default())
}

/// [`exp`] with options.
///
/// # Panics
/// As [`exp`].
pub fn exp_with(velocity: Tensor<5>, steps: usize, options: &ComposeOptions) -> Tensor<5> {
    assert!(steps <= 30, "exp: {steps} squarings scale the velocity below f32's reach; use <= 30");
    let dims = velocity.dims();
    assert!(dims[1] == 3, "exp: a velocity must be [N, 3, D, H, W], got {dims:?}");
    let mut displacement = velocity.div_scalar((1u64 << steps) as f64);
    for _ in 0..steps {
        let field = displacement.into_dispatch();
        let squared = <Dispatch as ComposeOps>::square_3d(field, options.accumulation);
        displacement = Tensor::from_dispatch(squared);
    }
    displacement
}
