//! Where a run begins: a placement, and a deformation before it.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};

use super::fields::Fields;
use super::parametric::Parametric;
use ffdp_burn::transform::{Composite, Step};
use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Geometry, Physical};
use ffdp_kit::TensorPlace;

/// A transform as the stages take it: `phi = A o (id + w)`.
#[derive(Clone, Debug)]
pub(super) struct Start {
    /// `A`: the linear steps that come last.
    pub affine: Affine<Physical, Physical>,
    /// `w`: all that comes before them; `None` where nothing does.
    pub deformation: Option<Arc<dyn Parametric>>,
}

impl Start {
    pub fn of(initial: &Composite) -> Self {
        let (before, affine) = initial.split_affine();
        let deformation: Option<Arc<dyn Parametric>> = match before.steps() {
            [] => None,
            // What free-form deformation goes on from as it is.
            [Step::Bspline(spline)] => Some(Arc::new(spline.clone())),
            _ => Some(Arc::new(InitialMap(before))),
        };
        Self { affine, deformation }
    }

    /// The deformation on a coarse grid, in one piece on `home`. Finer levels evaluate it themselves.
    pub fn fields(&self, grid: &Geometry, home: &Device) -> Result<Option<Fields>> {
        let deformation = self.deformation.as_ref();
        deformation.map(|given| Fields::of_start(given.clone(), grid, home)).transpose()
    }
}

/// Any map of space as a displacement.
#[derive(Debug)]
struct InitialMap(Composite);

impl Parametric for InitialMap {
    fn planes(
        &self,
        grid: &Geometry,
        planes: Range<usize>,
        like: &TensorPlace,
    ) -> Result<Tensor<5>> {
        let [w, h, _] = grid.size;
        let slab = grid.cropped([0, 0, planes.start], [w, h, planes.len()])?;
        Ok(self.0.to_displacement(&slab, &like.device).into_field().cast(like.dtype))
    }
}
