//! One iteration of the compositive greedy method (Avants et al. 2008, FFDP paper section 2).
//!
//! ```text
//! moved = M(A p + t + S u(p))          loss(moved, fixed)        g = dloss/du
//! d = Adam(G_grad g), longest vector at most 1, short where g is faint
//! s = -lr d                            u <- G_warp (s + u o (id + s))
//! ```
//! `u` displacement in voxels of the level · `[A|t]`, `S` from fixed to moving voxels by the headers
//! · `G` Gaussian smoothing. The composition, in place of a sum, keeps the map invertible: each step
//! is a small deformation of its own.

use burn::tensor::{Device, Tensor};

use super::adam::Adam;
use super::pyramid::LevelImage;
use super::settings::{LnccSettings, MiSettings, Settings, Similarity};
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, index_affine, index_linear};
use crate::losses::{MutualInformation, Similarity as _};
use crate::ops::lncc::lncc_sum;
use crate::ops::mse::squared_difference_sum;
use crate::ops::{
    GaussianOptions, GridSampleOptions, HistogramOptions, LnccOptions, compose, gaussian,
    grid_sample,
};
use crate::transform::{Displacement, affine_tensor};

/// The problem of one level: two images, how they are compared, how far a step goes.
pub(super) struct Greedy {
    fixed: Tensor<5>,
    moving: Tensor<5>,
    affine: Tensor<3>,
    sampling: GridSampleOptions,
    similarity: Similarity,
    /// `-lr` along x, y, z in voxels, `[1, 3, 1, 1, 1]`.
    rate: Tensor<5>,
    smooth_gradient: GaussianOptions,
    smooth_warp: GaussianOptions,
}

/// What changes from iteration to iteration.
pub(super) struct State {
    pub displacement: Displacement,
    adam: Adam,
}

impl State {
    pub fn identity(geometry: Geometry, settings: &Settings, device: &Device) -> Self {
        let displacement = Displacement::zero(geometry, device);
        Self { displacement, adam: Adam::new(settings.gradient_floor) }
    }

    /// The state on the grid of the next level.
    pub fn resampled(self, geometry: &Geometry) -> Self {
        if self.displacement.geometry() == geometry {
            return self;
        }
        let adam = self.adam.resampled(self.displacement.geometry(), geometry);
        Self { displacement: self.displacement.resampled(geometry), adam }
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
        let rate = voxels(-settings.learning_rate_voxels).map(|rate| rate as f32);
        let device = fixed.tensor.device();
        Self {
            affine: affine_tensor(&map, &device, fixed.tensor.dtype()),
            sampling: GridSampleOptions {
                displacement_scale: index_linear(&fixed.geometry, &moving.geometry),
                ..GridSampleOptions::default()
            },
            similarity: settings.similarity,
            rate: Tensor::<1>::from_floats(rate, &device).reshape([1, 3, 1, 1, 1]),
            smooth_gradient: smoothing(settings.sigma_gradient_voxels),
            smooth_warp: smoothing(settings.sigma_warp_voxels),
            fixed: fixed.tensor,
            moving: moving.tensor,
        }
    }

    /// The loss summed over voxels up to a constant, `[1]`: so that the size of its gradient does
    /// not depend on the size of the image.
    fn summed_loss(&self, field: Tensor<5>) -> Tensor<1> {
        let (moving, affine) = (self.moving.clone(), Some(self.affine.clone()));
        let moved = grid_sample(moving, affine, Some(field), &self.sampling);
        match self.similarity {
            Similarity::Lncc(LnccSettings { window, epsilon }) => {
                let options = LnccOptions { window, epsilon, ..LnccOptions::default() };
                lncc_sum(moved, self.fixed.clone(), &options).neg()
            }
            Similarity::Mse => squared_difference_sum(moved, self.fixed.clone()),
            Similarity::Mi(MiSettings { bins }) => {
                let loss = MutualInformation(HistogramOptions { bins, ..Default::default() });
                let count = self.fixed.shape().num_elements() as f64;
                loss.loss(moved, self.fixed.clone()).mul_scalar(count)
            }
        }
    }

    /// The loss as it is reported, from the summed one: `1 - mean n` for LNCC, the mean for
    /// MSE, the negative information for MI.
    pub fn reported(&self, summed: f64) -> f64 {
        let mean = summed / self.fixed.shape().num_elements() as f64;
        match self.similarity {
            Similarity::Lncc(_) => 1.0 + mean,
            Similarity::Mse | Similarity::Mi(_) => mean,
        }
    }

    /// The reported loss at a displacement on this level; waits for the device.
    pub fn loss_at(&self, displacement: &Displacement) -> Result<f64> {
        let losses = read_losses(vec![self.summed_loss(displacement.field().clone())])?;
        Ok(self.reported(losses[0]))
    }

    /// One iteration. Returns the summed loss *before* the step, `[1]`, still on the device.
    pub fn step(&self, state: &mut State) -> Result<Tensor<1>> {
        let field = state.displacement.field().clone();
        let tracked = field.clone().autodiff().require_grad();
        let loss = self.summed_loss(tracked.clone());
        let gradients = loss.backward();
        let gradient = tracked.grad(&gradients).expect("the loss depends on the displacement");
        let gradient = gaussian(gradient, &self.smooth_gradient);
        let step = state.adam.step(gradient, &self.rate);
        let field = gaussian(compose(field, step), &self.smooth_warp);
        let geometry = state.displacement.geometry().clone();
        state.displacement = Displacement::new(field, geometry)?;
        Ok(loss.inner())
    }
}

/// Summed losses, read from the device at once.
pub(super) fn read_losses(losses: Vec<Tensor<1>>) -> Result<Vec<f64>> {
    let values = Tensor::cat(losses, 0)
        .try_into_vec_as::<f32>()
        .map_err(|reason| Error::device("reading the loss", reason))?;
    Ok(values.into_iter().map(f64::from).collect())
}
