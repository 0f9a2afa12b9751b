//! Instance normalisation followed by LeakyReLU, in one.
//!
//! For each channel of each sample, with its mean `m` and its biased variance `v` over the voxels:
//! ```text
//! n(p) = (x(p) - m) / sqrt(v + eps)        y(p) = n(p) if n(p) > 0, else slope n(p)
//! ```
//! Backward, with `h(p) = dL/dy(p)` times 1 or the slope:
//! ```text
//! dL/dx(p) = (h(p) - mean(h) - n(p) mean(h n)) / sqrt(v + eps)
//! ```
//! The activation can be undone, so that `n` is known from `y`, which the layer behind keeps anyway:
//! nothing of the size of a volume is stored for this op alone. A volume is read once for the
//! moments and once for the result, and likewise in the backward pass.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
pub mod part;
#[cfg(test)]
mod tests;

pub use part::instance_norm_in_parts;

/// Options of [`instance_norm`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstanceNormOptions {
    /// `eps`, added to the variance, not negative; 1e-5 by default, as in PyTorch.
    pub epsilon: f64,
    /// The slope of the activation below zero, in (0, 1]; 0.01 by default, as in PyTorch. With 1
    /// there is no activation.
    pub slope: f64,
}

impl Default for InstanceNormOptions {
    fn default() -> Self {
        Self { epsilon: 1e-5, slope: 0.01 }
    }
}

impl InstanceNormOptions {
    fn assert_sound(&self, x: &Tensor<5>) {
        let Self { epsilon, slope } = *self;
        assert!(
            epsilon >= 0.0 && epsilon.is_finite(),
            "instance_norm: epsilon must be finite and not negative, got {epsilon}"
        );
        assert!(slope > 0.0 && slope <= 1.0, "instance_norm: slope must be in (0, 1], got {slope}");
        let shape = x.dims();
        assert!(!shape.contains(&0), "instance_norm: {shape:?} has no voxels to normalise");
    }
}

/// Backend operations of the normalisation of `[N, C, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait InstanceNormOps: Backend {
    /// The result.
    #[fusion(dtype = x, shape = x)]
    fn instance_norm_3d(x: FloatTensor<Self>, options: InstanceNormOptions) -> FloatTensor<Self>;

    /// The result, and the scaling: means and `1 / sqrt(v + eps)`, `[2, N C]`.
    #[fusion(meta = specs)]
    fn instance_norm_3d_with_scaling(
        x: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The gradient of `x` from the result `y`, the scaling and the gradient of `y`.
    #[fusion(dtype = y, shape = y)]
    fn instance_norm_3d_backward(
        y: FloatTensor<Self>,
        scaling: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self>;
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
fn specs(x: &TensorSpec, _options: &InstanceNormOptions) -> (TensorSpec, TensorSpec) {
    let rows = x.shape[0] * x.shape[1];
    (x.clone(), TensorSpec::new([2, rows].into(), x.dtype))
}

/// Each channel of each sample with mean 0 and variance 1, then LeakyReLU. Differentiable (first
/// order).
///
/// # Shapes
/// x `[N, C, D, H, W]`; result the same.
///
/// # Panics
/// If `epsilon` is negative or not finite, `slope` is not in (0, 1], or a volume is empty.
pub fn instance_norm(x: Tensor<5>, options: &InstanceNormOptions) -> Tensor<5> {
    options.assert_sound(&x);
    Tensor::from_dispatch(<Dispatch as InstanceNormOps>::instance_norm_3d(
        x.into_dispatch(),
        *options,
    ))
}
