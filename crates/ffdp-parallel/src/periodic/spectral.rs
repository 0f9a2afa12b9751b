//! Operators that are diagonal in the modes of a volume that no device holds alone.

use burn::Tensor;

use super::PeriodicGrid;
use super::turned::{Cutting, Parts};
use crate::sharded::Sharded;
use ffdp_burn::ops::spectral::with_modes;
use ffdp_burn::ops::{
    Direction, ModeBlock, Symbol, fft_lines, fft_rows, inverse_fft_rows, multiply_modes, spectral,
    spectral_resize,
};
use ffdp_image::error::{Error, Result};

impl PeriodicGrid {
    /// [`spectral`](spectral()) with the grid's voxel as `voxel_mm`: field `[N, 3, D, H, W]` (any number of channels for
    /// [`Symbol::Smooth`]) to the same.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) for another shape or other cuts; those of [`Holders::fetch`](crate::hosts::Holders::fetch).
    ///
    /// # Panics
    /// As [`spectral`](spectral()).
    pub fn spectral(&self, field: &Sharded, symbol: Symbol) -> Result<Sharded> {
        let channels = if matches!(symbol, Symbol::Smooth { .. }) { None } else { Some(3) };
        self.check("spectral", field, channels)?;
        if self.is_whole() {
            return Ok(Self::by_whole(field, |field| spectral(field, symbol, self.voxel())));
        }
        let size = self.size();
        self.through_modes(
            field,
            self,
            |modes, _| modes,
            |modes, first| multiply_modes(modes, symbol, self.voxel(), ModeBlock { size, first }),
        )
    }

    /// [`spectral_resize`] of volumes `[N, C, D, H, W]` of this grid to those of `to`, the same box in other voxels
    /// ([`PeriodicGrid::resized`]).
    ///
    /// # Errors
    /// As [`PeriodicGrid::spectral`], and for a grid that is cut along another axis or shared by other ranks.
    ///
    /// # Panics
    /// As [`spectral_resize`].
    pub fn resize(&self, volume: &Sharded, to: &Self) -> Result<Sharded> {
        self.check("resize", volume, None)?;
        let of = |grid: &Self| (grid.layout().axis(), grid.holders().count());
        if of(self) != of(to) {
            return Err(Error::invalid(
                "resize: both grids must be cut along one axis, for the same ranks",
                (of(self), of(to)),
                "make the one from the other, by `resized`",
            ));
        }
        if self.is_whole() && to.is_whole() {
            return Ok(Self::by_whole(volume, |volume| spectral_resize(volume, to.size())));
        }
        if self.size() == to.size() && self.layout() == to.layout() {
            return Ok(volume.clone());
        }
        let ([old, new], dim) = ([self.size(), to.size()], self.line_axis());
        let resized = |modes, axis: usize| with_modes(modes, axis, old[axis - 2], new[axis - 2]);
        self.through_modes(
            volume,
            to,
            // Before they travel, since they may be fewer.
            |modes, plane_axis| resized(resized(modes, 4), plane_axis),
            |modes, _| resized(modes, dim),
        )
    }

    /// The axis along which lines are transformed that no place has at first.
    fn line_axis(&self) -> usize {
        self.layout().axis().dim().min(3)
    }

    /// Modes of a volume, and from modes a volume of the grid `to`, scaled by the voxels of this one.
    ///
    /// In between, `of_planes` has modes along x and the axis that it is given, of some planes of the line axis;
    /// `of_lines` has all modes, of some lines, and their first mode along z and y.
    ///
    /// Rows along x are transformed first: a volume that is cut along x is turned for that, before and after.
    fn through_modes(
        &self,
        volume: &Sharded,
        to: &Self,
        of_planes: impl Fn(Tensor<5>, usize) -> Tensor<5>,
        of_lines: impl Fn(Tensor<5>, [usize; 2]) -> Tensor<5>,
    ) -> Result<Sharded> {
        let (line, plane) = (self.line_axis(), 5 - self.line_axis());
        let ([old, new], dtype) = ([self.size(), to.size()], volume.shards()[0].dtype());
        let [batch, channels, ..] = volume.dims();
        // Where planes are, and where lines.
        let planes = |grid: &Self| match grid.layout().axis().dim() {
            4 => Cutting::shared(grid, line, grid.size()[line - 2]),
            _ => Cutting::of(grid),
        };
        let lines = Cutting::shared(self, plane, new[plane - 2]);
        let parts: Parts = volume.shards().iter().cloned().map(Some).collect();
        let whole = (volume.dims(), dtype);
        let parts = self.turned(&parts, whole, &Cutting::of(self), &planes(self))?;
        let parts = each(parts, |part| {
            of_planes(fft_lines(fft_rows(part), plane, Direction::Forward), plane)
        });
        let mut dims = [batch, 2 * channels, new[0], new[1], new[2] / 2 + 1];
        dims[line] = old[line - 2];
        let parts = self.turned(&parts, (dims, dtype), &planes(self), &lines)?;
        let starts = lines.here.iter().map(|planes| planes.start);
        let parts = parts.into_iter().zip(starts).map(|(part, start)| {
            let mut first = [0; 2];
            first[plane - 2] = start;
            let modes = of_lines(fft_lines(part?, line, Direction::Forward), first);
            Some(fft_lines(modes, line, Direction::Inverse))
        });
        dims[line] = new[line - 2];
        let parts = self.turned(&parts.collect(), (dims, dtype), &lines, &planes(to))?;
        let scale = 1.0 / self.layout().voxels() as f64;
        let parts = each(parts, |part| {
            inverse_fft_rows(fft_lines(part, plane, Direction::Inverse), new[2], scale)
        });
        let whole = ([batch, channels, new[0], new[1], new[2]], dtype);
        let parts = self.turned(&parts, whole, &planes(to), &Cutting::of(to))?;
        let shards = parts.into_iter().map(|part| part.expect("a shard has planes"));
        Ok(Sharded::new(shards.collect(), to.layout().clone()))
    }
}

fn each(parts: Parts, make: impl Fn(Tensor<5>) -> Tensor<5>) -> Parts {
    parts.into_iter().map(|part| part.map(&make)).collect()
}
