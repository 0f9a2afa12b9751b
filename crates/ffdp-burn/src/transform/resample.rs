//! From one voxel grid to another, through physical space.

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::ops::{GridSampleOptions, Interpolation, Padding, affine_field, grid_sample};
use ffdp_image::image::{Affine, Geometry, Matrix3, Voxel, index_affine};

/// The values of `image` (on the grid `from`) at the voxel centres of the grid `to`.
///
/// Both grids are placed by their headers: the same physical point keeps the same value, whatever
/// the spacing, orientation and origin. No smoothing: before going to a coarser grid, smooth.
///
/// # Shapes
/// image `[N, C, D, H, W]` of `from`; result `[N, C, D', H', W']` of `to`.
///
/// # Panics
/// If the image is not of the size of `from`.
pub fn resample(
    image: Tensor<5>,
    from: &Geometry,
    to: &Geometry,
    interpolation: Interpolation,
    padding: Padding,
) -> Tensor<5> {
    let dims = image.dims();
    assert_eq!(dims[2..], from.dims(), "resample: image {dims:?} and the size (z, y, x) of `from`");
    let map = index_affine(to, from, &Affine::identity());
    let affine = affine_tensor(&map, &image.device(), image.dtype());
    let size = Some(to.dims());
    let options =
        GridSampleOptions { interpolation, padding, size, ..GridSampleOptions::default() };
    grid_sample(image, Some(affine), None, &options)
}

/// The vectors of a field multiplied by a matrix: `v(p) = M u(p)`, components (x, y, z).
///
/// # Shapes
/// field and result `[N, 3, D, H, W]`.
///
/// # Panics
/// If the field has not 3 components.
pub fn map_vectors(field: Tensor<5>, matrix: &Matrix3) -> Tensor<5> {
    affine_field(&[[0.0; 4]; 3], matrix, field)
}

/// `[1, 3, 4]`, the form in which the sampler takes an index map.
pub fn affine_tensor(map: &Affine<Voxel, Voxel>, device: &Device, dtype: DType) -> Tensor<3> {
    let rows: Vec<f64> = map.rows().iter().flatten().copied().collect();
    let data = TensorData::new(rows, [1, 3, 4]).convert_dtype(dtype);
    Tensor::from_data(data, (device, dtype))
}
