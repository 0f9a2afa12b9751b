//! The methods: which fields each improves, how they begin, and what map they mean in the end.

use super::Fields;
use crate::error::Result;
use crate::image::{Affine, Geometry, Voxel};
use crate::ops::{
    Accumulation, AdamOptions, DeformOptions, GaussianOptions, Measure, Method, Optimizer,
};
use crate::parallel::{Axis, DeformProblem, Sharded, maps};
use crate::register::pyramid::finest_spacing_mm;
use crate::register::settings::{
    Descent, GreedySettings, OptimizerSettings, Stage, SvfSettings, SynSettings,
};

/// A deformable method with its settings.
#[derive(Clone, Copy)]
pub(in crate::register) enum Kind<'a> {
    /// The field is `w` itself.
    Greedy(&'a GreedySettings),
    /// The field is `u_1`, `u_2` with `id + w = (id + u_2) o (id + u_1)^-1`: from the fixed image to
    /// the middle, from there to the moving image. The inverse takes the halves in the other order.
    Syn(&'a SynSettings),
    /// The field is `v` with `id + w = exp(v)`, and `exp(-v)` is the inverse.
    Svf(&'a SvfSettings),
}

/// What deformable stages have found: fields, and what they mean.
#[derive(Clone, Debug)]
pub(in crate::register) struct Deformed {
    pub method: Method,
    pub fields: Fields,
}

impl Deformed {
    /// A displacement.
    pub fn greedy(fields: Fields) -> Self {
        Self { method: Method::Greedy, fields }
    }

    /// `w` and, where the method gives it, its inverse, in the fields' shards.
    pub fn maps(&self) -> Result<(Fields, Option<Fields>)> {
        let Fields { parts, work, holders, .. } = &self.fields;
        let (w, back) = maps(self.method, parts, work, holders)?;
        let of = |part| self.fields.with(vec![part]);
        Ok((of(w), back.map(of)))
    }
}

impl<'a> Kind<'a> {
    /// That of a deformable stage; `None` of others.
    pub fn of(stage: &'a Stage) -> Option<Self> {
        match stage {
            Stage::Greedy(settings) => Some(Self::Greedy(settings)),
            Stage::Syn(settings) => Some(Self::Syn(settings)),
            Stage::Svf(settings) => Some(Self::Svf(settings)),
            Stage::Moments(_) | Stage::Rigid(_) | Stage::Affine(_) => None,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Greedy(_) => "greedy",
            Self::Syn(_) => "syn",
            Self::Svf(_) => "svf",
        }
    }

    pub fn descent(&self) -> Descent<'a> {
        match self {
            Self::Greedy(settings) => settings.descent(),
            Self::Syn(settings) => settings.descent(),
            Self::Svf(settings) => settings.descent(),
        }
    }

    /// As the operation takes it.
    pub fn method(&self) -> Method {
        match self {
            Self::Greedy(_) => Method::Greedy,
            Self::Syn(_) => Method::Syn,
            Self::Svf(SvfSettings { squarings, deterministic, .. }) => {
                let accumulation = match deterministic {
                    true => Accumulation::Reproducible,
                    false => Accumulation::Fast,
                };
                Method::Svf { squarings: *squarings, accumulation }
            }
        }
    }

    /// Fields of one level.
    pub fn count(&self) -> usize {
        match self {
            Self::Syn(_) => 2,
            Self::Greedy(_) | Self::Svf(_) => 1,
        }
    }

    /// The fields that go on from what was found before, of whatever method; `None` from rest. A half of SyN takes all of
    /// a displacement. A velocity cannot go on from one: [`Settings::validate`](crate::register::Settings::validate)
    /// refuses that.
    pub fn start(&self, found: Option<&Deformed>) -> Result<Option<Fields>> {
        let Some(found) = found else { return Ok(None) };
        let (w, _) = found.maps()?;
        Ok(match self {
            Self::Greedy(_) => Some(w),
            Self::Syn(_) => {
                let still = w.parts[0].clone().map(|shard| shard.zeros_like());
                Some(w.with(vec![still, w.parts[0].clone()]))
            }
            Self::Svf(_) => None,
        })
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
