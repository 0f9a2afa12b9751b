//! The opposite of a displacement.

use super::{Registration, Warp};
use crate::verdict::MOST_INVERSE_ERROR_VOXELS;
use ffdp_burn::transform::{Composite, Displacement, RoundTrip, Step};
use ffdp_image::error::Result;

impl Registration {
    /// The inverse of the displacement in one piece and its error: that of the method or, where there is none or it is off
    /// by more than [`MOST_INVERSE_ERROR_VOXELS`], solved for. `None` where nothing deforms.
    ///
    /// # Errors
    /// As [`Warp::planes`].
    pub fn inverse_displacement(&self) -> Result<Option<(Displacement, RoundTrip)>> {
        let Some(warp) = self.warp.as_ref().map(Warp::displacement).transpose()? else {
            return Ok(None);
        };
        let error = |inverse: &Displacement| {
            alone(&warp).round_trip(&alone(inverse), warp.geometry(), &self.home)
        };
        let given = self.inverse.as_ref().map(Warp::displacement).transpose()?;
        let given = given.map(|inverse| Ok::<_, ffdp_image::Error>((error(&inverse)?, inverse)));
        let given = given.transpose()?;
        if let Some((error, inverse)) = &given
            && error.p95_voxels <= MOST_INVERSE_ERROR_VOXELS
        {
            return Ok(Some((inverse.clone(), *error)));
        }
        let solved = alone(&warp).inverse()?.to_displacement(warp.geometry(), &self.home);
        let found = error(&solved)?;
        Ok(Some(match given {
            Some((error, inverse)) if error.p95_voxels < found.p95_voxels => (inverse, error),
            _ => (solved, found),
        }))
    }
}

fn alone(displacement: &Displacement) -> Composite {
    Composite::new(vec![Step::Displacement(displacement.clone())])
}
