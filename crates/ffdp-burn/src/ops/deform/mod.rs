//! Iterations of deformable registration, several in one op: greedy (FFDP paper, section 2), SyN
//! (Avants et al. 2008) and stationary velocities (Arsigny et al. 2006).
//!
//! ```text
//! moved = M(A p + t + S u(p))             g = d measure(moved, fixed) / du
//! d = Adam(G_gradient g),  longest vector at most 1, short where g is faint
//! s = +-r d                               u <- G_field (s + u o (id + s))
//! ```
//! `u` displacement in voxels of the fixed grid · `[A|t]`, `S` from fixed to moving voxels · `G`
//! Gaussian smoothing · `r` the step along x, y, z; with the sign that improves the measure.
//! The composition, in place of a sum, keeps the map invertible: each step is a small deformation of
//! its own.
//!
//! That is greedy registration; `options.rs` says what else a field may stand for ([`DeformMethod`]), how else
//! it may step ([`Optimizer`], [`Update`]) and what its roughness costs ([`Penalties`]). With masks
//! a voxel counts as much as its weight in the fixed image times that of the moving image where the
//! voxel is shown; the weights are taken as constant.
//!
//! This is the other fused operations called one after the other, on the backend itself: each
//! of them through Burn's autodiff and fusion costs about 0.06 ms of the host, more than the GPU
//! needs for a small volume. Beyond that the greedy path stores no direction and no scaled step, scales
//! no gradient (Adam does not see its size), and leaves the measures on the device: a caller reads them
//! once for all iterations of a call. For every backend: `views.rs` is what a field shows, `compare.rs`
//! how alike that is, `descend.rs` the step, `iterate.rs` the loop.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::{DType, Device};

mod autodiff;
mod compare;
mod descend;
mod iterate;
mod options;
mod state;
#[cfg(test)]
mod tests;
mod views;

pub use compare::Measure;
pub use options::{DeformMethod, DeformOptions, Optimizer, Penalties, Update};
pub use state::{FieldState, FieldStates};

use super::adam::Moments;
use super::grid_sample::{Accumulation, Interpolation, Padding, Sampling};

/// The images of a registration.
#[derive(Clone, Debug)]
pub struct DeformImages {
    /// `[N, C, D, H, W]`.
    pub fixed: Tensor<5>,
    /// `[N, C, Di, Hi, Wi]`.
    pub moving: Tensor<5>,
    /// `[A|t]`, from fixed to moving voxels in (x, y, z), `[1 or N, 3, 4]`.
    pub affine: Tensor<3>,
    /// Weights of the fixed and of the moving image, each of its size, `[N, 1, D, H, W]`, in 0..1;
    /// without, all voxels count the same. With weights, also of ones, a window of the LNCC holds
    /// only what there is at a border; see [`weighted_lncc`](super::weighted_lncc).
    pub masks: [Option<Tensor<5>>; 2],
}

/// What changes from iteration to iteration, of each field.
#[derive(Clone, Debug)]
pub struct DeformState {
    /// What the [`DeformMethod`] says, `[N, 3, D, H, W]`.
    pub field: Tensor<5>,
    /// Of its gradient; untouched by an optimiser without.
    pub moments: Moments,
}

/// The resolved options that a backend receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeformPlan {
    /// As they were given.
    pub options: DeformOptions,
    /// How the fixed (with SyN) and the moving image are read.
    pub sampling: [Sampling; 2],
    /// Whether the masks are images or ignored placeholders.
    pub masked: [bool; 2],
    /// Number of values of the fixed image.
    pub values: usize,
    /// Gradients that the moments have seen.
    pub seen: i32,
    /// Iterations to do.
    pub iterations: usize,
}

impl DeformPlan {
    fn needs_slope(&self) -> bool {
        self.options.optimizer.slope_damping().is_some()
    }
}

/// Backend operation of the iterations. Shapes as in [`DeformImages`] and [`DeformState`]; the
/// moments and the mean of the second, `[N]`, as in [`AdamOps`](super::adam::AdamOps).
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait DeformOps: Backend {
    /// The measures before each iteration `[iterations]`, and the new states.
    #[fusion(meta = specs)]
    fn deform_3d(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        fixed_mask: FloatTensor<Self>,
        moving_mask: FloatTensor<Self>,
        #[extension_type] states: FieldStates<Self>,
        plan: DeformPlan,
    ) -> (FloatTensor<Self>, FieldStates<Self>);
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
use state::FieldStatesMetadata;

#[cfg(feature = "cube")]
use ffdp_kit::half::computed;

#[cfg(feature = "cube")]
fn specs(
    fixed: &TensorSpec,
    _moving: &TensorSpec,
    _affine: &TensorSpec,
    _fixed_mask: &TensorSpec,
    _moving_mask: &TensorSpec,
    states: &FieldStatesMetadata,
    plan: &DeformPlan,
) -> (TensorSpec, FieldStatesMetadata) {
    let measures = TensorSpec::new([plan.iterations].into(), computed(fixed.dtype));
    (measures, states.clone())
}

/// Does `iterations` of a deformable registration; one state for each field of the [`DeformMethod`]. Returns the
/// measure before each of them (worse by the penalties), `[iterations]`, on the device, and the states after the last.
/// Not differentiable.
///
/// # Panics
/// If there is nothing to do, a tensor is on the autodiff tape, shapes do not fit each other, or
/// an option has no meaning.
pub fn deform(
    images: &DeformImages,
    states: Vec<DeformState>,
    options: &DeformOptions,
    iterations: usize,
) -> (Tensor<1>, Vec<DeformState>) {
    check(images, &states, options, iterations);
    let adam = options.optimizer.adam();
    let mut plan = plan(images, &states[0].field, options, iterations);
    // Taken apart, so that the memory of each is free once the first iteration has read it.
    let (states, mut moments): (Vec<_>, Vec<_>) = states
        .into_iter()
        .map(|DeformState { field, mut moments }| {
            let ([mean, square], power, seen) = match &adam {
                Some(adam) => moments.take(&field, adam),
                None => no_moments(&field.device(), field.dtype()),
            };
            plan.seen = seen;
            let [field, mean, square] = [field, mean, square].map(Tensor::into_dispatch);
            (FieldState::<Dispatch> { field, mean, square, power: power.into_dispatch() }, moments)
        })
        .unzip();
    let mask = |mask: &Option<Tensor<5>>| {
        // A placeholder that nothing reads.
        mask.clone().unwrap_or_else(|| images.fixed.clone()).into_dispatch()
    };
    let (measures, states) = <Dispatch as DeformOps>::deform_3d(
        images.fixed.clone().into_dispatch(),
        images.moving.clone().into_dispatch(),
        images.affine.clone().into_dispatch(),
        mask(&images.masks[0]),
        mask(&images.masks[1]),
        FieldStates::new(states),
        plan,
    );
    let states = states.into_vec().into_iter().zip(&mut moments).map(|(state, moments)| {
        let FieldState { field, mean, square, power } = state;
        if let Some(adam) = adam {
            let values = [mean, square].map(Tensor::from_dispatch);
            moments.put(values, Tensor::from_dispatch(power), iterations as i32, &adam);
        }
        DeformState { field: Tensor::from_dispatch(field), moments: std::mem::take(moments) }
    });
    (Tensor::from_dispatch(measures), states.collect())
}

/// Placeholders for an optimiser without moments.
fn no_moments(device: &Device, dtype: DType) -> ([Tensor<5>; 2], Tensor<1>, i32) {
    let empty = || Tensor::zeros([1; 5], (device, dtype));
    ([empty(), empty()], Tensor::zeros([1], (device, dtype)), 0)
}

fn plan(
    images: &DeformImages,
    field: &Tensor<5>,
    options: &DeformOptions,
    iterations: usize,
) -> DeformPlan {
    let [_, _, d, h, w] = field.dims();
    // `u` has no effect along an axis of one voxel: its column is 0, and so is its gradient.
    let moves = [w, h, d].map(|voxels| voxels > 1);
    let without_flat_axes = |scale: [[f64; 3]; 3]| {
        scale.map(|row| std::array::from_fn(|axis| if moves[axis] { row[axis] } else { 0.0 }))
    };
    let sampling = |scale, has_affine| Sampling {
        interpolation: Interpolation::Linear,
        padding: Padding::Zeros,
        scale: without_flat_axes(scale),
        size: [d, h, w],
        has_affine,
        has_displacement: true,
        accumulation: Accumulation::Fast,
    };
    let identity = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    DeformPlan {
        options: *options,
        sampling: [sampling(identity, false), sampling(options.displacement_scale, true)],
        masked: images.masks.each_ref().map(Option::is_some),
        values: images.fixed.shape().num_elements(),
        seen: 0,
        iterations,
    }
}

fn check(
    images: &DeformImages,
    states: &[DeformState],
    options: &DeformOptions,
    iterations: usize,
) {
    let (fixed, moving) = (images.fixed.dims(), images.moving.dims());
    let affine = images.affine.dims();
    assert!(iterations > 0, "deform: at least one iteration is needed");
    let (count, found) = (options.method.fields(), states.len());
    assert!(found == count, "deform: {count} fields are needed, got {found}");
    let expected = [fixed[0], 3, fixed[2], fixed[3], fixed[4]];
    for field in states.iter().map(|state| state.field.dims()) {
        assert!(
            fixed[..2] == moving[..2] && field == expected,
            "deform: fixed {fixed:?} and moving {moving:?} must have one batch and the same channels, \
             and the field be {expected:?}, got {field:?}"
        );
    }
    assert!(
        (affine[0] == 1 || affine[0] == fixed[0]) && affine[1..] == [3, 4],
        "deform: affine must be [1 or {}, 3, 4], got {affine:?}",
        fixed[0]
    );
    for (mask, image) in images.masks.iter().zip([fixed, moving]) {
        let Some(mask) = mask.as_ref().map(Tensor::dims) else { continue };
        let expected = [image[0], 1, image[2], image[3], image[4]];
        assert!(mask == expected, "deform: a mask of {image:?} must be {expected:?}, got {mask:?}");
    }
    check_options(options);
}

fn check_options(options: &DeformOptions) {
    options.measure.check();
    let smoothing = [options.smooth_gradient, options.smooth_field];
    let sigmas = smoothing.iter().flat_map(|smooth| smooth.sigma_voxels);
    let Penalties { diffusion, bending, total_variation } = options.penalties;
    let mut numbers =
        sigmas.chain(options.step_voxels).chain([diffusion, bending, total_variation]);
    assert!(
        numbers.all(|number| number.is_finite() && number >= 0.0),
        "deform: steps, standard deviations and penalties must be finite and >= 0, got {options:?}"
    );
    if let Some(damping) = options.optimizer.slope_damping() {
        let positive = damping > 0.0 && damping.is_finite();
        assert!(positive, "deform: the damping must be positive and finite, got {damping}");
    }
    if let Some((squarings, _)) = options.method.squarings() {
        assert!(
            squarings <= 30
                && options.update == Update::Additive
                && options.optimizer.slope_damping().is_none(),
            "deform: velocities are added, after at most 30 squarings, and the slope of the image \
             does not depend on them, got {options:?}"
        );
    }
}
