//! The images of a level, and how alike a transform makes them.

use burn::tensor::Tensor;

use super::pyramid::LevelImage;
use super::settings::{LnccSettings, MiSettings, Similarity};
use crate::error::{Error, Result};
use crate::image::{Affine, Physical, index_affine, index_linear};
use crate::losses::{self, MutualInformation, Similarity as _};
use crate::ops::{GridSampleOptions, HistogramOptions, LnccOptions, grid_sample};
use crate::transform::{Displacement, affine_tensor};

/// Two images on one level.
pub(super) struct Comparison {
    pub fixed: LevelImage,
    pub moving: LevelImage,
    pub similarity: Similarity,
}

impl Comparison {
    /// The loss of `moving(A x + u(x))` against `fixed(x)`; lower is more alike. `affine` is `A` in
    /// RAS mm, `displacement` is `u` on the grid of the level. Waits for the device.
    pub fn loss(
        &self,
        affine: &Affine<Physical, Physical>,
        displacement: Option<&Displacement>,
    ) -> Result<f64> {
        let (fixed, moving) = (&self.fixed, &self.moving);
        let map = index_affine(&fixed.geometry, &moving.geometry, affine);
        let map = affine_tensor(&map, &moving.tensor.device(), moving.tensor.dtype());
        let options = GridSampleOptions {
            displacement_scale: index_linear(&fixed.geometry, &moving.geometry),
            size: Some(fixed.geometry.dims()),
            ..GridSampleOptions::default()
        };
        let field = displacement.map(|displacement| displacement.field().clone());
        let moved = grid_sample(moving.tensor.clone(), Some(map), field, &options);
        let fixed = fixed.tensor.clone();
        let loss = match self.similarity {
            Similarity::Lncc(settings) => losses::Lncc(settings.options()).loss(moved, fixed),
            Similarity::Mse => losses::Mse.loss(moved, fixed),
            Similarity::Mi(settings) => MutualInformation(settings.options()).loss(moved, fixed),
        };
        Ok(read(loss)?[0])
    }
}

impl LnccSettings {
    /// As the operation takes them.
    pub(super) fn options(self) -> LnccOptions {
        let Self { window, epsilon } = self;
        LnccOptions { window, epsilon, ..LnccOptions::default() }
    }
}

impl MiSettings {
    /// As the operation takes them.
    pub(super) fn options(self) -> HistogramOptions {
        HistogramOptions { bins: self.bins, ..HistogramOptions::default() }
    }
}

/// Numbers read from the device.
pub(super) fn read(values: Tensor<1>) -> Result<Vec<f64>> {
    let values = values
        .try_into_vec_as::<f32>()
        .map_err(|reason| Error::device("reading the loss", reason))?;
    Ok(values.into_iter().map(f64::from).collect())
}
