//! Displacements that few parameters say exactly.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};

use super::checkpoint::SavedField;
use ffdp_burn::ops::bspline_part;
use ffdp_burn::transform::{BsplineTransform, Step};
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, upload};
use ffdp_kit::TensorPlace;

/// A displacement that few parameters say exactly, also between the voxels of a level: what a level has found is
/// evaluated on the next one's grid, and on the fixed image's, in place of being interpolated.
pub trait Parametric: Any + Debug + Send + Sync {
    /// Planes of the displacement, `[1, 3, n, H, W]` in voxels of `grid`.
    ///
    /// # Errors
    /// For a grid on which it cannot be evaluated.
    fn planes(
        &self,
        grid: &Geometry,
        planes: Range<usize>,
        like: &TensorPlace,
    ) -> Result<Tensor<5>>;

    /// It as a step of a [`Composite`](ffdp_burn::transform::Composite), which files have; `None`, if it is known as
    /// its displacement alone.
    fn step(&self) -> Option<Step> {
        None
    }

    /// Its parameters for a checkpoint and for other processes: three numbers for each of the points of a grid. `None`,
    /// by default, if those go on from its displacement.
    fn saved(&self) -> Option<SavedField> {
        None
    }
}

impl dyn Parametric {
    /// The parameters, if they are of this type.
    pub fn downcast<T: Parametric>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

impl Parametric for BsplineTransform {
    fn planes(
        &self,
        grid: &Geometry,
        planes: Range<usize>,
        like: &TensorPlace,
    ) -> Result<Tensor<5>> {
        let (coefficients, control) = self.control_grid(grid, like)?;
        let [_, h, w] = grid.dims();
        Ok(bspline_part(coefficients, &control, [planes.start, 0, 0], [planes.len(), h, w]))
    }

    fn step(&self) -> Option<Step> {
        Some(Step::Bspline(self.clone()))
    }

    fn saved(&self) -> Option<SavedField> {
        let geometry = self.geometry().clone();
        let values = self.coefficients().iter().map(|mm| *mm as f32).collect();
        let [d, h, w] = geometry.dims();
        let values = upload(values, [1, 3, d, h, w], &Device::flex());
        Some(SavedField::whole(values, geometry))
    }
}

/// A spline from what [`Parametric::saved`] gave.
///
/// # Errors
/// [`Error::Device`](ffdp_image::Error::Device) when it cannot be read.
pub(crate) fn spline_of(saved: &SavedField) -> Result<Arc<dyn Parametric>> {
    let values = saved.planes(0..saved.geometry().size[2])?;
    let coefficients = values.into_iter().map(f64::from).collect();
    Ok(Arc::new(BsplineTransform::new(coefficients, saved.geometry().clone())?))
}
