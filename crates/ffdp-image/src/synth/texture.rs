//! Texture and smoothing, slice by slice: the parts of synthesis that need no whole volume.
//!
//! Every slice has a random generator of its own and every voxel's sum one order, so results
//! depend neither on threads nor on how a volume is cut into slabs.

use std::collections::HashMap;
use std::ops::Range;

use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;

use super::intensity_table::{IntensityTable, LabelStatistics};
use super::random::{Stream, generator};

/// Independent normal draws of each voxel's label on slices from `first_z` on; background, and
/// labels that are not in the table, 0.
pub fn texture(
    labels: &[i32],
    slice_len: usize,
    first_z: usize,
    table: &IntensityTable,
    seed: u64,
) -> Vec<f32> {
    let table: HashMap<i32, LabelStatistics> =
        table.labels.iter().filter(|(id, _)| **id != 0).map(|(&id, &s)| (id, s)).collect();
    let mut values = vec![0f32; labels.len()];
    let slices = values.par_chunks_mut(slice_len).zip(labels.par_chunks(slice_len));
    slices.enumerate().for_each(|(z, (slice, ids))| {
        let mut random = generator(seed, Stream::Texture, (first_z + z) as u64);
        let mut start = 0;
        for run in ids.chunk_by(|a, b| a == b) {
            let line = &mut slice[start..start + run.len()];
            start += run.len();
            let Some(LabelStatistics { mean, sd }) = table.get(&run[0]) else { continue };
            for value in line {
                let normal: f64 = StandardNormal.sample(&mut random);
                *value = (mean + sd * normal) as f32;
            }
        }
    });
    values
}

/// A sampled, normalised Gaussian; zero lies beyond the border.
#[derive(Clone, Debug)]
pub struct Smoother {
    /// Odd; one tap does nothing.
    taps: Vec<f32>,
}

impl Smoother {
    pub fn new(sigma_voxels: f64) -> Self {
        let radius = (4.0 * sigma_voxels).ceil() as i32;
        let tap = |i: i32| {
            if i == 0 { 1.0 } else { (-0.5 * (f64::from(i) / sigma_voxels).powi(2)).exp() }
        };
        let taps: Vec<f64> = (-radius..=radius).map(tap).collect();
        let total: f64 = taps.iter().sum();
        Self { taps: taps.iter().map(|t| (t / total) as f32).collect() }
    }

    /// Slices to each side that a smoothed slice depends on.
    pub fn radius(&self) -> usize {
        self.taps.len() / 2
    }

    /// Smooths every slice of `nx` x `ny` voxels in its plane.
    pub fn in_plane(&self, slices: &mut [f32], [nx, ny]: [usize; 2]) {
        if self.radius() == 0 {
            return;
        }
        slices.par_chunks_mut(nx * ny).for_each(|slice| {
            let mut lines = vec![0f32; slice.len()];
            for (to, from) in lines.chunks_mut(nx).zip(slice.chunks(nx)) {
                for (x, value) in to.iter_mut().enumerate() {
                    let (range, taps) = self.window(x, nx);
                    *value = from[range].iter().zip(taps).map(|(v, t)| v * t).sum();
                }
            }
            for (y, to) in slice.chunks_mut(nx).enumerate() {
                self.sum_lines(to, y, ny, |y| &lines[y * nx..(y + 1) * nx]);
            }
        });
    }

    /// The slices `z` (of `nz`), smoothed across; `slices` are those from `first_z` on, and reach
    /// [`Smoother::radius`] beyond `z` or to the end.
    pub fn across(
        &self,
        slices: &[f32],
        first_z: usize,
        slice_len: usize,
        z: Range<usize>,
        nz: usize,
    ) -> Vec<f32> {
        let mut out = vec![0f32; slice_len * z.len()];
        out.par_chunks_mut(slice_len).zip(z).for_each(|(to, z)| {
            self.sum_lines(to, z, nz, |z| &slices[(z - first_z) * slice_len..][..slice_len]);
        });
        out
    }

    fn sum_lines<'a>(
        &self,
        to: &mut [f32],
        at: usize,
        count: usize,
        line: impl Fn(usize) -> &'a [f32],
    ) {
        to.fill(0.0);
        let (range, taps) = self.window(at, count);
        for (neighbour, tap) in range.zip(taps) {
            to.iter_mut().zip(line(neighbour)).for_each(|(sum, v)| *sum += tap * v);
        }
    }

    /// The neighbours of `at` within 0..count, with their taps.
    fn window(&self, at: usize, count: usize) -> (Range<usize>, &[f32]) {
        let radius = self.radius();
        let range = at.saturating_sub(radius)..(at + radius + 1).min(count);
        let taps = &self.taps[range.start + radius - at..range.end + radius - at];
        (range, taps)
    }
}
