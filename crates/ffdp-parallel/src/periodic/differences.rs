//! Differences of eighth order across seams.

use burn::Tensor;

use super::PeriodicGrid;
use crate::sharded::Sharded;
use ffdp_burn::ops::{periodic_divergence, periodic_gradient};
use ffdp_image::error::Result;

/// Planes to either side that a difference of eighth order looks at.
const REACH: usize = 4;

impl PeriodicGrid {
    /// [`periodic_gradient`] per unit of the grid's voxel: image `[N, 1, D, H, W]` to `[N, 3, D, H, W]`,
    /// components (x, y, z).
    ///
    /// # Errors
    /// [`Invalid`](ffdp_image::Error::Invalid) for another shape or other cuts; those of
    /// [`Holders::fetch`](crate::hosts::Holders::fetch).
    pub fn gradient(&self, image: &Sharded) -> Result<Sharded> {
        self.check("gradient", image, Some(1))?;
        self.through(image, |block| periodic_gradient(block, self.voxel))
    }

    /// [`periodic_divergence`] per unit of the grid's voxel: field `[N, 3, D, H, W]` to `[N, 1, D, H, W]`.
    ///
    /// # Errors
    /// As [`PeriodicGrid::gradient`].
    pub fn divergence(&self, field: &Sharded) -> Result<Sharded> {
        self.check("divergence", field, Some(3))?;
        self.through(field, |block| periodic_divergence(block, self.voxel))
    }

    fn through(
        &self,
        volume: &Sharded,
        differences: impl Fn(Tensor<5>) -> Tensor<5>,
    ) -> Result<Sharded> {
        match self.is_whole() {
            true => Ok(Self::by_whole(volume, differences)),
            false => self.through_around(volume, REACH, differences),
        }
    }
}
