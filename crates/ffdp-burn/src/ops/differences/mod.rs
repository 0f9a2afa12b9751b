//! First derivatives of periodic volumes by central differences of eighth order.
//!
//! ```text
//! d f / d x_a (p) = 1 / h_a sum_s c_s (f(p + s e_a) - f(p - s e_a))      c = 4/5, -1/5, 4/105, -1/280
//! ```
//! `h_a` the size of a voxel along axis `a`, indices modulo the size. For waves longer than some four voxels it
//! differs little from the exact derivative, at a quarter of its price. Antisymmetric: the gradient's transpose is
//! minus the divergence. Source: Brunn et al., Fast GPU 3D diffeomorphic image registration, 2021.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// `c_s`, `s` from 1.
pub(crate) const COEFFICIENTS: [f64; 4] = [4.0 / 5.0, -1.0 / 5.0, 4.0 / 105.0, -1.0 / 280.0];

/// Backend operations; `voxel` (x, y, z).
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait DifferencesOps: Backend {
    /// `[N, 1, D, H, W]` to `[N, 3, D, H, W]`.
    #[fusion(dtype = image, shape = { let mut shape = image.clone(); shape[1] = 3; shape })]
    fn periodic_gradient_3d(image: FloatTensor<Self>, voxel: [f64; 3]) -> FloatTensor<Self>;

    /// `[N, 3, D, H, W]` to `[N, 1, D, H, W]`.
    #[fusion(dtype = field, shape = { let mut shape = field.clone(); shape[1] = 1; shape })]
    fn periodic_divergence_3d(field: FloatTensor<Self>, voxel: [f64; 3]) -> FloatTensor<Self>;
}

fn check(op: &str, dims: [usize; 5], channels: usize, voxel: [f64; 3]) {
    assert!(
        dims[1] == channels && !dims.contains(&0),
        "{op}: the tensor must be [N, {channels}, D, H, W], got {dims:?}"
    );
    assert!(
        voxel.iter().all(|h| *h > 0.0 && h.is_finite()),
        "{op}: voxels must have a positive size, got {voxel:?}"
    );
}

/// The gradient of a periodic image, per unit of `voxel`. Differentiable (first order).
///
/// # Shapes
/// image `[N, 1, D, H, W]`; `voxel` the size of a voxel (x, y, z); result `[N, 3, D, H, W]`, components (x, y, z).
///
/// # Errors of the result
/// `h^8 / 630` times the ninth derivative; f32 some 2e-7 of the largest value over `h`.
///
/// # Panics
/// If the image has several channels, an axis is empty or a size is not positive.
pub fn periodic_gradient(image: Tensor<5>, voxel: [f64; 3]) -> Tensor<5> {
    check("periodic_gradient", image.dims(), 1, voxel);
    let image = image.into_dispatch();
    Tensor::from_dispatch(<Dispatch as DifferencesOps>::periodic_gradient_3d(image, voxel))
}

/// The divergence of a periodic field, per unit of `voxel`. Differentiable (first order).
///
/// # Shapes
/// field `[N, 3, D, H, W]`, components (x, y, z); result `[N, 1, D, H, W]`.
///
/// # Panics
/// As [`periodic_gradient`].
pub fn periodic_divergence(field: Tensor<5>, voxel: [f64; 3]) -> Tensor<5> {
    check("periodic_divergence", field.dims(), 3, voxel);
    let field = field.into_dispatch();
    Tensor::from_dispatch(<Dispatch as DifferencesOps>::periodic_divergence_3d(field, voxel))
}
