//! Transform models: what the fields of a deformable stage stand for.
//!
//! ```text
//! Displacement    w                                      greedy, free-form
//! Halves          w = u_2 o u_1^-1                       SyN
//! Velocity        w = exp(v) - id, inverse exp(-v) - id  stationary velocities, Gauss-Newton-Krylov
//! ```
//! A model of one's own is parameters that stand for a displacement ([`TransformModel`](super::methods::TransformModel)); what it
//! has found is a displacement that is known exactly (`parametric.rs`).

use std::fmt::Debug;
use std::sync::Arc;

use super::fields::Fields;
use ffdp_burn::ops::{Accumulation, DeformMethod};
use ffdp_image::error::Result;
use ffdp_parallel::deform::{ExpOptions, flow_of_velocity, map_of_halves, velocity};

/// What fields stand for.
pub(crate) trait Model: Debug + Send + Sync {
    /// How [`ops::deform`](ffdp_burn::ops::deform()) shows images by them.
    fn shows(&self) -> DeformMethod;

    /// Fields of one level.
    fn count(&self) -> usize {
        self.shows().fields()
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
        let zero = w.parts[0].clone().map(|shard| shard.zeros_like());
        Ok(w.with(vec![zero, w.parts[0].clone()]))
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
        let Self { squarings, accumulation } = *self;
        let exp = ExpOptions { squarings, accumulation };
        let [w, back] = flow_of_velocity(&parts[0], exp, work, holders)?;
        Ok((fields.with(vec![w]), Some(fields.with(vec![back]))))
    }

    /// With the velocity that was found before, or one that leads about where a displacement does.
    fn follow(&self, found: &Deformed) -> Result<Fields> {
        if let Some(fields) = found.model.velocity(&found.fields) {
            return Ok(fields.clone());
        }
        let (w, _) = found.maps()?;
        let exp = ExpOptions { squarings: self.squarings, accumulation: Accumulation::Fast };
        let (v, _) = velocity(&w.parts[0], exp, &w.work, &w.holders)?;
        Ok(w.with(vec![v]))
    }

    fn velocity<'f>(&self, fields: &'f Fields) -> Option<&'f Fields> {
        Some(fields)
    }
}
