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
//! One sweep takes the gradient in and gives the direction, although `rms` must be known before its
//! first division: the mean of `v` follows the same recursion as `v`, `mean v <- b2 mean v +
//! (1 - b2) mean g^2`, so one number a field is kept with the moments, and a sum of squares (left
//! out where `kappa` is 0) is all that goes before. The moments are updated in place when nothing
//! else holds them. An optimiser's step is not part of a loss, so it is not differentiable.
//!
//! Moments may be stored in bf16, with the arithmetic as before: half the memory and traffic of
//! the largest state of a registration. Rounded to nearest, `m` and `v` stand still while a gradient
//! would change them by less than half a unit of the 8-bit mantissa (2^-9 to 2^-8 of themselves):
//! `v` while `g^2` lies within 20 to 40 % of it, `m` while `g` lies within 2 to 4 %. Both still decay, so
//! directions are off by some per cent where gradients hardly change, and nothing drifts.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::DType;
use serde::{Deserialize, Serialize};

use crate::ops::{Update, sum_of_fields};
use ffdp_kit::dense_zeros;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
pub mod part;
#[cfg(test)]
mod tests;

/// How the moments are stored between two gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MomentStorage {
    /// In the gradient's type.
    #[default]
    Full,
    /// In bf16: 2 bytes instead of 4, with 3 decimal digits. On the CPU and on GPUs that have it.
    Bf16,
}

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
    /// How moments that have seen nothing yet will be stored; [`MomentStorage::Full`] by default.
    pub storage: MomentStorage,
}

impl Default for AdamOptions {
    fn default() -> Self {
        let storage = MomentStorage::Full;
        Self { beta: [0.9, 0.99], epsilon: 1e-20, gradient_floor: 0.0, storage }
    }
}

/// The running moments of a gradient; by default they have seen nothing.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    /// `m` and `v`, `[N, 3, D, H, W]`; `None` is zero.
    values: Option<[Tensor<5>; 2]>,
    /// `mean v`, `[N]`; `None` where it was not needed so far.
    power: Option<Tensor<1>>,
    /// `t`.
    count: i32,
}

impl Moments {
    /// `m` and `v`, `[N, 3, D, H, W]`; `None` before the first gradient.
    pub fn values(&self) -> Option<&[Tensor<5>; 2]> {
        self.values.as_ref()
    }

    /// Whether no gradient was seen.
    pub fn is_fresh(&self) -> bool {
        self.values.is_none()
    }

    /// `m` and `v` of a field like `like` of which no gradient was seen.
    pub fn zeros(like: &Tensor<5>, options: &AdamOptions) -> [Tensor<5>; 2] {
        let stored = match options.storage {
            MomentStorage::Full => like.dtype(),
            MomentStorage::Bf16 => DType::BF16,
        };
        [(); 2].map(|()| dense_zeros(like.dims(), &like.device(), stored))
    }

    /// `m`, `v`, `mean v` and `t`, taken out so that kernels may write in place; zeros for a field
    /// like `like` where nothing was seen.
    pub fn take(
        &mut self,
        like: &Tensor<5>,
        options: &AdamOptions,
    ) -> ([Tensor<5>; 2], Tensor<1>, i32) {
        options.check(like, self);
        let (device, dtype, batch) = (like.device(), like.dtype(), like.dims()[0]);
        let fresh = self.values.is_none();
        let [mean, square] = self.values.take().unwrap_or_else(|| Self::zeros(like, options));
        let power = match self.power.take() {
            Some(power) => power,
            None if !fresh && options.gradient_floor > 0.0 => {
                let values = square.shape().num_elements() / batch;
                sum_of_fields(square.clone().cast(dtype)).div_scalar(values as f64)
            }
            None => Tensor::zeros([batch], (&device, dtype)),
        };
        ([mean, square], power, self.count)
    }

    /// What [`Moments::take`] took, after `gradients` more. `options` are those of `take`.
    pub fn put(
        &mut self,
        values: [Tensor<5>; 2],
        power: Tensor<1>,
        gradients: i32,
        options: &AdamOptions,
    ) {
        self.values = Some(values);
        // Without a floor the mean was not kept up.
        self.power = (options.gradient_floor > 0.0).then_some(power);
        self.count += gradients;
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
    /// For the `count`th gradient, from 1.
    pub fn new(options: &AdamOptions, count: i32) -> Self {
        let AdamOptions { beta, epsilon, gradient_floor, .. } = *options;
        let correction = beta.map(|beta| 1.0 / (1.0 - beta.powi(count)));
        Self { beta, correction, epsilon, gradient_floor }
    }
}

/// How a direction enters a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRule {
    /// The step along (x, y, z) for a direction whose longest vector is 1 or shorter, in voxels.
    pub rate: [f64; 3],
    /// Composed with the field, which goes on beyond its border with its border values, or added to it.
    pub update: Update,
}

/// The moments of a field after a gradient, and what its direction needs.
pub struct UpdatedMoments<B: Backend> {
    /// `m`, `[N, 3, D, H, W]`.
    pub mean: FloatTensor<B>,
    /// `v`, `[N, 3, D, H, W]`.
    pub square: FloatTensor<B>,
    /// `mean v`, `[N]`.
    pub power: FloatTensor<B>,
    /// `longest`, `[N]`.
    pub longest: FloatTensor<B>,
}

/// A step without its direction being stored, for ops that are made of several; see
/// [`deform`](super::deform()).
pub trait AdamPieces: Backend {
    /// Takes a gradient into the moments.
    fn take_gradient(
        grad: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        power: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> UpdatedMoments<Self>;

    /// The field after the step `s = rate d / max(longest, 1)`, with the direction `d` of `taken`.
    fn stepped(
        field: FloatTensor<Self>,
        taken: &UpdatedMoments<Self>,
        constants: AdamConstants,
        step: StepRule,
    ) -> FloatTensor<Self>;
}

/// Backend operations of Adam; fields `[N, 3, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
#[allow(clippy::type_complexity)] // Burn's macro wants the tuple spelled out.
pub trait AdamOps: Backend {
    /// The direction, its longest vector per field `[N]`, and the new mean, mean square and the
    /// mean of the latter per field `[N]`.
    #[fusion(meta = specs)]
    fn adam_3d(
        grad: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        power: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> (
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
    );
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
fn specs(
    grad: &TensorSpec,
    mean: &TensorSpec,
    square: &TensorSpec,
    power: &TensorSpec,
    _constants: &AdamConstants,
) -> (TensorSpec, TensorSpec, TensorSpec, TensorSpec, TensorSpec) {
    (grad.clone(), power.clone(), mean.clone(), square.clone(), power.clone())
}

/// Takes a gradient into the moments and returns the direction that they propose. Not differentiable.
///
/// # Shapes
/// gradient and direction `[N, 3, D, H, W]`, longest `[N]`. Every field of the batch has its own
/// `rms` and `longest`; the count is common.
///
/// # Panics
/// If the gradient is on the autodiff tape or has not 3 components, if its shape is not that of the
/// moments, if an option is outside its range, or if the device has no bf16 for moments that are to
/// be stored so.
pub fn adam(gradient: Tensor<5>, moments: &mut Moments, options: &AdamOptions) -> AdamStep {
    let ([mean, square], power, count) = moments.take(&gradient, options);
    let (direction, longest, mean, square, power) = <Dispatch as AdamOps>::adam_3d(
        gradient.into_dispatch(),
        mean.into_dispatch(),
        square.into_dispatch(),
        power.into_dispatch(),
        AdamConstants::new(options, count + 1),
    );
    let values = [mean, square].map(Tensor::from_dispatch);
    moments.put(values, Tensor::from_dispatch(power), 1, options);
    AdamStep {
        direction: Tensor::from_dispatch(direction),
        longest: Tensor::from_dispatch(longest),
    }
}

impl AdamOptions {
    fn check(&self, gradient: &Tensor<5>, moments: &Moments) {
        let dims = gradient.dims();
        assert!(dims[1] == 3, "adam: the gradient must be [N, 3, D, H, W], got {dims:?}");
        if let Some([mean, _]) = &moments.values {
            let known = mean.dims();
            assert!(known == dims, "adam: a gradient {dims:?} for moments of {known:?}");
        }
        let Self { beta, epsilon, gradient_floor, storage } = *self;
        assert!(
            beta.iter().all(|beta| (0.0..1.0).contains(beta))
                && epsilon > 0.0
                && (0.0..f64::INFINITY).contains(&gradient_floor),
            "adam: beta must lie in [0, 1), epsilon must be positive and the floor not negative, got \
             {self:?}"
        );
        assert!(
            storage == MomentStorage::Full || gradient.device().supports_dtype(DType::BF16),
            "adam: {:?} has no bf16; store the moments in full",
            gradient.device()
        );
    }
}
