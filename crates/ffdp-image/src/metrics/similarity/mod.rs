//! Similarity of images as it is reported: f64, no tricks, a reference for the fused losses.
//!
//! Voxel by voxel here, in windows in [`windows`], by intensities in [`information`]. Sums are taken
//! over chunks in a fixed order: the same bits on any number of threads.

mod information;
mod local;
mod runs;
#[cfg(test)]
mod tests;
mod windows;

use rayon::prelude::*;

use crate::{Error, Result};

pub use information::{Information, information};
pub use local::{SSIM_WINDOW, local_ncc, ssim};
pub use runs::{Compared, PairPlanes, SimilarityMeasures};

pub(super) const CHUNK: usize = 1 << 16;

/// Which voxels lie above the lowest value of an image: those over which local correlation is reported.
pub fn foreground(image: &[f32]) -> Vec<bool> {
    let lowest = image.par_iter().copied().reduce(|| f32::INFINITY, f32::min);
    image.par_iter().map(|&v| v > lowest).collect()
}

/// Pearson's correlation of two images, -1..1; NaN when either is constant.
///
/// # Errors
/// [`Error::Shape`] when the images differ in length.
pub fn ncc(fixed: &[f32], moved: &[f32]) -> Result<f64> {
    check_length(fixed.len(), moved.len())?;
    let count = fixed.len() as f64;
    let [mean_f, mean_m] = sums(fixed, moved, |f, m| [f, m]).map(|sum| sum / count);
    Ok(correlation(centred(fixed, moved, [mean_f, mean_m])))
}

/// Sums of the products `f m`, `f f`, `m m` of differences from the means.
fn centred(fixed: &[f32], moved: &[f32], [mean_f, mean_m]: [f64; 2]) -> [f64; 3] {
    sums(fixed, moved, |f, m| {
        let (f, m) = (f - mean_f, m - mean_m);
        [f * m, f * f, m * m]
    })
}

/// Pearson's, of such sums.
fn correlation([fm, ff, mm]: [f64; 3]) -> f64 {
    if ff > 0.0 && mm > 0.0 { (fm / (ff * mm).sqrt()).clamp(-1.0, 1.0) } else { f64::NAN }
}

/// Smallest and largest value.
fn extremes(image: &[f32]) -> [f32; 2] {
    let more = |[low, high]: [f32; 2], &v: &f32| [low.min(v), high.max(v)];
    let nothing = [f32::INFINITY, f32::NEG_INFINITY];
    let parts = image.par_chunks(CHUNK).map(|part| part.iter().fold(nothing, more));
    parts.reduce(|| nothing, |[low, high], [lower, higher]| [low.min(lower), high.max(higher)])
}

/// Mean squared difference of two images.
///
/// # Errors
/// [`Error::Shape`] when the images differ in length.
pub fn mean_squared_error(fixed: &[f32], moved: &[f32]) -> Result<f64> {
    check_length(fixed.len(), moved.len())?;
    let [sum] = sums(fixed, moved, |f, m| [(f - m).powi(2)]);
    Ok(sum / fixed.len() as f64)
}

/// Peak signal-to-noise ratio `10 log10(range^2 / MSE)` in dB; infinite for equal images.
///
/// # Errors
/// [`Error::Shape`] when the images differ in length.
pub fn psnr(fixed: &[f32], moved: &[f32], range: f64) -> Result<f64> {
    Ok(10.0 * (range * range / mean_squared_error(fixed, moved)?).log10())
}

/// Sums of `terms(f, m)` over all voxels.
fn sums<const K: usize>(
    fixed: &[f32],
    moved: &[f32],
    terms: impl Fn(f64, f64) -> [f64; K] + Sync,
) -> [f64; K] {
    let add = |mut sum: [f64; K], more: [f64; K]| {
        sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        sum
    };
    let chunks = fixed.par_chunks(CHUNK).zip(moved.par_chunks(CHUNK));
    let parts: Vec<[f64; K]> = chunks
        .map(|(fixed, moved)| {
            let voxels = fixed.iter().zip(moved);
            voxels.map(|(&f, &m)| terms(f.into(), m.into())).fold([0.0; K], add)
        })
        .collect();
    parts.into_iter().fold([0.0; K], add)
}

fn check_length(expected: usize, got: usize) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(Error::Shape {
        what: "similarity compares images of one grid, voxel by voxel".into(),
        expected: vec![expected],
        got: vec![got],
    })
}
