//! Between voxels, across seams.

use burn::Tensor;
use burn::tensor::DType;

use super::PeriodicGrid;
use crate::ring::DisplacementBounds;
use crate::sharded::Sharded;
use ffdp_burn::ops::{
    PeriodicInterpolation, cubic_coefficients, cubic_coefficients_along, periodic_sample,
};
use ffdp_image::error::Result;

/// Planes after which `z^s`, `z = sqrt 3 - 2`, of the inverse of the spline has fallen below rounding. A halo of them
/// costs less than to turn the volume (`turned.rs`) unless shards are thinner, and then it goes around.
const REACH_F32: usize = 14;
const REACH_F64: usize = 28;

/// Planes more on either side: positions are rounded in f32.
const ROUNDING_PLANES: u8 = 1;

impl PeriodicGrid {
    /// What [`PeriodicGrid::sample`] reads of a volume `[N, C, D, H, W]`: the [`cubic_coefficients`] where the grid has a
    /// B-spline between its voxels, the volume itself otherwise.
    ///
    /// # Errors
    /// [`Invalid`](ffdp_image::Error::Invalid) for other cuts; those of [`Holders::fetch`](crate::hosts::Holders::fetch).
    pub fn coefficients(&self, volume: &Sharded) -> Result<Sharded> {
        self.check("coefficients", volume, None)?;
        if self.between != PeriodicInterpolation::BSpline {
            return Ok(volume.clone());
        }
        if self.is_whole() {
            return Ok(Self::by_whole(volume, cubic_coefficients));
        }
        let dim = self.layout().axis().dim();
        let across = [2, 3, 4].map(|axis| axis != dim);
        let lines = volume.clone().map(|shard| cubic_coefficients_along(shard, across));
        let reach = if lines.shards()[0].dtype() == DType::F64 { REACH_F64 } else { REACH_F32 };
        let along = across.map(|across| !across);
        self.through_around(&lines, reach, |block| cubic_coefficients_along(block, along))
    }

    /// The bounds of a displacement `[N, 3, D, H, W]` over all shards and ranks, for [`PeriodicGrid::sample`]. Waits
    /// for the devices; a stationary velocity has the same ones in every step. None are needed, and none are read,
    /// where the grid is whole.
    ///
    /// # Errors
    /// As [`PeriodicGrid::gradient`], and [`Error::Device`](ffdp_image::Error::Device) when they cannot be read.
    pub fn bounds(&self, displacement: &Sharded) -> Result<DisplacementBounds> {
        self.check("bounds", displacement, Some(3))?;
        if self.is_whole() {
            return Ok(DisplacementBounds([[f64::NEG_INFINITY, f64::INFINITY]; 3]));
        }
        let bounds = DisplacementBounds::read(displacement)?.into_iter();
        self.holders.union(bounds.reduce(DisplacementBounds::union).expect("there are shards"))
    }

    /// [`periodic_sample`]: a volume by its `coefficients` `[N, C, D, H, W]` at the voxels displaced by `displacement`
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
        bounds: &DisplacementBounds,
    ) -> Result<Sharded> {
        self.check("sample", coefficients, None)?;
        self.check("sample", displacement, Some(3))?;
        if self.is_whole() {
            let displacement = displacement.shards()[0].clone();
            let sample = |c| periodic_sample(c, displacement, [0; 3], self.between);
            return Ok(Self::by_whole(coefficients, sample));
        }
        let axis = self.layout().axis();
        let blocks = match self.reached(bounds) {
            Some(margins) => self.around(coefficients, margins)?,
            // The whole volume at every shard: there the period is its own.
            None => self.everything(coefficients)?,
        };
        let margin = self.reached(bounds).map(|[below, _]| below);
        let places = blocks.into_iter().zip(displacement.shards()).zip(self.layout().all_planes());
        let shards = places.map(|((block, displacement), planes)| {
            let mut origin = [0; 3];
            origin[axis.component()] = margin.unwrap_or(planes.start);
            periodic_sample(block, displacement.clone(), origin, self.between)
        });
        Ok(Sharded::new(shards.collect(), self.layout().clone()))
    }

    /// Planes below and above its own that a shard samples; none where these, with the thickest shard, would be the
    /// whole volume.
    fn reached(&self, bounds: &DisplacementBounds) -> Option<[usize; 2]> {
        let [low, high] = bounds.0[self.layout().axis().component()];
        let extent = self.layout().extent();
        let planes = |reach: f64| {
            let planes = reach.max(0.0) + f64::from(ROUNDING_PLANES);
            (planes < extent as f64).then_some(planes as usize)
        };
        // Of voxel q a cubic has voxels floor(q) - 1 ..= floor(q) + 2.
        let margins = [planes(1.0 - low.floor())?, planes(high.floor() + 2.0)?];
        (margins[0] + margins[1] < extent).then_some(margins)
    }

    /// All planes, at every shard.
    fn everything(&self, volume: &Sharded) -> Result<Vec<Tensor<5>>> {
        let wanted = vec![0..self.layout().extent(); self.holders().count()];
        let all = self.holders().fetch(volume, &wanted)?.expect("all is wanted");
        let asked = self.mesh().devices().iter();
        Ok(all.windows(asked.map(|device| (wanted[0].clone(), device.clone())).collect()))
    }
}
