//! Layer normalisation: the channels of each token with mean 0 and variance 1, then scaled and shifted.
//!
//! With the mean `m` and the biased variance `v` of the channels of a token:
//! ```text
//! n_c = (x_c - m) / sqrt(v + eps)        y_c = gamma_c n_c + beta_c
//! ```
//! Backward, with `g = dL/dy` and `h_c = g_c gamma_c`:
//! ```text
//! dL/dx_c = (h_c - mean(h) - n_c mean(h n)) / sqrt(v + eps)
//! dL/dgamma_c = sum over tokens of g_c n_c        dL/dbeta_c = sum over tokens of g_c
//! ```
//! Composed of Burn's operations it is a chain of reductions, each of which reads all tokens. Here a
//! token is read once in either pass; the moments are computed again in the backward pass, so that
//! only `x` is kept, which the layer in front keeps anyway.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Backend operations of the normalisation; x `[.., C]`, gamma and beta `[C]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait LayerNormOps: Backend {
    /// The result, of the shape of `x`.
    #[fusion(dtype = x, shape = x)]
    fn normalise_tokens(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self>;

    /// The gradients of `x`, gamma and beta; `grad` is that of the result.
    #[fusion(meta = specs)]
    fn normalise_tokens_backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
fn specs(
    x: &TensorSpec,
    gamma: &TensorSpec,
    _grad: &TensorSpec,
    _epsilon: &f64,
) -> (TensorSpec, TensorSpec, TensorSpec) {
    (x.clone(), gamma.clone(), gamma.clone())
}

/// Layer normalisation over the last axis. Differentiable in all three inputs (first order).
///
/// # Shapes
/// x `[.., C]`, gamma and beta `[C]`; result as x. `epsilon` is added to the variance.
///
/// # Panics
/// If gamma or beta has another number of channels, there is none, or `epsilon` is negative or not
/// finite.
pub fn layer_norm<const D: usize>(
    x: Tensor<D>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> Tensor<D> {
    let channels = x.dims()[D - 1];
    let ([scales], [shifts]) = (gamma.dims(), beta.dims());
    assert!(
        channels > 0 && scales == channels && shifts == channels,
        "layer_norm: {channels} channels, {scales} scales and {shifts} shifts"
    );
    assert!(
        epsilon >= 0.0 && epsilon.is_finite(),
        "layer_norm: epsilon must be finite and not negative, got {epsilon}"
    );
    Tensor::from_dispatch(<Dispatch as LayerNormOps>::normalise_tokens(
        x.into_dispatch(),
        gamma.into_dispatch(),
        beta.into_dispatch(),
        epsilon,
    ))
}
