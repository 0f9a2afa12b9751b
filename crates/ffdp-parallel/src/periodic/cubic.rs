//! Cubic splines across seams.

use super::PeriodicGrid;
use crate::ring::DisplacementBounds;
use crate::sharded::Sharded;
use ffdp_burn::error::Result;
use ffdp_burn::ops::{cubic_coefficients, cubic_sample};

impl PeriodicGrid {
    /// [`cubic_coefficients`] of a volume `[N, C, D, H, W]`, for [`PeriodicGrid::sample`].
    ///
    /// # Errors
    /// [`Invalid`](ffdp_burn::Error::Invalid) for other cuts; those of [`Holders::fetch`](crate::Holders::fetch).
    pub fn coefficients(&self, volume: &Sharded) -> Result<Sharded> {
        self.check("coefficients", volume, None)?;
        self.by_whole(&[volume], self, |mut volume| cubic_coefficients(volume.remove(0)))
    }

    /// The bounds of a displacement `[N, 3, D, H, W]` over all shards and ranks, for [`PeriodicGrid::sample`]. Waits
    /// for the devices; a stationary velocity has the same ones in every step. None are needed, and none are read,
    /// where the grid is whole.
    ///
    /// # Errors
    /// As [`PeriodicGrid::gradient`], and [`Error::Device`](ffdp_burn::Error::Device) when they cannot be read.
    pub fn bounds(&self, displacement: &Sharded) -> Result<DisplacementBounds> {
        self.check("bounds", displacement, Some(3))?;
        if self.is_whole() {
            return Ok(DisplacementBounds([[f64::NEG_INFINITY, f64::INFINITY]; 3]));
        }
        let bounds = DisplacementBounds::read(displacement)?.into_iter();
        self.holders.union(bounds.reduce(DisplacementBounds::union).expect("there are shards"))
    }

    /// [`cubic_sample`]: a spline of `coefficients` `[N, C, D, H, W]` at the voxels displaced by `displacement`
    /// `[N, 3, D, H, W]`, in voxels; result as the coefficients.
    ///
    /// `bounds` hold the displacement, and decide which planes travel: any that do, of a velocity of which the
    /// displacement is a part for example.
    ///
    /// # Errors
    /// As [`PeriodicGrid::coefficients`].
    pub fn sample(
        &self,
        coefficients: &Sharded,
        displacement: &Sharded,
        _bounds: &DisplacementBounds,
    ) -> Result<Sharded> {
        self.check("sample", coefficients, None)?;
        self.check("sample", displacement, Some(3))?;
        let sample = |mut both: Vec<_>| {
            let displacement = both.remove(1);
            cubic_sample(both.remove(0), displacement)
        };
        self.by_whole(&[coefficients, displacement], self, sample)
    }
}
