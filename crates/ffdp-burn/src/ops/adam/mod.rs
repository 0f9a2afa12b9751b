//! Adam's direction for a displacement field, with the length of its longest vector.
//!
//! With `g` the gradient, per component and voxel:
//! ```text
//! m <- b1 m + (1 - b1) g              v <- b2 v + (1 - b2) g^2
//! d = (m / c1) / (sqrt(v / c2) + kappa rms + eps)      c_i = 1 - b_i^t,  t gradients so far
//! rms = sqrt(mean v / c2)             longest = max_p |d(p)|
//! ```
//! `rms` and `longest` are taken over each field of a batch and stay on the device: nothing waits.
//! The floor `kappa rms` is Adam's epsilon as a part of the gradient's own size: where the images
//! say nothing, a gradient of mere noise is not blown up to a full step.
//!
//! Two sweeps, because `rms` must be known before the first division: the moments (updated in place
//! when nothing else holds them) and the direction. Extra memory: the direction. Moments have the
//! gradient's type, f32 on a GPU; there are none of half the width yet. An optimiser's step is not
//! part of a loss, so it is not differentiable.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Options of [`adam`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamOptions {
    /// `b1`, `b2`: decay of the mean and of the mean square per gradient, in [0, 1). 0.9 and 0.99 by
    /// default (FFDP paper; the second is faster than Adam's usual 0.999, because a level of a
    /// registration has only tens of iterations).
    pub beta: [f64; 2],
    /// `eps`, in units of the gradient; positive, 1e-20 by default: only keeps the division defined
    /// where every gradient has always been zero.
    pub epsilon: f64,
    /// `kappa`, a part of the field's root mean square; 0 by default (plain Adam).
    pub gradient_floor: f64,
}

impl Default for AdamOptions {
    fn default() -> Self {
        Self { beta: [0.9, 0.99], epsilon: 1e-20, gradient_floor: 0.0 }
    }
}

/// The running moments of a gradient; by default they have seen nothing.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    /// `m` and `v`, `[N, 3, D, H, W]`; `None` is zero.
    values: Option<[Tensor<5>; 2]>,
    /// `t`.
    count: i32,
}

impl Moments {
    /// The moments carried to another grid by `carry`. The count starts again, so that the first
    /// gradients there weigh as much as the first ones of all.
    pub fn carried(self, carry: impl Fn(Tensor<5>) -> Tensor<5>) -> Self {
        Self { values: self.values.map(|values| values.map(carry)), count: 0 }
    }

    /// `m` and `v`, `[N, 3, D, H, W]`; `None` before the first gradient.
    pub fn values(&self) -> Option<&[Tensor<5>; 2]> {
        self.values.as_ref()
    }
}

/// What [`adam`] proposes.
#[derive(Clone, Debug)]
pub struct AdamStep {
    /// `d`, `[N, 3, D, H, W]`; a step goes against it.
    pub direction: Tensor<5>,
    /// The length of the longest vector of each field, `[N]`, on the device.
    pub longest: Tensor<1>,
}

/// The numbers of one step that a backend receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamConstants {
    /// `b1`, `b2`.
    pub beta: [f64; 2],
    /// `1 / c1`, `1 / c2`.
    pub correction: [f64; 2],
    /// `eps`.
    pub epsilon: f64,
    /// `kappa`.
    pub gradient_floor: f64,
}

impl AdamConstants {
    fn new(options: &AdamOptions, count: i32) -> Self {
        let AdamOptions { beta, epsilon, gradient_floor } = *options;
        let correction = beta.map(|beta| 1.0 / (1.0 - beta.powi(count)));
        Self { beta, correction, epsilon, gradient_floor }
    }
}

/// Backend operations of Adam; fields `[N, 3, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait AdamOps: Backend {
    /// The direction, its longest vector per field `[N]`, and the new mean and mean square.
    #[fusion(meta = specs)]
    fn adam_3d(
        grad: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
fn specs(
    grad: &TensorSpec,
    mean: &TensorSpec,
    square: &TensorSpec,
    _constants: &AdamConstants,
) -> (TensorSpec, TensorSpec, TensorSpec, TensorSpec) {
    let longest = TensorSpec::new([grad.shape[0]].into(), grad.dtype);
    (grad.clone(), longest, mean.clone(), square.clone())
}

/// Takes a gradient into the moments and returns the direction that they propose. Not differentiable.
///
/// # Shapes
/// gradient and direction `[N, 3, D, H, W]`, longest `[N]`. Every field of the batch has its own
/// `rms` and `longest`; the count is common.
///
/// # Panics
/// If the gradient is on the autodiff tape or has not 3 components, if its shape is not that of the
/// moments, or if an option is outside its range.
pub fn adam(gradient: Tensor<5>, moments: &mut Moments, options: &AdamOptions) -> AdamStep {
    check(&gradient, moments, options);
    let zeros = || [gradient.zeros_like(), gradient.zeros_like()];
    // Taken out, so that the kernels may write in place.
    let [mean, square] = moments.values.take().unwrap_or_else(zeros);
    moments.count += 1;
    let (direction, longest, mean, square) = <Dispatch as AdamOps>::adam_3d(
        gradient.into_dispatch(),
        mean.into_dispatch(),
        square.into_dispatch(),
        AdamConstants::new(options, moments.count),
    );
    moments.values = Some([mean, square].map(Tensor::from_dispatch));
    AdamStep {
        direction: Tensor::from_dispatch(direction),
        longest: Tensor::from_dispatch(longest),
    }
}

fn check(gradient: &Tensor<5>, moments: &Moments, options: &AdamOptions) {
    let dims = gradient.dims();
    assert!(dims[1] == 3, "adam: the gradient must be [N, 3, D, H, W], got {dims:?}");
    if let Some([mean, _]) = &moments.values {
        let known = mean.dims();
        assert!(known == dims, "adam: a gradient {dims:?} for moments of {known:?}");
    }
    let AdamOptions { beta, epsilon, gradient_floor } = *options;
    assert!(
        beta.iter().all(|beta| (0.0..1.0).contains(beta))
            && epsilon > 0.0
            && (0.0..f64::INFINITY).contains(&gradient_floor),
        "adam: beta must lie in [0, 1), epsilon must be positive and the floor not negative, got \
         {options:?}"
    );
}
