//! Local normalised cross-correlation over a box or Gaussian window, value and gradient (FFDP paper,
//! sections 3.3 and F; Avants et al. 2008).
//!
//! With `E[.]` the (weighted) mean over the `w^3` window around a voxel, zeros outside the image:
//! ```text
//! A = E[FM] - E[F] E[M]     B = max(E[F^2] - E[F]^2, 0)     C = max(E[M^2] - E[M]^2, 0)
//! n = A^2 / D,  D = B C + eps               loss = 1 - mean(n), in [0, 1], 0 is perfect
//! ```
//! Gradient of `sum n` to the moved image, `gamma = 2 A / D`, `*` that mean:
//! ```text
//! dM = F (w * gamma) - M (w * (gamma A B / D)) + w * (gamma (A B / D mu_M - mu_F))
//! ```
//! and symmetrically to `F` with `C` for `B`. (The paper's eq. 12 misses a square and drops `eps`.)
//!
//! With [`LnccFloor::Common`], `e = sqrt(eps)` is added to `A`, `B` and `C`, and nothing to `D`; the rest reads the same.
//!
//! All images are read relative to one constant per volume, close to its mean: variances and
//! gradients do not depend on it, but their rounding does.
//!
//! With weights `u` a window's means become `E[u .] / E[u]`, its `n` counts `u` and its gammas
//! `u / E[u]`, and the gradient is `u` times the sum above.
//!
//! The windows of one slab of planes are held at a time, never five volumes: extra memory is that
//! of the gradients plus a fraction of a volume.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use serde::{Deserialize, Serialize};

use super::field_sum::sum_of_all;
use super::weights::NO_WEIGHT;
use ffdp_kit::vjp::scaled;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Which gradient [`lncc`] propagates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GradientMode {
    /// The derivative of the value.
    #[default]
    Exact,
    /// ANTs' approximation: the windows of the neighbours are taken to be the voxel's own,
    /// `dM = gamma ((F - mu_F) - A B / D (M - mu_M))`. Cheaper, and what the paper's figures use.
    AntsApproximate,
}

/// The weights of the voxels in a window; along every axis the same, and together 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LnccWeights {
    /// All the same.
    #[default]
    Box,
    /// Falling off from the centre, cut off at the window's width: `exp(-x^2 / (2 sigma^2))` along every
    /// axis.
    Gaussian {
        /// Standard deviation in voxels, positive.
        sigma_voxels: f64,
    },
}

/// What keeps a window with little variance defined. `eps` is that of [`LnccOptions`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LnccFloor {
    /// `A^2 / (B C + eps)` (FFDP paper, VoxelMorph). Flat windows count as unrelated. Where images match, `n` is
    /// `v^2 / (v^2 + eps)` of their variance `v`: a map that raises the contrast of a faint region is rewarded, and
    /// the best map between two equal images is not the identity.
    #[default]
    Denominator,
    /// `(A + e)^2 / ((B + e) (C + e))`, `e = sqrt(eps)`: the correlation of both images with one noise of variance
    /// `e` added to both. By Cauchy and Schwarz it is at most 1, and it is 1 wherever the images match, in flat windows too.
    Common,
}

/// Normalised weights `[-r, r]` of a Gaussian window along an axis.
fn gaussian_weights(sigma_voxels: f64, radius: usize) -> Vec<f64> {
    let value = |k: usize| (-0.5 * ((k as f64 - radius as f64) / sigma_voxels).powi(2)).exp();
    let sum: f64 = (0..=2 * radius).map(value).sum();
    (0..=2 * radius).map(|k| value(k) / sum).collect()
}

/// Options of [`lncc`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LnccOptions {
    /// Window width in voxels along every axis; odd, 3 to 21. 7 by default (registration);
    /// TransMorph trains with 9.
    pub window: usize,
    /// How the voxels of a window count.
    pub weights: LnccWeights,
    /// `eps`, in intensity^4, positive; 1e-5 by default, for intensities in
    /// [0, 1]. Variances well below its square root count as flat.
    pub epsilon: f64,
    /// Where `eps` stands.
    pub floor: LnccFloor,
    /// Which gradient is propagated.
    pub gradient: GradientMode,
}

impl Default for LnccOptions {
    fn default() -> Self {
        let (weights, floor) = (LnccWeights::Box, LnccFloor::Denominator);
        Self { window: 7, weights, epsilon: 1e-5, floor, gradient: GradientMode::Exact }
    }
}

impl LnccOptions {
    /// What is added to the covariance and to both variances, and to their product.
    fn floors(&self) -> [f64; 2] {
        match self.floor {
            LnccFloor::Denominator => [0.0, self.epsilon],
            LnccFloor::Common => [self.epsilon.sqrt(), 0.0],
        }
    }
}

/// What a backend is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LnccCall {
    /// The user's options.
    pub options: LnccOptions,
    /// Whether the weights are an image or an ignored placeholder.
    pub weighted: bool,
    /// What the sum and its gradients are multiplied by. A loss that is given its factor here has an
    /// upstream gradient of 1 and need not pass over its gradients again.
    pub factor: f64,
}

/// Backend operations of LNCC. Images and weights `[N, C, D, H, W]` (weights or any placeholder);
/// every channel is a volume of its own.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait LnccOps: Backend {
    /// `factor sum u n`, `[1]`.
    #[fusion(dtype = computed(moved), shape = { let _ = moved; burn::tensor::Shape::from([1]) })]
    fn lncc_3d(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: LnccCall,
    ) -> FloatTensor<Self> {
        Self::lncc_3d_with_gradient(moved, fixed, weights, call, [false; 2]).0
    }

    /// `factor sum u n` `[1]` and its gradients to moved and fixed; a placeholder `[1]` where `needs`
    /// is false.
    #[fusion(meta = gradient_specs)]
    fn lncc_3d_with_gradient(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: LnccCall,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// `upstream` `[1]` times a finished gradient, in its memory where nothing else holds that.
    #[fusion(dtype = gradient, shape = { let _ = upstream; gradient.clone() })]
    fn lncc_3d_scaled(
        gradient: FloatTensor<Self>,
        upstream: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        scaled::<Self>(gradient, upstream)
    }
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
use ffdp_kit::half::computed;

#[cfg(feature = "cube")]
fn gradient_specs(
    moved: &TensorSpec,
    fixed: &TensorSpec,
    _weights: &TensorSpec,
    _call: &LnccCall,
    needs: &[bool; 2],
) -> (TensorSpec, TensorSpec, TensorSpec) {
    let one = |input: &TensorSpec| TensorSpec::new([1].into(), computed(input.dtype));
    let gradient = |input: &TensorSpec, needed| match needed {
        true => TensorSpec::new(input.shape.clone(), computed(input.dtype)),
        false => one(input),
    };
    (one(moved), gradient(moved, needs[0]), gradient(fixed, needs[1]))
}

/// Local normalised cross-correlation loss `1 - mean(n)`: 0 for a perfect (linear) relation in
/// every window, 1 for none. Flat regions count as unrelated (`n = 0`), or as [`LnccFloor`] says, never NaN.
///
/// Differentiable in both images (first order). Images may be f16 or bf16; the result is then f32.
///
/// # Shapes
/// moved, fixed `[N, C, D, H, W]`; result `[1]`.
///
/// # Panics
/// If the shapes differ, the window is even or outside 3..=21, or epsilon or the window's sigma is
/// not positive.
pub fn lncc(moved: Tensor<5>, fixed: Tensor<5>, options: &LnccOptions) -> Tensor<1> {
    let factor = -1.0 / moved.shape().num_elements() as f64;
    scaled_sum(moved, fixed, options, factor).add_scalar(1.0)
}

/// `sum n` over all voxels: the additive part of [`lncc`], for losses that are summed over shards.
///
/// # Shapes
/// moved, fixed `[N, C, D, H, W]`; result `[1]`.
///
/// # Panics
/// As [`lncc`].
pub fn lncc_sum(moved: Tensor<5>, fixed: Tensor<5>, options: &LnccOptions) -> Tensor<1> {
    scaled_sum(moved, fixed, options, 1.0)
}

fn scaled_sum(moved: Tensor<5>, fixed: Tensor<5>, options: &LnccOptions, factor: f64) -> Tensor<1> {
    // A placeholder: nothing reads it.
    let weights = fixed.clone().detach();
    run(moved, fixed, weights, LnccCall { options: *options, weighted: false, factor })
}

/// [`lncc`] with weights: a mask, or how far each voxel is to be trusted. Means over a window are
/// weighted by `u` (on top of the window's own weights), and `n` counts `u` at the window's centre:
/// `1 - sum(u n) / sum(u)`. Voxels outside the image have no weight, so that windows at the border
/// hold only what there is, unlike those of [`lncc`].
///
/// Differentiable in both images (first order); the gradient is zero where the weight is.
///
/// # Shapes
/// moved, fixed `[N, C, D, H, W]`; weights `[N or 1, C or 1, D, H, W]`, not negative; result `[1]`.
///
/// # Panics
/// As [`lncc`], or if the weights do not fit the images.
pub fn weighted_lncc(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    weights: Tensor<5>,
    options: &LnccOptions,
) -> Tensor<1> {
    let (image, given) = (moved.dims(), weights.dims());
    let fits = (0..5).all(|axis| given[axis] == image[axis] || axis < 2 && given[axis] == 1);
    assert!(fits, "lncc: weights {given:?} do not fit images {image:?}");
    let weights = weights.detach().expand(image);
    let total = sum_of_all(weights.clone()).add_scalar(NO_WEIGHT);
    weighted_lncc_sum(moved, fixed, weights, options).div(total).neg().add_scalar(1.0)
}

/// `sum(u n)` of [`weighted_lncc`], of weights with the shape of the images.
///
/// # Panics
/// As [`lncc`].
pub fn weighted_lncc_sum(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    weights: Tensor<5>,
    options: &LnccOptions,
) -> Tensor<1> {
    run(moved, fixed, weights, LnccCall { options: *options, weighted: true, factor: 1.0 })
}

fn run(moved: Tensor<5>, fixed: Tensor<5>, weights: Tensor<5>, call: LnccCall) -> Tensor<1> {
    check(&moved, &fixed, &call.options);
    let [moved, fixed, weights] = [moved, fixed, weights].map(Tensor::into_dispatch);
    Tensor::from_dispatch(<Dispatch as LnccOps>::lncc_3d(moved, fixed, weights, call))
}

fn check(moved: &Tensor<5>, fixed: &Tensor<5>, options: &LnccOptions) {
    let (a, b) = (moved.dims(), fixed.dims());
    assert!(a == b, "lncc: moved {a:?} and fixed {b:?} must have the same shape");
    let window = options.window;
    assert!(
        window % 2 == 1 && (3..=21).contains(&window),
        "lncc: the window must be odd and within 3..=21, got {window}"
    );
    let epsilon = options.epsilon;
    assert!(
        epsilon > 0.0 && epsilon.is_finite(),
        "lncc: epsilon must be positive and finite, got {epsilon}; it decides what counts as flat"
    );
    if let LnccWeights::Gaussian { sigma_voxels: sigma } = options.weights {
        assert!(
            sigma > 0.0 && sigma.is_finite(),
            "lncc: sigma_voxels must be positive and finite, got {sigma}; for equal weights take \
             LnccWeights::Box"
        );
    }
}
