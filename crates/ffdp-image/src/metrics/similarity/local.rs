//! Similarity in windows: local correlation, structural similarity.

use super::check_length;
use super::windows::{Moments, Windows};
use crate::{Error, Result};

/// Variances below this fraction of the image's mean square are taken as flat (rounding).
const FLAT: f64 = 1e-12;

/// Sigma of the Gaussian window of [`ssim`] in voxels (Wang et al. 2004).
const SSIM_SIGMA: f64 = 1.5;
/// Radius of that window in voxels: 3.5 sigma, as scikit-image cuts it.
const SSIM_RADIUS: usize = 5;
/// Width of the window of [`ssim`] in voxels, and the least that it needs along each axis.
pub const SSIM_WINDOW: usize = 2 * SSIM_RADIUS + 1;
/// Stabilise the ratios where an image is dark or flat (Wang et al. 2004).
const SSIM_K: [f64; 2] = [0.01, 0.03];

/// Mean of the squared local correlation `A^2 / (B C)`, 0..1, over cubic windows.
///
/// A is the covariance, B and C the variances of `fixed` and `moved` in the window of `window`^3
/// voxels around each voxel, zero-padded at the border; `window`^2 in an image of one plane. No epsilon: a
/// window in which either image is flat scores 0. With a `mask`, only its voxels are averaged (windows still reach
/// beyond it); NaN when it is empty. `size` is (x, y, z).
///
/// # Errors
/// [`Error::Shape`] when a slice is not of that size, [`Error::Invalid`] for an even window.
pub fn local_ncc(
    fixed: &[f32],
    moved: &[f32],
    size: [usize; 3],
    window: usize,
    mask: Option<&[bool]>,
) -> Result<f64> {
    check_sizes(fixed, moved, size, mask)?;
    if window.is_multiple_of(2) {
        return Err(Error::invalid(
            "local correlation: the window must be odd",
            window,
            "use 7 or 9",
        ));
    }
    let mean_square = |image: &[f32]| square_sum(image) / image.len() as f64;
    let mean_squares = [mean_square(fixed), mean_square(moved)];
    let weights = vec![1.0 / window as f64; window];
    let windows = Windows { fixed, moved, size, weights: &weights };
    let chosen = |i| mask.is_none_or(|mask| mask[i]);
    let (sum, count) = local_ncc_sum(&windows, mean_squares, chosen);
    Ok(sum / count as f64)
}

/// Sum of the squares of an image.
pub(super) fn square_sum(image: &[f32]) -> f64 {
    let [sum] = super::sums(image, image, |a, b| [a * b]);
    sum
}

/// The squared local correlation of images with these mean squares, summed over the `chosen` voxels, and how many there
/// are.
pub(super) fn local_ncc_sum(
    windows: &Windows,
    mean_squares: [f64; 2],
    chosen: impl Fn(usize) -> bool + Sync,
) -> (f64, u64) {
    let [flat_f, flat_m] = mean_squares.map(|square| FLAT * square);
    let score = |Moments { f, m, ff, mm, fm }: Moments| {
        let (a, b, c) = (fm - f * m, ff - f * f, mm - m * m);
        if b <= flat_f || c <= flat_m { 0.0 } else { (a * a / (b * c)).min(1.0) }
    };
    windows.sum(chosen, score)
}

/// Mean structural similarity (SSIM), -1..1, in Gaussian windows of sigma 1.5 voxels:
/// ```text
/// (2 f m + C1) (2 A + C2) / ((f^2 + m^2 + C1) (B + C + C2)),   Ci = (Ki range)^2
/// ```
/// f, m the means, A the covariance, B and C the variances in the window; K = 0.01, 0.03. As in
/// Wang et al. 2004 and scikit-image (`gaussian_weights`, `use_sample_covariance=False`), only
/// windows that lie wholly inside the image count. `range` is that of the intensities, max - min;
/// `size` is (x, y, z). With a `mask`, only its voxels are averaged; NaN when it leaves none.
///
/// # Errors
/// [`Error::Shape`] when a slice is not of that size, [`Error::Invalid`] when an axis has no room
/// for a window of 11 voxels.
pub fn ssim(
    fixed: &[f32],
    moved: &[f32],
    size: [usize; 3],
    range: f64,
    mask: Option<&[bool]>,
) -> Result<f64> {
    check_sizes(fixed, moved, size, mask)?;
    if size.iter().any(|&n| n < SSIM_WINDOW) {
        let what = format!("SSIM needs at least {SSIM_WINDOW} voxels along each axis");
        return Err(Error::invalid(what, size, "leave it out for so small an image"));
    }
    let weights = gaussian(SSIM_SIGMA, SSIM_RADIUS);
    let windows = Windows { fixed, moved, size, weights: &weights };
    let [c1, c2] = SSIM_K.map(|k| (k * range).powi(2));
    let score = |Moments { f, m, ff, mm, fm }: Moments| {
        let (a, b, c) = (fm - f * m, ff - f * f, mm - m * m);
        (2.0 * f * m + c1) * (2.0 * a + c2) / ((f * f + m * m + c1) * (b + c + c2))
    };
    let whole = |offset: usize| {
        let index = [offset % size[0], offset / size[0] % size[1], offset / size[0] / size[1]];
        (0..3).all(|i| (SSIM_RADIUS..size[i] - SSIM_RADIUS).contains(&index[i]))
    };
    let (sum, count) = windows.sum(|i| mask.is_none_or(|mask| mask[i]) && whole(i), score);
    Ok(sum / count as f64)
}

/// Samples of a Gaussian with sum 1.
fn gaussian(sigma: f64, radius: usize) -> Vec<f64> {
    let value = |k: usize| (-0.5 * ((k as f64 - radius as f64) / sigma).powi(2)).exp();
    let values: Vec<f64> = (0..=2 * radius).map(value).collect();
    let sum: f64 = values.iter().sum();
    values.into_iter().map(|v| v / sum).collect()
}

fn check_sizes(
    fixed: &[f32],
    moved: &[f32],
    size: [usize; 3],
    mask: Option<&[bool]>,
) -> Result<()> {
    let count = size.iter().product();
    check_length(count, fixed.len())?;
    check_length(count, moved.len())?;
    check_length(count, mask.map_or(count, <[bool]>::len))
}
