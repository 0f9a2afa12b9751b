//! Sampling an image that is read as it is needed: of a file, no more than the planes that a few planes of
//! the fixed side reach. Those that the next ones reach as well stay where they are: turned planes reach many, and a
//! file would be read again and again.

use std::ops::Range;

use burn::Tensor;
use burn::tensor::Device;

use super::held::HeldPlanes;
use super::parcel::{Parcel, local_affine};
use super::route::thickest_parcel;
use super::{DisplacementBounds, IndexMap, MappedPlanes};
use crate::layout::{Axis, Layout};
use ffdp_burn::ops::{GridSampleOptions, Interpolation, grid_sample};
use ffdp_burn::transform::affine_tensor;
use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Voxel};

/// A displacement, if there is one, and what it keeps within.
#[derive(Clone, Copy, Debug)]
pub struct BoundedField<'a> {
    /// `[1, 3, D, H, W]`, in voxels.
    pub field: Option<&'a Tensor<5>>,
    /// Of all its vectors.
    pub bounds: &'a DisplacementBounds,
}

impl BoundedField<'_> {
    /// No displacement.
    pub const NONE: Self = Self { field: None, bounds: &DisplacementBounds::NONE };
}

/// How one grid lies in an image that is read, both cut along z.
pub struct ReadSampler {
    fixed: Layout,
    /// Cut into as thick shards as may be read at once, halved.
    moving: Layout,
    /// Planes that may be held.
    most: usize,
    /// Planes of the image, from those that were sampled last.
    held: HeldPlanes,
    affine: Affine<Voxel, Voxel>,
    map: IndexMap,
    options: GridSampleOptions,
}

impl ReadSampler {
    /// For grids of `fixed` and `moving` (D, H, W) voxels, of which at most about `voxels` are held
    /// at a time, or, unless interpolation is linear, all that are reached. `affine` leads from the ones to the others,
    /// and its linear part moves displacements.
    ///
    /// # Errors
    /// [`Error::Invalid`](ffdp_image::Error::Invalid) for a grid without planes.
    pub fn new(
        [fixed, moving]: [[usize; 3]; 2],
        affine: Affine<Voxel, Voxel>,
        voxels: usize,
        interpolation: Interpolation,
    ) -> Result<Self> {
        let [planes, h, w] = moving;
        let parts = (2 * planes * h * w).div_ceil(voxels).clamp(1, planes);
        let map = IndexMap { affine: vec![*affine.rows()], scale: affine.linear() };
        let options = GridSampleOptions {
            displacement_scale: map.scale,
            interpolation,
            ..GridSampleOptions::default()
        };
        Ok(Self {
            fixed: Layout::balanced(fixed, Axis::Z, 1)?,
            moving: Layout::balanced(moving, Axis::Z, parts)?,
            most: voxels / (h * w),
            held: HeldPlanes::default(),
            affine,
            map,
            options,
        })
    }

    /// The image at `planes` of the fixed side, displaced by a field on them; zero outside. `read` gives planes of
    /// the image as a tensor `[1, C, n, H, W]` on `device`.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn sample(
        &mut self,
        planes: &Range<usize>,
        BoundedField { field, bounds }: BoundedField,
        device: &Device,
        mut read: impl FnMut(Range<usize>) -> Result<Tensor<5>>,
    ) -> Result<Tensor<5>> {
        let moving = &self.moving;
        let mapped = MappedPlanes { fixed: &self.fixed, planes, map: &self.map, bounds };
        let window = mapped.reachable(moving);
        let is_linear = self.options.interpolation == Interpolation::Linear;
        // Next to a cut, the nearest voxel is no sum of parts.
        if window.len() <= self.most || !is_linear {
            let (held, image) = self.held.hold(window, device, read)?;
            return Ok(self.part(planes, &Parcel::plain(held), image, field));
        }
        self.held.clear();
        let limit = thickest_parcel(moving.thickest());
        let mut parcels = mapped.parcels(moving, &self.options, limit);
        // A file is read forward.
        parcels.sort_by_key(|parcel| parcel.planes.start);
        let mut sum: Option<Tensor<5>> = None;
        for parcel in parcels {
            let part = self.part(planes, &parcel, read(parcel.content())?, field);
            sum = Some(match sum {
                Some(sum) => sum + part,
                None => part,
            });
        }
        Ok(sum.expect("a route has at least one parcel"))
    }

    /// What a parcel, whose planes are `image`, shows on `planes` of the fixed side.
    fn part(
        &self,
        planes: &Range<usize>,
        parcel: &Parcel,
        image: Tensor<5>,
        field: Option<&Tensor<5>>,
    ) -> Tensor<5> {
        let [_, h, w] = self.fixed.size();
        let options = GridSampleOptions { size: Some([planes.len(), h, w]), ..self.options };
        let affine = affine_tensor(&self.affine, &image.device(), image.dtype());
        let origins = [[0.0, 0.0, planes.start as f64], parcel.origin(&self.moving)];
        let affine = local_affine(Some(&affine), &image, origins);
        grid_sample(image, affine, field.cloned(), &options)
    }
}
