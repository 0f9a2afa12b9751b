//! Operators that are diagonal in the modes of a volume that no device holds alone.

use super::PeriodicGrid;
use crate::sharded::Sharded;
use ffdp_burn::error::{Error, Result};
use ffdp_burn::ops::{Symbol, spectral, spectral_resize};

impl PeriodicGrid {
    /// [`spectral`] with the grid's voxel as `voxel_mm`: field `[N, 3, D, H, W]` (any number of channels for
    /// [`Symbol::Smooth`]) to the same.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) for another shape or other cuts; those of [`Holders::fetch`](crate::Holders::fetch).
    ///
    /// # Panics
    /// As [`spectral`].
    pub fn spectral(&self, field: &Sharded, symbol: Symbol) -> Result<Sharded> {
        let channels = if matches!(symbol, Symbol::Smooth { .. }) { None } else { Some(3) };
        self.check("spectral", field, channels)?;
        self.by_whole(&[field], self, |mut field| spectral(field.remove(0), symbol, self.voxel))
    }

    /// [`spectral_resize`] of volumes `[N, C, D, H, W]` of this grid to those of `to`, the same box in other voxels
    /// ([`PeriodicGrid::resized`]).
    ///
    /// # Errors
    /// As [`PeriodicGrid::spectral`], and for grids cut along different axes.
    ///
    /// # Panics
    /// As [`spectral_resize`].
    pub fn resize(&self, volume: &Sharded, to: &Self) -> Result<Sharded> {
        self.check("resize", volume, None)?;
        if self.layout().axis() != to.layout().axis() {
            let axes = [self.layout().axis(), to.layout().axis()];
            return Err(Error::invalid(
                "resize: both grids must be cut along one axis",
                axes,
                "make the one from the other, by `resized`",
            ));
        }
        self.by_whole(&[volume], to, |mut volume| spectral_resize(volume.remove(0), to.size()))
    }
}
