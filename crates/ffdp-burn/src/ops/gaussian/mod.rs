//! Separable Gaussian smoothing of images and displacement fields.
//!
//! ```text
//! y = (K x) / (K 1),   K = K_z K_y K_x,   k_i ~ exp(-i^2 / 2 sigma^2), |i| <= radius, sum k = 1
//! ```
//! Borders are renormalised (`K 1 < 1` only there): constants stay constant. Backward, because `K`
//! is symmetric: `dL/dx = K (g / (K 1))`.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(feature = "cube")]
mod march;
#[cfg(test)]
mod tests;

/// Options of [`gaussian`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussianOptions {
    /// Standard deviation per axis (x, y, z), in voxels; 0 leaves the axis alone.
    pub sigma_voxels: [f64; 3],
    /// Radius in standard deviations, rounded up to whole voxels; 3 by default (99.7 % of the
    /// mass along an axis).
    pub truncate: f64,
}

impl GaussianOptions {
    /// The same standard deviation along all axes.
    pub fn isotropic(sigma_voxels: f64) -> Self {
        Self { sigma_voxels: [sigma_voxels; 3], truncate: 3.0 }
    }

    /// How many voxels the kernel looks to either side along axis 0 = x, 1 = y, 2 = z.
    pub fn radius(&self, axis: usize) -> usize {
        (self.truncate * self.sigma_voxels[axis]).ceil() as usize
    }

    /// The half kernel `[k_0, k_1, .., k_radius]` of axis 0 = x, 1 = y, 2 = z.
    pub(crate) fn half_kernel(&self, axis: usize) -> Vec<f64> {
        let sigma = self.sigma_voxels[axis];
        let radius = self.radius(axis);
        let weight = |i: usize| (-0.5 * (i as f64 / sigma).powi(2)).exp();
        let half: Vec<f64> = (0..=radius).map(|i| if i == 0 { 1.0 } else { weight(i) }).collect();
        let mass = half[0] + 2.0 * half[1..].iter().sum::<f64>();
        half.iter().map(|k| k / mass).collect()
    }
}

/// Which of the two linear maps is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `(K x) / (K 1)`.
    Forward,
    /// Its adjoint, `K (g / (K 1))`.
    Adjoint,
}

/// Backend operations of smoothing; any batch and channels, `[N, C, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait GaussianOps: Backend {
    /// The smoothed tensor, or the adjoint map applied to a gradient.
    #[fusion(dtype = x, shape = x)]
    fn gaussian_3d(
        x: FloatTensor<Self>,
        options: GaussianOptions,
        direction: Direction,
    ) -> FloatTensor<Self>;
}

/// Gaussian smoothing of every channel, renormalised at the borders. Differentiable (first order).
///
/// # Shapes
/// x and result `[N, C, D, H, W]`; an image or a displacement field.
///
/// # Panics
/// If a standard deviation or the truncation is negative or not finite.
pub fn gaussian(x: Tensor<5>, options: &GaussianOptions) -> Tensor<5> {
    let valid = |v: f64| v.is_finite() && v >= 0.0;
    assert!(
        options.sigma_voxels.into_iter().all(valid) && valid(options.truncate),
        "gaussian: sigma_voxels and truncate must be finite and >= 0, got {options:?}"
    );
    if options.sigma_voxels == [0.0; 3] {
        return x;
    }
    let (x, forward) = (x.into_dispatch(), Direction::Forward);
    Tensor::from_dispatch(<Dispatch as GaussianOps>::gaussian_3d(x, *options, forward))
}
