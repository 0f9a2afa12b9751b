//! The images of a level, and how alike a transform makes them.

use burn::tensor::Tensor;

use super::prepare::placed;
use super::pyramid::LevelImage;
use super::settings::{LnccSettings, MiSettings, Similarity};
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, Physical, Volume, Voxel, index_affine};
use crate::losses::{self, MutualInformation, NormalizedMutualInformation, Similarity as _};
use crate::ops::weights::{joint_weights, total};
use crate::ops::{
    AlignmentImages, AlignmentLoss, GridSampleOptions, HistogramOptions, Information, LnccOptions,
    Outside, alignment, grid_sample, weighted_lncc,
};
use crate::parallel::Aligned;
use crate::transform::{Displacement, affine_tensor};

/// Two images on one level, as an affine map between them is judged: whole on a device, or in shards
/// (`linear/shards.rs`).
pub(super) trait Alike {
    /// The grids of the fixed and the moving image on the level.
    fn grids(&self) -> [&Geometry; 2];

    /// The loss of `moving(A x)` against `fixed(x)` and its gradient to the rows of `A`, in RAS mm. Waits for
    /// the devices.
    fn gradient(&self, affine: &Affine<Physical, Physical>) -> Result<Aligned>;

    /// The loss alone.
    fn affine_loss(&self, affine: &Affine<Physical, Physical>) -> Result<f64> {
        Ok(self.gradient(affine)?.0)
    }

    /// Part of the fixed grid, in percent, that `affine` (RAS mm) sends into the moving image; 0 for
    /// a map that collapses space.
    fn overlap_percent(&self, affine: &Affine<Physical, Physical>) -> f64 {
        let [fixed, moving] = self.grids();
        let placed = placed(moving, affine);
        placed.map_or(0.0, |placed| fixed.overlap_percent(&placed))
    }
}

/// Two images on one level, on one device.
pub(super) struct Comparison {
    pub fixed: LevelImage,
    pub moving: LevelImage,
    pub similarity: Similarity,
    /// Weights of the voxels of fixed and moving, `[1, 1, D, H, W]`.
    pub masks: [Option<Tensor<5>>; 2],
    /// What fixed voxels count that see nothing of the moving image, under an affine map alone.
    pub outside: Outside,
}

impl Comparison {
    /// With this rule for what lies outside, if the similarity knows it.
    pub fn seeing(self, outside: Outside) -> Self {
        Self { outside: self.similarity.seen_outside(outside), ..self }
    }

    /// The first channels of fixed and moving, 0 where they do not count.
    pub fn volumes(&self) -> Result<[Volume; 2]> {
        let of = |level: &LevelImage, mask: &Option<Tensor<5>>| {
            let image = level.tensor.clone().narrow(1, 0, 1);
            let counted = match mask {
                None => image,
                Some(mask) => image * mask.clone(),
            };
            Volume::from_tensor(counted, level.geometry.clone())
        };
        Ok([of(&self.fixed, &self.masks[0])?, of(&self.moving, &self.masks[1])?])
    }

    /// From voxels of the fixed to those of the moving image; `affine` is in RAS mm. Planes lie on
    /// each other, whatever their headers say of z.
    pub fn index_map(&self, affine: &Affine<Physical, Physical>) -> Affine<Voxel, Voxel> {
        index_map([&self.fixed.geometry, &self.moving.geometry], affine)
    }

    /// The loss of `moving(A (x + w(x)))` against `fixed(x)`; lower is more alike. `affine` is `A` in
    /// RAS mm, `warp` is `w` on the grid of the level. Waits for the device.
    pub fn loss(
        &self,
        affine: &Affine<Physical, Physical>,
        warp: Option<&Displacement>,
    ) -> Result<f64> {
        if warp.is_none() && self.outside == Outside::Ignored {
            return Ok(self.gradient(affine)?.0);
        }
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
        joint_weights(fixed.clone(), moved)
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

impl Alike for Comparison {
    fn grids(&self) -> [&Geometry; 2] {
        [&self.fixed.geometry, &self.moving.geometry]
    }

    fn gradient(&self, affine: &Affine<Physical, Physical>) -> Result<Aligned> {
        let (fixed, moving) = (&self.fixed, &self.moving);
        let map = self.index_map(affine);
        let map = affine_tensor(&map, &moving.tensor.device(), moving.tensor.dtype());
        let images = AlignmentImages {
            fixed: fixed.tensor.clone(),
            moving: moving.tensor.clone(),
            masks: self.masks.clone(),
        };
        let loss = self.similarity.alignment_loss();
        let (loss, gradient) = alignment(&images, map, &loss, self.outside);
        let read = read(Tensor::cat(vec![loss, gradient.flatten(0, 2)], 0))?;
        let rows = std::array::from_fn(|i| std::array::from_fn(|j| read[1 + 4 * i + j]));
        Ok((read[0], to_physical(self.grids(), &rows)))
    }

    fn affine_loss(&self, affine: &Affine<Physical, Physical>) -> Result<f64> {
        match self.outside {
            Outside::Ignored => Ok(self.gradient(affine)?.0),
            Outside::Background => self.loss(affine, None),
        }
    }
}

/// From voxels of the fixed to those of the moving grid; `affine` is in RAS mm. Planes lie on each other,
/// whatever their headers say of z.
pub(super) fn index_map(
    [fixed, moving]: [&Geometry; 2],
    affine: &Affine<Physical, Physical>,
) -> Affine<Voxel, Voxel> {
    let map = index_affine(fixed, moving, affine);
    match moving.size[2] {
        1 => Affine::from_rows([map.rows()[0], map.rows()[1], [0.0; 4]]),
        _ => map,
    }
}

/// The gradient to the rows of the map of physical space from that to the rows of the map of voxels.
///
/// With `F`, `M` the voxel-to-mm maps, the sampler takes `K = M^-1 A F`: `dL/dA = M_lin^-T dL/dK F^T`.
pub(super) fn to_physical(
    [fixed, moving]: [&Geometry; 2],
    to_map: &[[f64; 4]; 3],
) -> [[f64; 4]; 3] {
    let f = *fixed.voxel_to_mm().rows();
    let back = moving.mm_to_voxel().linear();
    // Planes lie on each other, wherever the map sends them along z.
    let rows = if moving.size[2] == 1 { 2 } else { 3 };
    // dL/dK F^T, its last column that of the translations.
    let right: [[f64; 4]; 3] = std::array::from_fn(|i| {
        let row = &to_map[i];
        std::array::from_fn(|j| match j {
            _ if i >= rows => 0.0,
            3 => row[3],
            _ => (0..4).map(|k| row[k] * f[j][k]).sum(),
        })
    });
    std::array::from_fn(|i| std::array::from_fn(|j| (0..3).map(|k| back[k][i] * right[k][j]).sum()))
}

impl Similarity {
    /// What an affine map is found by.
    pub(super) fn alignment_loss(self) -> AlignmentLoss {
        match self {
            Self::Lncc(settings) => AlignmentLoss::Lncc(settings.options()),
            Self::Mse => AlignmentLoss::SquaredDifference,
            Self::Mi(settings) => {
                AlignmentLoss::Information(Information::Mutual, settings.options())
            }
            Self::Nmi(settings) => {
                AlignmentLoss::Information(Information::Normalized, settings.options())
            }
        }
    }

    /// What counts outside the moving image: `outside`, if the similarity knows it.
    pub(super) fn seen_outside(self, outside: Outside) -> Outside {
        match self {
            Self::Mi(_) | Self::Nmi(_) => outside,
            Self::Lncc(_) | Self::Mse => Outside::Background,
        }
    }

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
            (Self::Mi(settings) | Self::Nmi(settings), weights) => {
                // A table for each channel.
                let apart = |image: Tensor<5>| image.swap_dims(0, 1);
                let weights = weights.map(|weights| apart(everywhere(weights, &moved)));
                let (moved, fixed) = (apart(moved), apart(fixed));
                let mutual = MutualInformation(settings.options());
                let normalized = NormalizedMutualInformation(settings.options());
                match (matches!(self, Self::Mi(_)), weights) {
                    (true, None) => mutual.loss(moved, fixed),
                    (true, Some(weights)) => mutual.weighted_loss(moved, fixed, weights),
                    (false, None) => normalized.loss(moved, fixed),
                    (false, Some(weights)) => normalized.weighted_loss(moved, fixed, weights),
                }
            }
        }
    }
}

impl LnccSettings {
    /// As the operation takes them.
    pub(super) fn options(self) -> LnccOptions {
        let Self { window, epsilon, floor } = self;
        LnccOptions { window, epsilon, floor, ..LnccOptions::default() }
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
