//! The problem of one level as the fused iterations see it; the method is in
//! [`ops::greedy`](crate::ops::greedy()).

use burn::tensor::{Device, Tensor};

use super::pyramid::LevelImage;
use super::settings::{LnccSettings, MiSettings, Settings, Similarity};
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, index_affine, index_linear};
use crate::losses::{self, MutualInformation, Similarity as _};
use crate::ops::{
    AdamOptions, GaussianOptions, GreedyImages, GreedyOptions, GreedyState, GridSampleOptions,
    HistogramOptions, LnccOptions, Measure, Moments, greedy, grid_sample,
};
use crate::transform::{Displacement, affine_tensor};

/// The problem of one level: two images, how they are compared, how far a step goes.
pub(super) struct Greedy {
    images: GreedyImages,
    options: GreedyOptions,
}

/// What changes from iteration to iteration.
pub(super) struct State {
    pub displacement: Displacement,
    moments: Moments,
}

impl State {
    pub fn identity(geometry: Geometry, device: &Device) -> Self {
        Self { displacement: Displacement::zero(geometry, device), moments: Moments::default() }
    }

    /// The state on the grid of the next level. The moments start afresh: those of a level that has
    /// converged are noise, and following them for ten iterations undid part of the result.
    pub fn resampled(self, geometry: &Geometry) -> Self {
        let displacement = self.displacement.resampled(geometry);
        Self { displacement, moments: Moments::default() }
    }
}

impl Greedy {
    pub fn new(fixed: LevelImage, moving: LevelImage, settings: &Settings) -> Self {
        let map = index_affine(&fixed.geometry, &moving.geometry, &Affine::identity());
        let spacing_mm = fixed.geometry.spacing_mm;
        let finest = spacing_mm.into_iter().fold(f64::INFINITY, f64::min);
        // One length in mm is fewer voxels along an axis with larger voxels.
        let voxels = |length: f64| spacing_mm.map(|spacing| length * finest / spacing);
        let smoothing = |sigma| GaussianOptions {
            sigma_voxels: voxels(sigma),
            ..GaussianOptions::isotropic(0.0)
        };
        let options = GreedyOptions {
            measure: measure(settings.similarity),
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
        let (device, dtype) = (fixed.tensor.device(), fixed.tensor.dtype());
        let affine = affine_tensor(&map, &device, dtype);
        Self {
            images: GreedyImages { fixed: fixed.tensor, moving: moving.tensor, affine },
            options,
        }
    }

    /// The loss as it is reported, from the measure: `1 - mean n` for LNCC, the mean for MSE, the
    /// negative information for MI.
    pub fn reported(&self, measure: f64) -> f64 {
        let mean = measure / self.images.fixed.shape().num_elements() as f64;
        match self.options.measure {
            Measure::Lncc(_) => 1.0 - mean,
            Measure::SquaredDifference => mean,
            Measure::MutualInformation(_) => -mean,
        }
    }

    /// The reported loss at a displacement on this level; waits for the device.
    pub fn loss_at(&self, displacement: &Displacement) -> Result<f64> {
        let GreedyImages { fixed, moving, affine } = self.images.clone();
        let sampling = GridSampleOptions {
            displacement_scale: self.options.displacement_scale,
            ..GridSampleOptions::default()
        };
        let field = displacement.field().clone();
        let moved = grid_sample(moving, Some(affine), Some(field), &sampling);
        let loss = match self.options.measure {
            Measure::Lncc(options) => losses::Lncc(options).loss(moved, fixed),
            Measure::SquaredDifference => losses::Mse.loss(moved, fixed),
            Measure::MutualInformation(options) => MutualInformation(options).loss(moved, fixed),
        };
        Ok(read(loss)?[0])
    }

    /// Some iterations; also the loss before each of them. Waits for the device once.
    pub fn steps(&self, state: State, iterations: usize) -> Result<(Vec<f64>, State)> {
        let State { displacement, moments } = state;
        let geometry = displacement.geometry().clone();
        let state = GreedyState { displacement: displacement.into_field(), moments };
        let (measures, state) = greedy(&self.images, state, &self.options, iterations);
        let losses = read(measures)?.into_iter().map(|measure| self.reported(measure)).collect();
        let displacement = Displacement::new(state.displacement, geometry)?;
        Ok((losses, State { displacement, moments: state.moments }))
    }
}

/// What the iterations improve.
fn measure(similarity: Similarity) -> Measure {
    match similarity {
        Similarity::Lncc(LnccSettings { window, epsilon }) => {
            Measure::Lncc(LnccOptions { window, epsilon, ..LnccOptions::default() })
        }
        Similarity::Mse => Measure::SquaredDifference,
        Similarity::Mi(MiSettings { bins }) => {
            Measure::MutualInformation(HistogramOptions { bins, ..HistogramOptions::default() })
        }
    }
}

/// Numbers read from the device.
fn read(values: Tensor<1>) -> Result<Vec<f64>> {
    let values = values
        .try_into_vec_as::<f32>()
        .map_err(|reason| Error::device("reading the loss", reason))?;
    Ok(values.into_iter().map(f64::from).collect())
}
