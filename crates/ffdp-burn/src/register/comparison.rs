//! The images of a level, and how alike a transform makes them.

use burn::tensor::Tensor;

use super::pyramid::LevelImage;
use super::settings::{LnccSettings, MiSettings, Similarity};
use crate::error::{Error, Result};
use crate::image::{Affine, Physical, Voxel, index_affine};
use crate::losses::{self, MutualInformation, Similarity as _};
use crate::ops::{GridSampleOptions, HistogramOptions, LnccOptions, grid_sample, weighted_lncc};
use crate::transform::{Displacement, affine_tensor};

/// Two images on one level.
pub(super) struct Comparison {
    pub fixed: LevelImage,
    pub moving: LevelImage,
    pub similarity: Similarity,
    /// Weights of the voxels of fixed and moving, `[1, 1, D, H, W]`.
    pub masks: [Option<Tensor<5>>; 2],
}

impl Comparison {
    /// From voxels of the fixed to those of the moving image; `affine` is in RAS mm. Planes lie on
    /// each other, whatever their headers say of z.
    pub fn index_map(&self, affine: &Affine<Physical, Physical>) -> Affine<Voxel, Voxel> {
        let moving = &self.moving.geometry;
        let map = index_affine(&self.fixed.geometry, moving, affine);
        match moving.size[2] {
            1 => Affine::from_rows([map.rows()[0], map.rows()[1], [0.0; 4]]),
            _ => map,
        }
    }

    /// The loss of `moving(A (x + w(x)))` against `fixed(x)`; lower is more alike. `affine` is `A` in
    /// RAS mm, `warp` is `w` on the grid of the level. Waits for the device.
    pub fn loss(
        &self,
        affine: &Affine<Physical, Physical>,
        warp: Option<&Displacement>,
    ) -> Result<f64> {
        let moved = self.seen(&self.moving.tensor, affine, warp);
        let loss =
            self.similarity.loss(moved, self.fixed.tensor.clone(), self.weights(affine, warp));
        Ok(read(loss)?[0])
    }

    /// Demands that some voxel count in both images, placed by `affine` and `warp`.
    pub fn check_weights(
        &self,
        affine: &Affine<Physical, Physical>,
        warp: Option<&Displacement>,
    ) -> Result<()> {
        let Some(weights) = self.weights(affine, warp) else { return Ok(()) };
        let largest = read(weights.max())?[0];
        if largest > 0.0 {
            return Ok(());
        }
        Err(Error::invalid(
            "the masks of the fixed and the moving image must meet where the images are compared",
            format_args!("no voxel that counts in both"),
            "check that each mask belongs to its image, or start from an initial transform that \
             brings them together",
        ))
    }

    /// How much each voxel counts.
    fn weights(
        &self,
        affine: &Affine<Physical, Physical>,
        warp: Option<&Displacement>,
    ) -> Option<Tensor<5>> {
        let [fixed, moving] = &self.masks;
        let moved = moving.as_ref().map(|mask| self.seen(mask, affine, warp));
        match (fixed.clone(), moved) {
            (Some(fixed), Some(moved)) => Some(fixed * moved),
            (fixed, moved) => fixed.or(moved),
        }
    }

    /// An image on the moving grid seen through the transform.
    fn seen(
        &self,
        image: &Tensor<5>,
        affine: &Affine<Physical, Physical>,
        warp: Option<&Displacement>,
    ) -> Tensor<5> {
        let map = self.index_map(affine);
        let options = GridSampleOptions {
            displacement_scale: map.linear(),
            size: Some(self.fixed.geometry.dims()),
            ..GridSampleOptions::default()
        };
        let map = affine_tensor(&map, &image.device(), image.dtype());
        let field = warp.map(|warp| warp.field().clone());
        grid_sample(image.clone(), Some(map), field, &options)
    }
}

impl Similarity {
    /// The loss of two images `[1, C, D, H, W]`, weights `[1, 1, D, H, W]`: the mean over the channels.
    pub(super) fn loss(
        self,
        moved: Tensor<5>,
        fixed: Tensor<5>,
        weights: Option<Tensor<5>>,
    ) -> Tensor<1> {
        let everywhere = |weights: Tensor<5>, moved: &Tensor<5>| weights.expand(moved.dims());
        match (self, weights) {
            (Self::Lncc(settings), None) => losses::Lncc(settings.options()).loss(moved, fixed),
            (Self::Lncc(settings), Some(weights)) => {
                weighted_lncc(moved, fixed, weights, &settings.options())
            }
            (Self::Mse, None) => losses::Mse.loss(moved, fixed),
            (Self::Mse, Some(weights)) => {
                let channels = moved.dims()[1] as f64;
                let difference = moved - fixed;
                let count = total(weights.clone()).mul_scalar(channels);
                total(difference.clone() * difference * weights) / count
            }
            (Self::Mi(settings), weights) => {
                let measure = MutualInformation(settings.options());
                // A table for each channel.
                let apart = |image: Tensor<5>| image.swap_dims(0, 1);
                let weights = weights.map(|weights| apart(everywhere(weights, &moved)));
                match weights {
                    None => measure.loss(apart(moved), apart(fixed)),
                    Some(weights) => measure.weighted_loss(apart(moved), apart(fixed), weights),
                }
            }
        }
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

/// The sum of all values; of rows and planes first, so that no sum is long.
pub(super) fn total(x: Tensor<5>) -> Tensor<1> {
    x.sum_dim(4).sum_dim(3).sum()
}

/// Numbers read from the device.
pub(super) fn read(values: Tensor<1>) -> Result<Vec<f64>> {
    let values = values
        .try_into_vec_as::<f32>()
        .map_err(|reason| Error::device("reading the loss", reason))?;
    Ok(values.into_iter().map(f64::from).collect())
}
