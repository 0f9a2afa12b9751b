//! What iterations improve, what kind of map they improve, and how they step.

use super::Measure;
use crate::ops::adam::AdamOptions;
use crate::ops::gaussian::GaussianOptions;
use crate::ops::grid_sample::Accumulation;

/// Which map a field stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeformMethod {
    /// The field is a displacement `u`: `moved(p) = M(A p + t + S u(p))`.
    Greedy,
    /// Two halves that meet in the middle (Avants et al. 2008): `u_1` for the fixed image, then
    /// `u_2` for the moving one: `F(p + u_1(p))` is compared with
    /// `M(A p + t + S u_2(p))`, and the halves follow half the difference of their gradients, in opposite
    /// directions.
    Syn,
    /// The field is a stationary velocity `v`: `u = exp(v) - id` (Arsigny et al. 2006).
    Svf {
        /// Squarings of [`exp`](crate::ops::exp()).
        squarings: usize,
        /// How the gradient to a field that was squared is added up on a GPU.
        accumulation: Accumulation,
    },
}

impl DeformMethod {
    /// How many fields it finds: one for each image that is displaced.
    pub fn fields(self) -> usize {
        1 + usize::from(self.displaces_fixed())
    }

    /// Whether the fixed image is displaced as well, by the first field.
    pub fn displaces_fixed(self) -> bool {
        self == Self::Syn
    }

    /// How often a field is squared until it is a displacement, and how gradients come back; `None` where it is one.
    pub fn squarings(self) -> Option<(usize, Accumulation)> {
        match self {
            Self::Svf { squarings, accumulation } => Some((squarings, accumulation)),
            Self::Greedy | Self::Syn => None,
        }
    }
}

/// How a gradient becomes a direction `d`. A step is `r d / l` with `l` the length of the longest
/// vector of `d`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// [Adam's](crate::ops::adam()) direction; shortened, never lengthened: `l` is at least 1.
    Adam(AdamOptions),
    /// The gradient itself: some vector makes a full step in every iteration.
    Sgd,
    /// The gradient divided by the slope of the moving image (Thirion 1998; Levenberg's damping):
    /// `d = g / (h + damping mean h)`, `h = |d moved / du|^2` summed over the channels, and over both
    /// images with SyN. For squared
    /// differences half of it is the step of Gauss and Newton in voxels, shortened but never
    /// lengthened; the curvature of the other measures is not known, and only its direction counts.
    GaussNewton {
        /// Positive.
        damping: f64,
    },
}

/// What iterations ask of any optimiser.
impl Optimizer {
    /// How it keeps moments of its gradients, if it does.
    pub fn adam(&self) -> Option<AdamOptions> {
        match self {
            Self::Adam(options) => Some(*options),
            Self::Sgd | Self::GaussNewton { .. } => None,
        }
    }

    /// The damping with which it divides by the slope of the image, if it does.
    pub fn slope_damping(&self) -> Option<f64> {
        match self {
            Self::GaussNewton { damping } => Some(*damping),
            Self::Adam(_) | Self::Sgd => None,
        }
    }

    /// Lengths of directions below this make shorter steps, longer ones make full steps: 1 where a direction has a length
    /// of its own, nearly 0 where it only points somewhere. That of Gauss and Newton has a length for least squares.
    pub fn shortest(&self, is_least_squares: bool) -> f64 {
        let has_length = match self {
            Self::Adam(_) => true,
            Self::Sgd => false,
            Self::GaussNewton { .. } => is_least_squares,
        };
        if has_length { 1.0 } else { NO_LENGTH }
    }
}

/// Keeps a division by the length of a step defined where there is no step.
pub(super) const NO_LENGTH: f64 = 1e-30;

/// How a step enters a displacement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Update {
    /// `u <- s + u o (id + s)`: small steps keep the map invertible.
    #[default]
    Compositive,
    /// `u <- u + s`: free-form, and the rule for velocities.
    Additive,
}

/// Weights of the roughness of the field, which is added to the loss (the measure over the number
/// of values, its sign changed where it goes upwards). All 0 by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Penalties {
    /// Of the [diffusion](crate::ops::diffusion()).
    pub diffusion: f64,
    /// Of the [bending energy](crate::ops::bending_energy()).
    pub bending: f64,
    /// Of the [total variation](crate::ops::total_variation()), its epsilon 1e-3 voxels.
    pub total_variation: f64,
}

/// Options of [`deform`](super::deform).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeformOptions {
    /// Which map the field stands for.
    pub method: DeformMethod,
    /// What is improved.
    pub measure: Measure,
    /// `S`, rows and columns in (x, y, z); see
    /// [`GridSampleOptions`](crate::ops::GridSampleOptions::displacement_scale). Along an axis of
    /// one voxel nothing moves, whatever it says.
    pub displacement_scale: [[f64; 3]; 3],
    /// `r`: the longest step along (x, y, z), in voxels.
    pub step_voxels: [f64; 3],
    /// Of the gradient; no standard deviation, no smoothing.
    pub smooth_gradient: GaussianOptions,
    /// Of the field after each step.
    pub smooth_field: GaussianOptions,
    /// How a gradient becomes a direction.
    pub optimizer: Optimizer,
    /// How a step enters the field; additive for velocities.
    pub update: Update,
    /// What roughness costs.
    pub penalties: Penalties,
}

impl DeformOptions {
    /// The greedy method on images of one grid as FFDP has it: steps of a quarter of a voxel, gradients
    /// smoothed by 1 voxel and the displacement by a half, Adam with a floor of 0.1.
    pub fn greedy(measure: Measure) -> Self {
        Self {
            method: DeformMethod::Greedy,
            measure,
            displacement_scale: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            step_voxels: [0.25; 3],
            smooth_gradient: GaussianOptions::isotropic(1.0),
            smooth_field: GaussianOptions::isotropic(0.5),
            optimizer: Optimizer::Adam(AdamOptions {
                gradient_floor: 0.1,
                ..AdamOptions::default()
            }),
            update: Update::Compositive,
            penalties: Penalties::default(),
        }
    }
}
