//! The images of a level, and how alike a transform makes them.

use burn::tensor::Tensor;

use super::prepare::placed;
use super::pyramid::LevelImage;
use super::settings::{LnccSettings, MiSettings, Similarity};
use crate::error::{Error, Result};
use crate::image::{Affine, Physical, index_affine, index_linear};
use crate::losses::{self, MutualInformation, NormalizedMutualInformation, Similarity as _};
use crate::ops::{
    AlignmentLoss, GridSampleOptions, HistogramOptions, Information, LnccOptions, Outside,
    alignment, grid_sample,
};
use crate::transform::{Displacement, affine_tensor};

/// Two images on one level.
pub(super) struct Comparison {
    pub fixed: LevelImage,
    pub moving: LevelImage,
    pub similarity: Similarity,
    /// What fixed voxels count that see nothing of the moving image, under an affine map alone.
    pub outside: Outside,
}

impl Comparison {
    /// With this rule for what lies outside, if the similarity knows it.
    pub fn seeing(self, outside: Outside) -> Self {
        match self.similarity {
            Similarity::Mi(_) | Similarity::Nmi(_) => Self { outside, ..self },
            Similarity::Lncc(_) | Similarity::Mse => self,
        }
    }

    /// Part of the fixed grid, in percent, that `affine` (RAS mm) sends into the moving image; 0 for
    /// a map that collapses space.
    pub fn overlap_percent(&self, affine: &Affine<Physical, Physical>) -> f64 {
        let placed = placed(&self.moving.geometry, affine);
        placed.map_or(0.0, |placed| self.fixed.geometry.overlap_percent(&placed))
    }

    /// The loss of `moving(A x)` against `fixed(x)` and its gradient to the rows of `A`. Waits for the
    /// device, once.
    ///
    /// With `F`, `M` the voxel-to-mm maps, the sampler takes `K = M^-1 A F`: `dL/dA = M_lin^-T dL/dK
    /// F^T`.
    pub fn gradient(&self, affine: &Affine<Physical, Physical>) -> Result<(f64, [[f64; 4]; 3])> {
        let (fixed, moving) = (&self.fixed, &self.moving);
        let map = index_affine(&fixed.geometry, &moving.geometry, affine);
        let map = affine_tensor(&map, &moving.tensor.device(), moving.tensor.dtype());
        let (loss, gradient) = alignment(
            fixed.tensor.clone(),
            moving.tensor.clone(),
            map,
            &self.alignment_loss(),
            self.outside,
        );
        let read = read(Tensor::cat(vec![loss, gradient.flatten(0, 2)], 0))?;
        let f = *fixed.geometry.voxel_to_mm().rows();
        let back = moving.geometry.mm_to_voxel().linear();
        // dL/dK F^T, its last column that of the translations.
        let right: [[f64; 4]; 3] = std::array::from_fn(|i| {
            let row = &read[1 + 4 * i..][..4];
            std::array::from_fn(|j| match j {
                3 => row[3],
                _ => (0..4).map(|k| row[k] * f[j][k]).sum(),
            })
        });
        let gradient = std::array::from_fn(|i| {
            std::array::from_fn(|j| (0..3).map(|k| back[k][i] * right[k][j]).sum())
        });
        Ok((read[0], gradient))
    }

    fn alignment_loss(&self) -> AlignmentLoss {
        match self.similarity {
            Similarity::Lncc(settings) => AlignmentLoss::Lncc(settings.options()),
            Similarity::Mse => AlignmentLoss::SquaredDifference,
            Similarity::Mi(settings) => {
                AlignmentLoss::Information(Information::Mutual, settings.options())
            }
            Similarity::Nmi(settings) => {
                AlignmentLoss::Information(Information::Normalized, settings.options())
            }
        }
    }

    /// The loss of `moving(A x + u(x))` against `fixed(x)`; lower is more alike. `affine` is `A` in
    /// RAS mm, `displacement` is `u` on the grid of the level. Waits for the device.
    pub fn loss(
        &self,
        affine: &Affine<Physical, Physical>,
        displacement: Option<&Displacement>,
    ) -> Result<f64> {
        if displacement.is_none() && self.outside == Outside::Ignored {
            return Ok(self.gradient(affine)?.0);
        }
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
            Similarity::Nmi(settings) => {
                NormalizedMutualInformation(settings.options()).loss(moved, fixed)
            }
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
