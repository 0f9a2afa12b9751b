//! Linear layers: a product with a matrix, then a bias and an activation in one.
//!
//! ```text
//! z = x w        y = f(z + b)        f = identity, or GELU: f(a) = a Phi(a)
//! dL/da = dL/dy f'(a)      dL/dx = dL/da w^T      dL/dw = x^T dL/da      dL/db = sum of rows of dL/da
//! ```
//! with `Phi` the distribution function of the standard normal, and `GELU'(a) = Phi(a) + a phi(a)`.
//!
//! Why not Burn's `linear`: on a GPU Burn 0.22 tries up to a dozen kernels for each shape of each
//! product, minutes in the first step of a network, and its gradient of the weights leaves most of
//! the GPU idle, since two short matrices over a hundred thousand tokens are few tiles; and on a GPU with
//! tensor cores it may round to TF32, unasked. Here the kernel is one and the same, and long products are
//! cut into slices that are added up; what multiplies is tensor cores, or f32 ([`Precision`]). TF32 on a
//! device without tensor cores is Burn's product.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
#[cfg(feature = "cube")]
use burn::tensor::Shape;

use super::precision::Precision;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// What a layer does to its sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    #[default]
    Identity,
    /// `a Phi(a)`, exact.
    Gelu,
}

/// Backend operations of linear layers; x `[M, K]`, weight `[K, N]`, bias `[N]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait LinearOps: Backend {
    /// `x w`.
    #[fusion(dtype = x, shape = product_shape(x, weight))]
    fn multiply_rows(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self>;

    /// `grad w^T`.
    #[fusion(dtype = grad, shape = rows_shape(grad, weight))]
    fn multiply_rows_to_x(
        grad: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self>;

    /// `x^T grad`.
    #[fusion(dtype = x, shape = weight_shape(x, grad))]
    fn multiply_rows_to_weight(
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self>;

    /// `f(z + b)`, of the shape of z `[M, N]`.
    #[fusion(dtype = z, shape = z)]
    fn activate(
        z: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self>;

    /// The gradients of z and of the bias; `grad` is that of the result. Of z only the shape counts
    /// where the activation is the identity.
    #[fusion(meta = activate_specs)]
    fn activate_backward(
        z: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        activation: Activation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

#[cfg(feature = "cube")]
fn product_shape(x: &Shape, weight: &Shape) -> Shape {
    Shape::from([x[0], weight[1]])
}

#[cfg(feature = "cube")]
fn rows_shape(grad: &Shape, weight: &Shape) -> Shape {
    Shape::from([grad[0], weight[0]])
}

#[cfg(feature = "cube")]
fn weight_shape(x: &Shape, grad: &Shape) -> Shape {
    Shape::from([x[1], grad[1]])
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
fn activate_specs(
    z: &TensorSpec,
    bias: &TensorSpec,
    _grad: &TensorSpec,
    _activation: &Activation,
) -> (TensorSpec, TensorSpec) {
    (z.clone(), bias.clone())
}

/// A linear layer over the last axis, with products of the given precision, in the backward pass too.
/// Differentiable in x, weight and bias (first order).
///
/// # Shapes
/// x `[.., K]`, weight `[K, N]`, bias `[N]`; result `[.., N]`.
///
/// # Panics
/// If the shapes disagree, or there is an activation but no bias.
pub fn linear<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    activation: Activation,
    precision: Precision,
) -> Tensor<D> {
    let mut shape = x.dims();
    let [inputs, outputs] = weight.dims();
    let channels = shape[D - 1];
    assert_eq!(channels, inputs, "linear: x has {channels} channels, the weight expects {inputs}");
    assert!(
        bias.is_some() || activation == Activation::Identity,
        "linear: {activation:?} goes with a bias"
    );
    shape[D - 1] = outputs;
    let rows = x.reshape([-1, channels as i32]).into_dispatch();
    let z = <Dispatch as LinearOps>::multiply_rows(rows, weight.into_dispatch(), precision);
    let y = match bias {
        None => z,
        Some(bias) => {
            let [entries] = bias.dims();
            assert_eq!(entries, outputs, "linear: entries of the bias for {outputs} outputs");
            <Dispatch as LinearOps>::activate(z, bias.into_dispatch(), activation)
        }
    };
    Tensor::<2>::from_dispatch(y).reshape(shape)
}
