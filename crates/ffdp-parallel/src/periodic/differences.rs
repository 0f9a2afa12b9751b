//! Differences of eighth order across seams.

use super::PeriodicGrid;
use crate::sharded::Sharded;
use ffdp_burn::error::Result;
use ffdp_burn::ops::{periodic_divergence, periodic_gradient};

impl PeriodicGrid {
    /// [`periodic_gradient`] per unit of the grid's voxel: image `[N, 1, D, H, W]` to `[N, 3, D, H, W]`,
    /// components (x, y, z).
    ///
    /// # Errors
    /// [`Invalid`](ffdp_burn::Error::Invalid) for another shape or other cuts; those of
    /// [`Holders::fetch`](crate::Holders::fetch).
    pub fn gradient(&self, image: &Sharded) -> Result<Sharded> {
        self.check("gradient", image, Some(1))?;
        self.by_whole(&[image], self, |mut image| periodic_gradient(image.remove(0), self.voxel))
    }

    /// [`periodic_divergence`] per unit of the grid's voxel: field `[N, 3, D, H, W]` to `[N, 1, D, H, W]`.
    ///
    /// # Errors
    /// As [`PeriodicGrid::gradient`].
    pub fn divergence(&self, field: &Sharded) -> Result<Sharded> {
        self.check("divergence", field, Some(3))?;
        self.by_whole(&[field], self, |mut field| periodic_divergence(field.remove(0), self.voxel))
    }
}
