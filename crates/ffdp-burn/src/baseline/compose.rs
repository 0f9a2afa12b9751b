//! Composition of displacement fields by tensor operations.

use burn::Tensor;

use super::grid_sample;
use crate::ops::{GridSampleOptions, Padding};

/// The displacement of `(id + outer) o (id + inner)`; see [`crate::ops::compose()`].
///
/// # Shapes
/// outer `[N, 3, Do, Ho, Wo]`, inner and result `[N, 3, D, H, W]`, components (x, y, z) in voxels.
pub fn compose(outer: Tensor<5>, inner: Tensor<5>) -> Tensor<5> {
    let options = GridSampleOptions { padding: Padding::Border, ..Default::default() };
    grid_sample(outer, None, Some(inner.clone()), &options) + inner
}

/// The displacement of `exp(velocity)` by `steps` squarings; see [`crate::ops::exp()`].
///
/// # Shapes
/// velocity and result `[N, 3, D, H, W]`, in voxels.
pub fn exp(velocity: Tensor<5>, steps: usize) -> Tensor<5> {
    let scaled = velocity.mul_scalar(0.5f64.powi(steps as i32));
    (0..steps).fold(scaled, |field, _| compose(field.clone(), field))
}
