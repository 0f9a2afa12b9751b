//! Mutual information by a plain joint histogram.

use rayon::prelude::*;
use serde::Serialize;

use super::{CHUNK, check_length, extremes};
use crate::{Error, Result};

/// Most bins of [`information`]: a table of 8 MiB for each thread.
const MOST_BINS: usize = 1024;

/// Entropies of two images, in nats, and what they share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Information {
    /// H(F).
    pub fixed: f64,
    /// H(M).
    pub moved: f64,
    /// H(F, M).
    pub joint: f64,
}

impl Information {
    /// `H(F) + H(M) - H(F, M)`, nats; 0 for independent images.
    pub fn mutual(&self) -> f64 {
        self.fixed + self.moved - self.joint
    }

    /// `(H(F) + H(M)) / H(F, M)`, 1..2 (Studholme et al. 1999); NaN when both are constant.
    pub fn normalized(&self) -> f64 {
        (self.fixed + self.moved) / self.joint
    }
}

/// Entropies of the joint histogram of `bins` x `bins` equal bins between the extremes of each
/// image; one vote per voxel.
///
/// # Errors
/// [`Error::Shape`] when the images differ in length, [`Error::Invalid`] for bins outside 2..=1024.
pub fn information(fixed: &[f32], moved: &[f32], bins: usize) -> Result<Information> {
    check_length(fixed.len(), moved.len())?;
    if !(2..=MOST_BINS).contains(&bins) {
        let what = format!("mutual information: the bins must lie in 2..={MOST_BINS}");
        return Err(Error::invalid(what, bins, "use 32 or 64"));
    }
    let mut histogram = JointHistogram::new([extremes(fixed), extremes(moved)], bins);
    histogram.add(fixed, moved);
    Ok(histogram.information())
}

/// How often pairs of intensities occur, added up part by part.
pub(super) struct JointHistogram {
    fixed: Binning,
    moved: Binning,
    bins: usize,
    table: Vec<u64>,
}

impl JointHistogram {
    /// With `bins` x `bins` equal bins between the extremes of each image.
    pub fn new(extremes: [[f32; 2]; 2], bins: usize) -> Self {
        let [fixed, moved] = extremes.map(|extremes| Binning::new(extremes, bins));
        Self { fixed, moved, bins, table: vec![0; bins * bins] }
    }

    /// Counts the voxels of a part.
    pub fn add(&mut self, fixed: &[f32], moved: &[f32]) {
        let Self { fixed: bin_f, moved: bin_m, bins, table } = self;
        let count = |mut table: Vec<u64>, (fixed, moved): (&[f32], &[f32])| {
            for (&f, &m) in fixed.iter().zip(moved) {
                table[bin_f.bin(f) * *bins + bin_m.bin(m)] += 1;
            }
            table
        };
        let add = |mut a: Vec<u64>, b: Vec<u64>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        let empty = || vec![0u64; *bins * *bins];
        let chunks = fixed.par_chunks(CHUNK).zip(moved.par_chunks(CHUNK));
        let more = chunks.fold(empty, count).reduce(empty, add);
        table.iter_mut().zip(more).for_each(|(all, more)| *all += more);
    }

    pub fn information(&self) -> Information {
        let Self { table, bins, .. } = self;
        let rows = table.chunks(*bins).map(|row| row.iter().sum());
        let columns = (0..*bins).map(|m| table.iter().skip(m).step_by(*bins).sum());
        Information {
            fixed: entropy(rows),
            moved: entropy(columns),
            joint: entropy(table.iter().copied()),
        }
    }
}

/// `- sum p ln p` of the counts.
fn entropy(counts: impl Iterator<Item = u64> + Clone) -> f64 {
    let total = counts.clone().sum::<u64>() as f64;
    let filled = counts.filter(|&count| count > 0).map(|count| count as f64 / total);
    -filled.map(|p| p * p.ln()).sum::<f64>()
}

/// Equal bins between the extremes of an image.
struct Binning {
    low: f64,
    /// Bins per unit of intensity; 0 for a constant image.
    density: f64,
    last: usize,
}

impl Binning {
    fn new([low, high]: [f32; 2], bins: usize) -> Self {
        let (low, range) = (f64::from(low), f64::from(high) - f64::from(low));
        let density = if range > 0.0 { bins as f64 / range } else { 0.0 };
        Self { low, density, last: bins - 1 }
    }

    /// The largest value belongs to the last bin.
    fn bin(&self, value: f32) -> usize {
        (((f64::from(value) - self.low) * self.density) as usize).min(self.last)
    }
}
