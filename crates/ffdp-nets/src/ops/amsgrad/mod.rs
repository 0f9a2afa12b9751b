//! A step of Adam with AMSGrad for one parameter of a network, in one pass.
//!
//! With `g` the gradient, element by element:
//! ```text
//! m <- b1 m + (1 - b1) g      v <- b2 v + (1 - b2) g^2      w <- max(w, v)
//! p <- p - rate (m / c1) / (sqrt(w / c2) + eps)             c_i = 1 - b_i^t,  t gradients so far
//! ```
//! Source: Reddi et al., "On the convergence of Adam and beyond", ICLR 2018. Composed of Burn's
//! operations it is a dozen of them for each of hundreds of parameters, and the host is slower in
//! asking for them than a GPU in computing them. Tensors that nothing else holds are updated in
//! place. An optimiser's step is not part of a loss, so it is not differentiable.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Options of [`amsgrad`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmsGradOptions {
    /// `b1`, `b2`: decay of the mean and of the mean square per gradient, in [0, 1); 0.9 and 0.999 by
    /// default, as usual.
    pub beta: [f64; 2],
    /// `eps`, in units of the gradient, positive; 1e-8 by default, as usual.
    pub epsilon: f64,
}

impl Default for AmsGradOptions {
    fn default() -> Self {
        Self { beta: [0.9, 0.999], epsilon: 1e-8 }
    }
}

/// The running moments of a parameter's gradient.
#[derive(Clone, Debug)]
pub struct AmsGradMoments<const D: usize> {
    /// `m`.
    pub mean: Tensor<D>,
    /// `v`.
    pub square: Tensor<D>,
    /// `w`.
    pub largest: Tensor<D>,
    /// `t`.
    pub time: usize,
}

impl<const D: usize> AmsGradMoments<D> {
    /// Those of a parameter like `like` that has seen no gradient.
    pub fn new(like: &Tensor<D>) -> Self {
        let zeros = || Tensor::zeros(like.shape(), (&like.device(), like.dtype()));
        Self { mean: zeros(), square: zeros(), largest: zeros(), time: 0 }
    }
}

/// What the kernels take of the options and of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmsGradConstants {
    beta: [f64; 2],
    /// `rate / c1`.
    rate: f64,
    /// `1 / c2`.
    correction: f64,
    epsilon: f64,
}

/// Backend operations of the step; all tensors of one shape.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait AmsGradOps: Backend {
    /// The new parameter, mean, mean square and largest mean square.
    #[fusion(meta = specs)]
    fn amsgrad_step(
        parameter: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        largest: FloatTensor<Self>,
        constants: AmsGradConstants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
fn specs(
    parameter: &TensorSpec,
    _gradient: &TensorSpec,
    mean: &TensorSpec,
    square: &TensorSpec,
    largest: &TensorSpec,
    _constants: &AmsGradConstants,
) -> (TensorSpec, TensorSpec, TensorSpec, TensorSpec) {
    (parameter.clone(), mean.clone(), square.clone(), largest.clone())
}

/// The parameter and the moments after a step of length `rate`. Not differentiable.
///
/// # Shapes
/// parameter and gradient any, the same; moments too.
///
/// # Panics
/// If the shapes differ, an option is outside its range, or a tensor is on the autodiff tape.
pub fn amsgrad<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<D>,
    moments: AmsGradMoments<D>,
    rate: f64,
    options: &AmsGradOptions,
) -> (Tensor<D>, AmsGradMoments<D>) {
    let (shape, found) = (parameter.dims(), gradient.dims());
    let known = moments.mean.dims();
    assert!(
        shape == found && shape == known,
        "amsgrad: a gradient {found:?} and moments {known:?} for a parameter {shape:?}"
    );
    let AmsGradOptions { beta, epsilon } = *options;
    assert!(
        beta.iter().all(|beta| (0.0..1.0).contains(beta)) && epsilon > 0.0,
        "amsgrad: beta must lie in [0, 1) and epsilon must be positive, got {options:?}"
    );
    let time = moments.time + 1;
    let [c1, c2] = beta.map(|beta| 1.0 - beta.powi(time as i32));
    let constants = AmsGradConstants { beta, rate: rate / c1, correction: 1.0 / c2, epsilon };
    let (parameter, mean, square, largest) = <Dispatch as AmsGradOps>::amsgrad_step(
        parameter.into_dispatch(),
        gradient.into_dispatch(),
        moments.mean.into_dispatch(),
        moments.square.into_dispatch(),
        moments.largest.into_dispatch(),
        constants,
    );
    let [mean, square, largest] = [mean, square, largest].map(Tensor::from_dispatch);
    (Tensor::from_dispatch(parameter), AmsGradMoments { mean, square, largest, time })
}
