//! Transform models: what the fields of a deformable stage stand for, and fields that few parameters say exactly.
//!
//! ```text
//! Displacement    w                                      greedy, free-form
//! Halves          w = u_2 o u_1^-1                       SyN
//! Velocity        w = exp(v) - id, inverse exp(-v) - id  stationary velocities, Gauss-Newton-Krylov
//! ```
//! A model of one's own is parameters that stand for a displacement (a
//! [`FieldModel`](ffdp_parallel::FieldModel) on each level, `methods/deformable/`); what it has found is a
//! [`Parametric`] displacement.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};

use super::checkpoint::SavedField;
use super::fields::Fields;
use ffdp_burn::ops::{Accumulation, DeformMethod, bspline_part};
use ffdp_burn::transform::{BsplineTransform, Step};
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, upload};
use ffdp_parallel::{flow_of_velocity, map_of_halves, velocity};

/// What fields stand for.
pub(crate) trait Model: Debug + Send + Sync {
    /// How [`ops::deform`](ffdp_burn::ops::deform()) shows images by them.
    fn shows(&self) -> DeformMethod;

    /// Fields of one level.
    fn count(&self) -> usize {
        1
    }

    /// The displacement `w` and, where the model gives it, its inverse, in the fields' shards.
    fn maps(&self, fields: &Fields) -> Result<(Fields, Option<Fields>)>;

    /// Whether it gives the inverse.
    fn gives_inverse(&self) -> bool {
        true
    }

    /// Where a stage begins that goes on from what another has found; fields of this model stay what they are.
    fn follow(&self, found: &Deformed) -> Result<Fields>;

    /// The fields, if they are a stationary velocity.
    fn velocity<'f>(&self, _fields: &'f Fields) -> Option<&'f Fields> {
        None
    }
}

/// What deformable stages have found: fields, and what they stand for.
#[derive(Clone, Debug)]
pub(crate) struct Deformed {
    pub model: Arc<dyn Model>,
    pub fields: Fields,
}

impl Deformed {
    /// A displacement.
    pub fn displacement(fields: Fields) -> Self {
        Self { model: Arc::new(Displaced), fields }
    }

    /// `w` and, where the model gives it, its inverse, in the fields' shards.
    pub fn maps(&self) -> Result<(Fields, Option<Fields>)> {
        self.model.maps(&self.fields)
    }
}

/// A displacement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Displaced;

impl Model for Displaced {
    fn shows(&self) -> DeformMethod {
        DeformMethod::Greedy
    }

    fn maps(&self, fields: &Fields) -> Result<(Fields, Option<Fields>)> {
        Ok((fields.clone(), None))
    }

    fn gives_inverse(&self) -> bool {
        false
    }

    fn follow(&self, found: &Deformed) -> Result<Fields> {
        Ok(found.maps()?.0)
    }
}

/// Two halves, from the middle to the fixed and to the moving image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Halves;

impl Model for Halves {
    fn shows(&self) -> DeformMethod {
        DeformMethod::Syn
    }

    fn count(&self) -> usize {
        2
    }

    fn maps(&self, fields: &Fields) -> Result<(Fields, Option<Fields>)> {
        let Fields { parts, work, holders, .. } = fields;
        let [w, back] = map_of_halves([&parts[0], &parts[1]], work, holders)?;
        Ok((fields.with(vec![w]), Some(fields.with(vec![back]))))
    }

    /// With the halves that were found before; of another model, one half takes all of the displacement.
    fn follow(&self, found: &Deformed) -> Result<Fields> {
        if found.model.count() == self.count() {
            return Ok(found.fields.clone());
        }
        let (w, _) = found.maps()?;
        let still = w.parts[0].clone().map(|shard| shard.zeros_like());
        Ok(w.with(vec![still, w.parts[0].clone()]))
    }
}

/// A stationary velocity, by scaling and squaring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Velocity {
    pub squarings: usize,
    pub accumulation: Accumulation,
}

impl Model for Velocity {
    fn shows(&self) -> DeformMethod {
        let Self { squarings, accumulation } = *self;
        DeformMethod::Svf { squarings, accumulation }
    }

    fn maps(&self, fields: &Fields) -> Result<(Fields, Option<Fields>)> {
        let Fields { parts, work, holders, .. } = fields;
        let by = (self.squarings, self.accumulation);
        let [w, back] = flow_of_velocity(&parts[0], by, work, holders)?;
        Ok((fields.with(vec![w]), Some(fields.with(vec![back]))))
    }

    /// With the velocity that was found before, or one that leads about where a displacement does.
    fn follow(&self, found: &Deformed) -> Result<Fields> {
        if let Some(fields) = found.model.velocity(&found.fields) {
            return Ok(fields.clone());
        }
        let (w, _) = found.maps()?;
        let by = (self.squarings, Accumulation::Fast);
        let (v, _) = velocity(&w.parts[0], by, &w.work, &w.holders)?;
        Ok(w.with(vec![v]))
    }

    fn velocity<'f>(&self, fields: &'f Fields) -> Option<&'f Fields> {
        Some(fields)
    }
}

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
        like: (&Device, DType),
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
        like: (&Device, DType),
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
