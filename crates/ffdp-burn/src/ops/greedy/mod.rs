//! Iterations of the compositive greedy method (Avants et al. 2008, FFDP paper section 2), several
//! in one op.
//!
//! ```text
//! moved = M(A p + t + S u(p))             g = d measure(moved, fixed) / du
//! d = Adam(G_gradient g),  longest vector at most 1, short where g is faint
//! s = +-r d                               u <- G_warp (s + u o (id + s))
//! ```
//! `u` displacement in voxels of the fixed grid · `[A|t]`, `S` from fixed to moving voxels · `G`
//! Gaussian smoothing · `r` the step along x, y, z; with the sign that improves the measure.
//! The composition, in place of a sum, keeps the map invertible: each step is a small deformation of
//! its own.
//!
//! This is the other fused operations called one after the other, on the backend itself: each
//! of them through Burn's autodiff and fusion costs about 0.06 ms of the host, more than the GPU
//! needs for a small volume. Beyond that it stores no direction and no scaled step, scales no gradient
//! (Adam does not see its size), and leaves the measures on the device: a caller reads them
//! once for all iterations of a call. `iterate.rs` is the whole method, for every backend.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

mod autodiff;
mod compare;
mod iterate;
#[cfg(test)]
mod tests;

use super::adam::{AdamOptions, Moments};
use super::gaussian::GaussianOptions;
use super::grid_sample::{Accumulation, Interpolation, Padding, Sampling};
use super::joint_histogram::HistogramOptions;
use super::lncc::LnccOptions;

/// What the iterations improve, summed over the voxels, so that it adds up over parts of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// `sum n` of [`lncc`](super::lncc()): upwards.
    Lncc(LnccOptions),
    /// `sum (moved - fixed)^2`: downwards.
    SquaredDifference,
    /// The mutual information in nats times the number of voxels, summed over the batch: upwards.
    MutualInformation(HistogramOptions),
}

impl Measure {
    /// The sign of a step along the gradient.
    pub(crate) fn sign(&self) -> f64 {
        match self {
            Self::Lncc(_) | Self::MutualInformation(_) => 1.0,
            Self::SquaredDifference => -1.0,
        }
    }
}

/// Options of [`greedy`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GreedyOptions {
    /// What is improved.
    pub measure: Measure,
    /// `S`, rows and columns in (x, y, z); see
    /// [`GridSampleOptions`](super::GridSampleOptions::displacement_scale).
    pub displacement_scale: [[f64; 3]; 3],
    /// `r`: the step along (x, y, z), in voxels, where the direction's longest vector is 1 or
    /// longer.
    pub step_voxels: [f64; 3],
    /// `G_gradient`; no standard deviation, no smoothing.
    pub smooth_gradient: GaussianOptions,
    /// `G_warp`.
    pub smooth_warp: GaussianOptions,
    /// How the gradients of the past count.
    pub adam: AdamOptions,
}

/// The images of a [`greedy`] registration.
#[derive(Clone, Debug)]
pub struct GreedyImages {
    /// `[N, C, D, H, W]`.
    pub fixed: Tensor<5>,
    /// `[N, C, Di, Hi, Wi]`.
    pub moving: Tensor<5>,
    /// `[A|t]`, from fixed to moving voxels in (x, y, z), `[1 or N, 3, 4]`.
    pub affine: Tensor<3>,
}

/// What changes from iteration to iteration.
#[derive(Clone, Debug)]
pub struct GreedyState {
    /// `u`, `[N, 3, D, H, W]`.
    pub displacement: Tensor<5>,
    /// Of its gradient.
    pub moments: Moments,
}

/// The resolved options that a backend receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GreedyPlan {
    /// As they were given.
    pub options: GreedyOptions,
    /// How the moving image is read.
    pub sampling: Sampling,
    /// Gradients that the moments have seen.
    pub seen: i32,
    /// Iterations to do.
    pub iterations: usize,
}

/// Backend operation of the greedy method. Shapes as in [`GreedyImages`] and [`GreedyState`]; the
/// moments and the mean of the second, `[N]`, as in [`AdamOps`](super::adam::AdamOps).
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
#[allow(clippy::type_complexity)] // Burn's macro wants the tuple spelled out.
pub trait GreedyOps: Backend {
    /// The measures before each iteration `[iterations]`, and the new displacement, mean, mean
    /// square and mean of the latter.
    #[fusion(meta = specs)]
    fn greedy_3d(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        power: FloatTensor<Self>,
        plan: GreedyPlan,
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
    fixed: &TensorSpec,
    _moving: &TensorSpec,
    _affine: &TensorSpec,
    displacement: &TensorSpec,
    mean: &TensorSpec,
    square: &TensorSpec,
    power: &TensorSpec,
    plan: &GreedyPlan,
) -> (TensorSpec, TensorSpec, TensorSpec, TensorSpec, TensorSpec) {
    let measures = TensorSpec::new([plan.iterations].into(), fixed.dtype);
    (measures, displacement.clone(), mean.clone(), square.clone(), power.clone())
}

/// Does `iterations` of the greedy method. Returns the measure before each of them, `[iterations]`, on
/// the device, and the state after the last. Not differentiable.
///
/// # Panics
/// If there is nothing to do, a tensor is on the autodiff tape, shapes do not fit each other, or
/// an option has no meaning.
pub fn greedy(
    images: &GreedyImages,
    state: GreedyState,
    options: &GreedyOptions,
    iterations: usize,
) -> (Tensor<1>, GreedyState) {
    // Taken apart, so that the memory of each is free once the first iteration has read it.
    let GreedyState { displacement, mut moments } = state;
    check(images, &displacement, options, iterations);
    let [_, _, d, h, w] = displacement.dims();
    let sampling = Sampling {
        interpolation: Interpolation::Linear,
        padding: Padding::Zeros,
        scale: options.displacement_scale,
        size: [d, h, w],
        has_affine: true,
        has_displacement: true,
        accumulation: Accumulation::Fast,
    };
    let ([mean, square], power, seen) = moments.take(&displacement, &options.adam);
    let (measures, displacement, mean, square, power) = <Dispatch as GreedyOps>::greedy_3d(
        images.fixed.clone().into_dispatch(),
        images.moving.clone().into_dispatch(),
        images.affine.clone().into_dispatch(),
        displacement.into_dispatch(),
        mean.into_dispatch(),
        square.into_dispatch(),
        power.into_dispatch(),
        GreedyPlan { options: *options, sampling, seen, iterations },
    );
    let values = [mean, square].map(Tensor::from_dispatch);
    moments.put(values, Tensor::from_dispatch(power), iterations as i32, &options.adam);
    let displacement = Tensor::from_dispatch(displacement);
    (Tensor::from_dispatch(measures), GreedyState { displacement, moments })
}

fn check(images: &GreedyImages, field: &Tensor<5>, options: &GreedyOptions, iterations: usize) {
    let (fixed, moving) = (images.fixed.dims(), images.moving.dims());
    let (affine, field) = (images.affine.dims(), field.dims());
    assert!(iterations > 0, "greedy: at least one iteration is needed");
    assert!(
        fixed[..2] == moving[..2]
            && fixed[0] == field[0]
            && field[1] == 3
            && fixed[2..] == field[2..],
        "greedy: fixed {fixed:?} and moving {moving:?} must have one batch and the same channels, and \
         the displacement be [{}, 3, {}, {}, {}], got {field:?}",
        fixed[0],
        fixed[2],
        fixed[3],
        fixed[4]
    );
    assert!(
        (affine[0] == 1 || affine[0] == fixed[0]) && affine[1..] == [3, 4],
        "greedy: affine must be [1 or {}, 3, 4], got {affine:?}",
        fixed[0]
    );
    options.check(fixed[1]);
}

impl GreedyOptions {
    /// Panics if an option has no meaning, for images of so many channels.
    pub(crate) fn check(&self, channels: usize) {
        match self.measure {
            Measure::Lncc(LnccOptions { window, epsilon, .. }) => assert!(
                window % 2 == 1
                    && (3..=21).contains(&window)
                    && epsilon > 0.0
                    && epsilon.is_finite(),
                "greedy: the window of LNCC must be odd and within 3..=21 and its epsilon positive, got \
                 {window} and {epsilon}"
            ),
            Measure::SquaredDifference => {}
            Measure::MutualInformation(options) => {
                options.check();
                assert!(
                    channels == 1,
                    "greedy: mutual information takes images of one channel, got {channels}"
                );
            }
        }
        let sigmas = [self.smooth_gradient, self.smooth_warp].map(|smooth| smooth.sigma_voxels);
        let mut lengths = sigmas.into_iter().chain([self.step_voxels]).flatten();
        assert!(
            lengths.all(|length| length.is_finite() && length >= 0.0),
            "greedy: steps and standard deviations must be finite and >= 0, got {self:?}"
        );
    }
}
