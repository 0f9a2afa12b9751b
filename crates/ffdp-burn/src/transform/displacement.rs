//! A displacement field on the grid of the fixed image.

use burn::tensor::{DType, Device, Tensor};

use super::resample::{affine_tensor, map_vectors, resample};
use crate::ops::{GridSampleOptions, Interpolation, Padding, grid_sample};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{
    Affine, Geometry, LabelMap, Volume, download, index_affine, index_linear, upload,
};

/// The map `phi(p) = p + u(p)` from the fixed to the moving image, `u` in voxels of the fixed grid.
///
/// It is a map of physical space: the point of the fixed voxel `p` goes to the point at the
/// continuous index `p + u(p)` of the *fixed* grid, wherever the moving image's own grid lies.
#[derive(Clone, Debug)]
pub struct Displacement {
    field: Tensor<5>,
    geometry: Geometry,
}

impl Displacement {
    /// A displacement from its field `[1, 3, D, H, W]`, components (x, y, z) in voxels.
    ///
    /// # Errors
    /// [`Error::Shape`] when the field does not fit the grid.
    pub fn new(field: Tensor<5>, geometry: Geometry) -> Result<Self> {
        let [d, h, w] = geometry.dims();
        if field.dims() != [1, 3, d, h, w] {
            return Err(Error::Shape {
                what: "shape [1, 3, D, H, W] of a displacement field".into(),
                expected: vec![1, 3, d, h, w],
                got: field.dims().to_vec(),
            });
        }
        Ok(Self { field, geometry })
    }

    /// The identity map on a grid.
    pub fn zero(geometry: Geometry, device: &Device) -> Self {
        let [d, h, w] = geometry.dims();
        let field = Tensor::zeros([1, 3, d, h, w], (device, DType::F32));
        Self { field, geometry }
    }

    /// A displacement from values in the order `[3, D, H, W]`, as files and metrics have it.
    ///
    /// # Errors
    /// [`Error::Shape`] when there are not three values per voxel.
    pub fn from_vec(values: Vec<f32>, geometry: Geometry, device: &Device) -> Result<Self> {
        let [d, h, w] = geometry.dims();
        if values.len() != 3 * geometry.len() {
            let what = "number of values of a displacement [3, D, H, W]".into();
            let (expected, got) = (vec![3 * geometry.len()], vec![values.len()]);
            return Err(Error::Shape { what, expected, got });
        }
        Self::new(upload(values, [1, 3, d, h, w], device), geometry)
    }

    /// The field `[1, 3, D, H, W]`, components (x, y, z) in voxels of [`Self::geometry`].
    pub fn field(&self) -> &Tensor<5> {
        &self.field
    }

    /// The field, for those who change it.
    pub fn into_field(self) -> Tensor<5> {
        self.field
    }

    /// The grid of the fixed image.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The values in the order `[3, D, H, W]`, read back from the device.
    ///
    /// # Errors
    /// [`Error::Device`] when they cannot be read.
    pub fn to_vec(&self) -> Result<Vec<f32>> {
        download(self.field.clone(), "a displacement")
    }

    /// The vectors in RAS mm instead of voxels, `[1, 3, D, H, W]`.
    pub fn to_mm(&self) -> Tensor<5> {
        map_vectors(self.field.clone(), &self.geometry.voxel_to_mm().linear())
    }

    /// The same map on another grid: sampled linearly in physical space, continued beyond its
    /// border with the border's values, in voxels of the new grid.
    pub fn resampled(&self, geometry: &Geometry) -> Self {
        if *geometry == self.geometry {
            return self.clone();
        }
        let (linear, border) = (Interpolation::Linear, Padding::Border);
        let field = resample(self.field.clone(), &self.geometry, geometry, linear, border);
        let field = map_vectors(field, &index_linear(&self.geometry, geometry));
        Self { field, geometry: geometry.clone() }
    }

    /// The image seen through the map, `moving(phi(p))` on the fixed grid; trilinear, zero outside
    /// the image.
    ///
    /// # Errors
    /// [`Error::Device`] when the result cannot be read back.
    pub fn warp(&self, moving: &Volume) -> Result<Volume> {
        let image = moving.to_tensor(&self.field.device());
        let warped = self.sample(image, &moving.geometry, Interpolation::Linear);
        Volume::from_tensor(warped, self.geometry.clone())
    }

    /// The labels seen through the map: that of the nearest voxel, background 0 outside.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 2^24 labels beyond 2^24, [`Error::Device`] when the result cannot be read
    /// back.
    pub fn warp_labels(&self, moving: &LabelMap) -> Result<LabelMap> {
        self.warp_labels_with(moving, Interpolation::Nearest)
    }

    /// The labels seen through the map, by [`Interpolation::Nearest`] or by the smoother
    /// [`Interpolation::Label`]; background 0 outside.
    ///
    /// # Errors
    /// As [`Self::warp_labels`].
    ///
    /// # Panics
    /// If labels were to be mixed: linear interpolation.
    pub fn warp_labels_with(&self, moving: &LabelMap, how: Interpolation) -> Result<LabelMap> {
        assert!(how != Interpolation::Linear, "warp_labels: a mean of labels is no label");
        let (labels, meaning) = moving.to_movable_tensor(&self.field.device())?;
        let warped = self.sample(labels, &moving.geometry, how);
        let values = download(warped, "warped labels")?;
        LabelMap::new(meaning.labels(values), self.geometry.clone())
    }

    fn sample(&self, image: Tensor<5>, grid: &Geometry, how: Interpolation) -> Tensor<5> {
        let map = index_affine(&self.geometry, grid, &Affine::identity());
        let affine = affine_tensor(&map, &image.device(), image.dtype());
        let options = GridSampleOptions {
            interpolation: how,
            displacement_scale: index_linear(&self.geometry, grid),
            ..GridSampleOptions::default()
        };
        grid_sample(image, Some(affine), Some(self.field.clone()), &options)
    }
}
