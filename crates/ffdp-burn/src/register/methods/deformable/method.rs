//! A method that improves fields: which, how they begin, and what they mean.

use std::fmt::Debug;

use crate::error::Result;
use crate::image::{Affine, Geometry, Voxel};
use crate::ops::{AdamOptions, DeformOptions, GaussianOptions, Measure, Method, Optimizer};
use crate::parallel::{Axis, DeformProblem, Sharded};
use crate::register::fields::{Deformed, Fields};
use crate::register::pyramid::finest_spacing_mm;
use crate::register::settings::{Descent, OptimizerSettings};

/// A method that improves one or several fields by the iterations of [`ops::deform`](crate::ops::deform()).
pub(in crate::register) trait FieldMethod: Debug + Send + Sync {
    /// Its name, as a file has it.
    fn name(&self) -> &'static str;

    /// What it shares with the others.
    fn descent(&self) -> Descent<'_>;

    /// What its fields mean.
    fn method(&self) -> Method;

    /// The fields that go on from what was found before; `None` from rest.
    fn start(&self, found: Option<&Deformed>) -> Result<Option<Fields>>;

    /// Bytes of host memory that a voxel of a level takes on the CPU, images apart; as measured with LNCC.
    fn host_bytes_per_voxel(&self) -> u64;

    /// Demands that all settings have a meaning.
    fn validate(&self) -> Result<()> {
        self.descent().validate()
    }
}

impl dyn FieldMethod + '_ {
    /// Fields of one level.
    pub fn count(&self) -> usize {
        if self.method() == Method::Syn { 2 } else { 1 }
    }

    /// The fields at rest, where `like` is.
    pub fn still(&self, like: &Sharded) -> Vec<Sharded> {
        vec![like.clone(); self.count()]
    }

    /// What the iterations do on the grid of a level, from whose voxels `map` leads to those of the moving image.
    pub fn options(&self, fixed: &Geometry, map: &Affine<Voxel, Voxel>) -> DeformOptions {
        let descent = self.descent();
        let (spacing_mm, finest) = (fixed.spacing_mm, finest_spacing_mm(fixed));
        // One length in mm is fewer voxels along an axis with larger voxels.
        let voxels = |length: f64| spacing_mm.map(|spacing| length * finest / spacing);
        let smoothing = |sigma| GaussianOptions {
            sigma_voxels: voxels(sigma),
            ..GaussianOptions::isotropic(0.0)
        };
        DeformOptions {
            method: self.method(),
            // The similarity takes its place.
            measure: descent.similarity.loss().measure().unwrap_or(Measure::SquaredDifference),
            displacement_scale: map.linear(),
            step_voxels: voxels(descent.learning_rate_voxels),
            smooth_gradient: smoothing(descent.sigma_gradient_voxels),
            smooth_field: smoothing(descent.sigma_field_voxels),
            optimizer: optimizer(descent.optimizer),
            update: descent.update,
            penalties: descent.regularization.penalties(finest),
        }
    }

    /// A level as the planner of memory sees it. `channels` are those of an image, without its mask.
    pub fn problem(
        &self,
        [fixed, moving]: [&Geometry; 2],
        (channels, masked): (usize, [bool; 2]),
    ) -> DeformProblem {
        DeformProblem {
            fixed: fixed.dims(),
            moving: moving.dims(),
            channels,
            masked,
            axis: Axis::Z,
            reach_voxels: self.descent().similarity.loss().reach_voxels(),
            options: self.options(fixed, &Affine::identity()),
        }
    }
}

/// As the operation takes it.
fn optimizer(settings: OptimizerSettings) -> Optimizer {
    match settings {
        OptimizerSettings::Adam(adam) => Optimizer::Adam(AdamOptions {
            gradient_floor: adam.gradient_floor,
            storage: adam.moments,
            ..AdamOptions::default()
        }),
        OptimizerSettings::Sgd => Optimizer::Sgd,
        OptimizerSettings::GaussNewton(settings) => {
            Optimizer::GaussNewton { damping: settings.damping }
        }
    }
}
