//! Normalised gradient of an image: where its edges are and which way they run, whatever their contrast (Haber and
//! Modersitzki 2006).
//!
//! ```text
//! n(p) = grad I / sqrt(|grad I|^2 + eta^2)          grad_a I = (I(p+) - I(p-)) / (h_a |p+ - p-|)
//! ```
//! `p+`, `p-` the neighbours along axis `a`, at the border the voxel itself (one-sided), `h_a` the size of a voxel ·
//! `eta` the edge parameter: slopes well below it count as noise. An axis of one voxel has no slope.
//!
//! Backward, with `g = dL/dn`, `G` the gradient and `rho` the root:
//! ```text
//! dL/dG = g / rho - G (G . g) / rho^3          dL/dI = adjoint of the differences
//! ```
//! The slopes are computed anew in the backward pass; nothing is stored.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
#[cfg(feature = "cube")] // asked for by fusion
use burn::tensor::Shape;

#[cfg(feature = "cube")]
use ffdp_kit::half::computed;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// What a backend is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edges {
    /// The size of a voxel along x, y, z.
    pub voxel: [f64; 3],
    /// `eta`, in intensity per unit of `voxel`.
    pub eta: f64,
}

/// Backend operations: image `[N, 1, D, H, W]`, result and its gradient `[N, 3, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait NormalizedGradientOps: Backend {
    /// `n`.
    #[fusion(
        dtype = computed(image),
        shape = Shape::from([image[0], 3, image[2], image[3], image[4]])
    )]
    fn normalized_gradient_3d(image: FloatTensor<Self>, edges: Edges) -> FloatTensor<Self>;

    /// The gradient of the image from `grad`, that of `n`.
    #[fusion(dtype = computed(image), shape = { let _ = grad; image.clone() })]
    fn normalized_gradient_3d_backward(
        image: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        edges: Edges,
    ) -> FloatTensor<Self>;
}

/// The normalised gradient of an image: vectors shorter than 1, towards higher intensities. Differentiable (first
/// order). The image may be f16 or bf16; the result is then f32.
///
/// # Shapes
/// image `[N, 1, D, H, W]`; `voxel` the size of a voxel (x, y, z) in any unit, such as mm; `eta` in intensity per that
/// unit; result `[N, 3, D, H, W]`, components (x, y, z).
///
/// # Panics
/// If the image has several channels or an axis without voxels, or `eta` or a size is not positive.
pub fn normalized_gradient(image: Tensor<5>, voxel: [f64; 3], eta: f64) -> Tensor<5> {
    let dims = image.dims();
    assert!(
        dims[1] == 1 && !dims.contains(&0),
        "normalized_gradient: the image must be [N, 1, D, H, W], got {dims:?}"
    );
    assert!(
        voxel.iter().chain([&eta]).all(|value| *value > 0.0 && value.is_finite()),
        "normalized_gradient: voxels and eta must be positive, got {voxel:?} and {eta}"
    );
    let (image, edges) = (image.into_dispatch(), Edges { voxel, eta });
    Tensor::from_dispatch(<Dispatch as NormalizedGradientOps>::normalized_gradient_3d(image, edges))
}
