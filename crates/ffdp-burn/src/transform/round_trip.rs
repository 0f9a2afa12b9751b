//! How well an inverse undoes a map.

use burn::tensor::{Device, Tensor};
use rayon::prelude::*;
use serde::Serialize;

use super::composite::Composite;
use super::resample::map_vectors;
use crate::ops::component_dot;
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, Ranks, download};

/// Lengths of `phi(phi^-1(x)) - x` over a grid.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RoundTrip {
    /// Mean length in mm.
    pub mean_mm: f64,
    /// 95th percentile in mm.
    pub p95_mm: f64,
    /// Largest length in mm.
    pub max_mm: f64,
    /// 95th percentile in voxels of the grid.
    pub p95_voxels: f64,
    /// Largest length in voxels of the grid.
    pub max_voxels: f64,
}

impl Composite {
    /// The error of `inverse` as the inverse of this map: `phi(phi^-1(x)) - x` at the points `x` in the
    /// middle between the voxels of `grid`, where an inverse that was stored on the grid is at its
    /// worst.
    ///
    /// # Errors
    /// [`Error::Device`](ffdp_image::Error::Device) when the result cannot be read back.
    pub fn round_trip(
        &self,
        inverse: &Self,
        grid: &Geometry,
        device: &Device,
    ) -> Result<RoundTrip> {
        let between = between_voxels(grid)?;
        let there_and_back = inverse.clone().then(self.clone());
        let error = there_and_back.to_displacement(&between, device).into_field();
        let (mm, voxels) = match spacing_everywhere(&between) {
            Some(spacing) => {
                let voxels = statistics(&lengths(error)?);
                (voxels.map(|length| spacing * length), voxels)
            }
            None => {
                let mm = map_vectors(error.clone(), &between.voxel_to_mm().linear());
                (statistics(&lengths(mm)?), statistics(&lengths(error)?))
            }
        };
        let ([mean_mm, p95_mm, max_mm], [_, p95_voxels, max_voxels]) = (mm, voxels);
        Ok(RoundTrip { mean_mm, p95_mm, max_mm, p95_voxels, max_voxels })
    }
}

/// The centres of the cells that the voxels span; an axis of one voxel stays as it is.
fn between_voxels(grid: &Geometry) -> Result<Geometry> {
    let shift = grid.size.map(|n| if n > 1 { 0.5 } else { 0.0 });
    let origin = grid.voxel_to_mm().apply(shift);
    grid.cropped([0; 3], grid.size.map(|n| n.max(2) - 1))?.with_origin(origin)
}

/// Largest cosine between two voxel axes that counts as a right angle, as rounded headers have it.
const RIGHT_ANGLE: f64 = 1e-6;

/// The spacing in mm, where it is the same in all directions.
fn spacing_everywhere(grid: &Geometry) -> Option<f64> {
    let [x, y, z] = grid.spacing_mm;
    let is_right = grid.largest_cosine() < RIGHT_ANGLE;
    (is_right && x == y && y == z).then_some(x)
}

/// The lengths of vectors `[1, 3, D, H, W]`, in order; only they are read back.
fn lengths(vectors: Tensor<5>) -> Result<Vec<f32>> {
    download(component_dot(vectors.clone(), vectors).sqrt(), "lengths of displacements")
}

/// Lengths that are added by one thread: sums have the same bits on any number of threads.
const PART: usize = 1 << 16;

/// Mean, 95th percentile and maximum; NaN if there is a length that is not finite, which has no rank.
fn statistics(lengths: &[f32]) -> [f64; 3] {
    let (count, ranks) = (lengths.len(), Ranks::of(lengths));
    if ranks.count() < count {
        return [f64::NAN; 3];
    }
    let sum = |part: &[f32]| part.iter().map(|&length| f64::from(length)).sum::<f64>();
    let sums: Vec<f64> = lengths.par_chunks(PART).map(sum).collect();
    let rank = (0.95 * (count - 1) as f64).round() as usize;
    let found = ranks.values(&[rank, count - 1]);
    let [p95, max] = [found[0], found[1]].map(f64::from);
    [sums.into_iter().sum::<f64>() / count as f64, p95, max]
}
