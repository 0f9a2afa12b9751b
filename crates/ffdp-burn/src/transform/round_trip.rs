//! How well an inverse undoes a map.

use burn::tensor::Device;
use rayon::prelude::*;
use serde::Serialize;

use super::composite::Composite;
use crate::error::Result;
use crate::image::{Geometry, Matrix3, Ranks};

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
    /// [`Error::Device`](crate::Error::Device) when the result cannot be read back.
    pub fn round_trip(
        &self,
        inverse: &Self,
        grid: &Geometry,
        device: &Device,
    ) -> Result<RoundTrip> {
        let between = between_voxels(grid)?;
        let there_and_back = inverse.clone().then(self.clone());
        let error = there_and_back.to_displacement(&between, device).to_vec()?;
        let [mean_mm, p95_mm, max_mm] = statistics(&error, &between.voxel_to_mm().linear());
        let voxels = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let [_, p95_voxels, max_voxels] = statistics(&error, &voxels);
        Ok(RoundTrip { mean_mm, p95_mm, max_mm, p95_voxels, max_voxels })
    }
}

/// The centres of the cells that the voxels span; an axis of one voxel stays as it is.
fn between_voxels(grid: &Geometry) -> Result<Geometry> {
    let shift = grid.size.map(|n| if n > 1 { 0.5 } else { 0.0 });
    let origin = grid.voxel_to_mm().apply(shift);
    grid.cropped([0; 3], grid.size.map(|n| n.max(2) - 1))?.with_origin(origin)
}

/// Vectors whose lengths are added by one thread: sums have the same bits on any number of threads.
const PART: usize = 1 << 16;

/// Mean, 95th percentile and maximum of the lengths of vectors `[3, ..]` after `matrix`; NaN if there is
/// a vector that is not finite, whose length has no rank.
fn statistics(vectors: &[f32], matrix: &Matrix3) -> [f64; 3] {
    let count = vectors.len() / 3;
    let length = |i: usize| {
        let v: [f64; 3] = std::array::from_fn(|c| f64::from(vectors[c * count + i]));
        let square = |row: &[f64; 3]| (row[0] * v[0] + row[1] * v[1] + row[2] * v[2]).powi(2);
        matrix.iter().map(square).sum::<f64>().sqrt() as f32
    };
    let lengths: Vec<f32> = (0..count).into_par_iter().map(length).collect();
    let ranks = Ranks::of(&lengths);
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
