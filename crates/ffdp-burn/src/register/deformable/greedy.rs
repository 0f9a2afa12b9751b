//! Greedy registration: the problem of one level as the fused iterations see it; the method is in
//! [`ops::greedy`](crate::ops::greedy()).

use crate::error::Result;
use crate::image::{Affine, Physical, index_affine, index_linear};
use crate::ops::{
    AdamOptions, GaussianOptions, GreedyImages, GreedyOptions, GreedyState, Measure, Moments,
    greedy,
};
use crate::register::comparison::{Comparison, read};
use crate::register::level::Solver;
use crate::register::settings::{GreedySettings, Similarity};
use crate::transform::{Displacement, affine_tensor};

/// One level: two images, how they are compared, how far a step goes, and what was found.
///
/// The moments start afresh on every level: those of a level that has converged are noise, and
/// following them for ten iterations undid part of the result.
pub(super) struct Greedy {
    images: GreedyImages,
    options: GreedyOptions,
    /// `u`; `None` only while it is being changed.
    displacement: Option<Displacement>,
    moments: Moments,
}

impl Greedy {
    /// A level, from the displacement `u` on its grid.
    pub fn new(
        comparison: &Comparison,
        settings: &GreedySettings,
        placement: &Affine<Physical, Physical>,
        displacement: Displacement,
    ) -> Self {
        let (fixed, moving) = (&comparison.fixed, &comparison.moving);
        let map = index_affine(&fixed.geometry, &moving.geometry, placement);
        let spacing_mm = fixed.geometry.spacing_mm;
        let finest = spacing_mm.into_iter().fold(f64::INFINITY, f64::min);
        // One length in mm is fewer voxels along an axis with larger voxels.
        let voxels = |length: f64| spacing_mm.map(|spacing| length * finest / spacing);
        let smoothing = |sigma| GaussianOptions {
            sigma_voxels: voxels(sigma),
            ..GaussianOptions::isotropic(0.0)
        };
        let options = GreedyOptions {
            measure: measure(comparison.similarity),
            displacement_scale: index_linear(&fixed.geometry, &moving.geometry),
            step_voxels: voxels(settings.learning_rate_voxels),
            smooth_gradient: smoothing(settings.sigma_gradient_voxels),
            smooth_warp: smoothing(settings.sigma_warp_voxels),
            adam: AdamOptions {
                gradient_floor: settings.gradient_floor,
                storage: settings.moments,
                ..AdamOptions::default()
            },
        };
        let (fixed, moving) = (fixed.tensor.clone(), moving.tensor.clone());
        let affine = affine_tensor(&map, &fixed.device(), fixed.dtype());
        let images = GreedyImages { fixed, moving, affine };
        Self { images, options, displacement: Some(displacement), moments: Moments::default() }
    }

    /// What was found.
    pub fn into_displacement(self) -> Displacement {
        self.displacement.expect("only an iteration takes it")
    }

    /// The loss as it is reported, from the measure: `1 - mean n` for LNCC, the mean for MSE, the
    /// negative information for MI, one minus the normalised one for NMI.
    fn reported(&self, measure: f64) -> f64 {
        let mean = measure / self.images.fixed.shape().num_elements() as f64;
        match self.options.measure {
            Measure::Lncc(_) => 1.0 - mean,
            Measure::SquaredDifference => mean,
            Measure::MutualInformation(_) | Measure::NormalizedMutualInformation(_) => -mean,
        }
    }
}

impl Solver for Greedy {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        let displacement = self.displacement.take().expect("only an iteration takes it");
        let geometry = displacement.geometry().clone();
        let moments = std::mem::take(&mut self.moments);
        let state = GreedyState { displacement: displacement.into_field(), moments };
        let (measures, state) = greedy(&self.images, state, &self.options, iterations);
        self.displacement = Some(Displacement::new(state.displacement, geometry)?);
        self.moments = state.moments;
        Ok(read(measures)?.into_iter().map(|measure| self.reported(measure)).collect())
    }
}

/// What the iterations improve.
fn measure(similarity: Similarity) -> Measure {
    match similarity {
        Similarity::Lncc(settings) => Measure::Lncc(settings.options()),
        Similarity::Mse => Measure::SquaredDifference,
        Similarity::Mi(settings) => Measure::MutualInformation(settings.options()),
        Similarity::Nmi(settings) => Measure::NormalizedMutualInformation(settings.options()),
    }
}
