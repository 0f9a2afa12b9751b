//! One level of a deformable stage, as the fused iterations see it.

use super::work::Work;
use super::{Field, Kind};
use crate::error::Result;
use crate::image::{Affine, Geometry, Physical};
use crate::ops::{AdamOptions, DeformImages, DeformOptions, GaussianOptions, Measure, Optimizer};
use crate::parallel::Mesh;
use crate::register::comparison::Comparison;
use crate::register::level::Solver;
use crate::register::pyramid::finest_spacing_mm;
use crate::register::settings::{OptimizerSettings, Similarity};
use crate::transform::affine_tensor;

/// One level: two images, how they are compared, how far a step goes, and what was found.
pub(super) struct Deformation {
    work: Work,
    options: DeformOptions,
    geometry: Geometry,
    /// Of the fixed image.
    values: usize,
}

impl Deformation {
    /// A level, from a field on its grid.
    ///
    /// # Errors
    /// Those of cutting the images into shards.
    pub fn new(
        comparison: &Comparison,
        kind: &Kind,
        placement: &Affine<Physical, Physical>,
        field: Field,
        mesh: &Mesh,
    ) -> Result<Self> {
        let descent = kind.descent();
        let Comparison { fixed, moving, masks, .. } = comparison;
        let map = comparison.index_map(placement);
        let (spacing_mm, finest) = (fixed.geometry.spacing_mm, finest_spacing_mm(&fixed.geometry));
        // One length in mm is fewer voxels along an axis with larger voxels.
        let voxels = |length: f64| spacing_mm.map(|spacing| length * finest / spacing);
        let smoothing = |sigma| GaussianOptions {
            sigma_voxels: voxels(sigma),
            ..GaussianOptions::isotropic(0.0)
        };
        let options = DeformOptions {
            method: kind.method(),
            measure: measure(comparison.similarity),
            displacement_scale: map.linear(),
            step_voxels: voxels(descent.learning_rate_voxels),
            smooth_gradient: smoothing(descent.sigma_gradient_voxels),
            smooth_field: smoothing(descent.sigma_field_voxels),
            optimizer: optimizer(descent.optimizer),
            update: descent.update,
            penalties: descent.regularization.penalties(),
        };
        let geometry = fixed.geometry.clone();
        let (fixed, moving, masks) = (fixed.tensor.clone(), moving.tensor.clone(), masks.clone());
        let affine = affine_tensor(&map, &fixed.device(), fixed.dtype());
        let values = fixed.shape().num_elements();
        let images = DeformImages { fixed, moving, affine, masks };
        Ok(Self { work: Work::new(images, field, mesh)?, options, geometry, values })
    }

    /// What was found.
    pub fn into_field(self) -> Field {
        self.work.into_field(self.geometry)
    }

    /// The loss as it is reported, from the measure: `1 - mean n` for LNCC, the mean for MSE, the
    /// negative information for MI, one minus the normalised one for NMI.
    fn reported(&self, measure: f64) -> f64 {
        let mean = measure / self.values as f64;
        match self.options.measure {
            Measure::Lncc(_) | Measure::NormalizedMutualInformation(_) => 1.0 - mean,
            Measure::SquaredDifference => mean,
            Measure::MutualInformation(_) => -mean,
        }
    }
}

impl Solver for Deformation {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        let measures = self.work.iterate(&self.options, iterations)?;
        Ok(measures.into_iter().map(|measure| self.reported(measure)).collect())
    }
}

/// What the iterations improve.
pub(in crate::register) fn measure(similarity: Similarity) -> Measure {
    match similarity {
        Similarity::Lncc(settings) => Measure::Lncc(settings.options()),
        Similarity::Mse => Measure::SquaredDifference,
        Similarity::Mi(settings) => Measure::MutualInformation(settings.options()),
        Similarity::Nmi(settings) => Measure::NormalizedMutualInformation(settings.options()),
    }
}

/// As the operation takes it.
pub(in crate::register) fn optimizer(settings: OptimizerSettings) -> Optimizer {
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
