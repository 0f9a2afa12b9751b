//! Similarity of images as it is reported: f64, no tricks, a reference for the fused losses.

use rayon::prelude::*;

use crate::{Error, Result};

/// Variances below this fraction of the image's mean square are taken as flat (rounding).
const FLAT: f64 = 1e-12;

/// Pearson's correlation of two images, -1..1; NaN when either is constant.
///
/// # Errors
/// [`Error::Shape`] when the images differ in length.
pub fn ncc(fixed: &[f32], moved: &[f32]) -> Result<f64> {
    check_length(fixed.len(), moved.len())?;
    let mean =
        |image: &[f32]| image.iter().map(|&v| f64::from(v)).sum::<f64>() / image.len() as f64;
    let (mean_f, mean_m) = (mean(fixed), mean(moved));
    let (mut fm, mut ff, mut mm) = (0.0, 0.0, 0.0);
    for (&f, &m) in fixed.iter().zip(moved) {
        let (f, m) = (f64::from(f) - mean_f, f64::from(m) - mean_m);
        fm += f * m;
        ff += f * f;
        mm += m * m;
    }
    Ok(if ff > 0.0 && mm > 0.0 { (fm / (ff * mm).sqrt()).clamp(-1.0, 1.0) } else { f64::NAN })
}

/// Mean of the squared local correlation `A^2 / (B C)`, 0..1, over cubic windows.
///
/// A is the covariance, B and C the variances of `fixed` and `moved` in the window of `window`^3
/// voxels around each voxel, zero-padded at the border. No epsilon: a window in which either
/// image is flat scores 0. With a `mask`, only its voxels are averaged (windows still reach
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
    let count = size.iter().product();
    check_length(count, fixed.len())?;
    check_length(count, moved.len())?;
    check_length(count, mask.map_or(count, <[bool]>::len))?;
    if window.is_multiple_of(2) {
        return Err(Error::invalid(
            "local correlation: the window must be odd",
            window,
            "use 7 or 9",
        ));
    }
    let product = |a: &[f32], b: &[f32]| -> Vec<f64> {
        a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).collect()
    };
    let plain = |a: &[f32]| -> Vec<f64> { a.iter().map(|&a| f64::from(a)).collect() };
    let (ff, mm) = (product(fixed, fixed), product(moved, moved));
    let flat_f = FLAT * ff.iter().sum::<f64>() / count as f64;
    let flat_m = FLAT * mm.iter().sum::<f64>() / count as f64;
    let [f, m, fm, ff, mm] = [plain(fixed), plain(moved), product(fixed, moved), ff, mm]
        .map(|image| window_means(image, size, window));
    let score = |i: usize| {
        let covariance = fm[i] - f[i] * m[i];
        let (b, c) = (ff[i] - f[i] * f[i], mm[i] - m[i] * m[i]);
        let flat = b <= flat_f || c <= flat_m;
        if flat { 0.0 } else { (covariance * covariance / (b * c)).min(1.0) }
    };
    let chosen: Vec<f64> = (0..count)
        .into_par_iter()
        .filter(|&i| mask.is_none_or(|mask| mask[i]))
        .map(score)
        .collect();
    Ok(chosen.iter().sum::<f64>() / chosen.len() as f64)
}

/// Mean over the window around each voxel, zeros beyond the border, one axis after the other.
fn window_means(mut data: Vec<f64>, [nx, ny, nz]: [usize; 3], window: usize) -> Vec<f64> {
    let radius = window / 2;
    for (count, stride) in [(nx, 1), (ny, nx), (nz, nx * ny)] {
        let mean = |offset: usize| {
            let i = offset / stride % count;
            let low = offset - i.min(radius) * stride;
            let terms = i.min(radius) + 1 + (count - 1 - i).min(radius);
            (0..terms).map(|k| data[low + k * stride]).sum::<f64>() / window as f64
        };
        data = (0..data.len()).into_par_iter().map(mean).collect();
    }
    data
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

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: [usize; 3] = [9, 8, 7];
    const COUNT: usize = 9 * 8 * 7;
    /// f64 rounding of a few hundred terms, with cancellation.
    const ROUNDING: f64 = 1e-9;

    fn image(seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1u32 << 24) as f32
        };
        (0..COUNT).map(|_| next()).collect()
    }

    /// The definition, window by window.
    fn brute_force(f: &[f32], m: &[f32], window: usize) -> Vec<f64> {
        let r = (window / 2) as i64;
        let at = |image: &[f32], p: [i64; 3]| {
            let inside = (0..3).all(|a| (0..SIZE[a] as i64).contains(&p[a]));
            let offset = (p[2] * SIZE[1] as i64 + p[1]) * SIZE[0] as i64 + p[0];
            if inside { f64::from(image[offset as usize]) } else { 0.0 }
        };
        let scores = (0..COUNT as i64).map(|o| {
            let c = [o % 9, o / 9 % 8, o / 72];
            let side = || -r..=r;
            let points: Vec<[i64; 3]> = side()
                .flat_map(|z| side().flat_map(move |y| side().map(move |x| [x, y, z])))
                .map(|d| [c[0] + d[0], c[1] + d[1], c[2] + d[2]])
                .collect();
            let n = points.len() as f64;
            let mean = |image: &[f32]| points.iter().map(|&p| at(image, p)).sum::<f64>() / n;
            let (mf, mm) = (mean(f), mean(m));
            let moment = |a: &[f32], ma: f64, b: &[f32], mb: f64| {
                points.iter().map(|&p| (at(a, p) - ma) * (at(b, p) - mb)).sum::<f64>() / n
            };
            moment(f, mf, m, mm).powi(2) / (moment(f, mf, f, mf) * moment(m, mm, m, mm))
        });
        scores.collect()
    }

    #[test]
    fn local_correlation_matches_its_definition() {
        let (f, m) = (image(1), image(2));
        let mask: Vec<bool> = (0..COUNT).map(|i| i % 5 == 1).collect();
        for window in [3, 5, 7] {
            let scores = brute_force(&f, &m, window);
            let got = local_ncc(&f, &m, SIZE, window, None).expect("valid");
            let expected = scores.iter().sum::<f64>() / COUNT as f64;
            assert!((got - expected).abs() < ROUNDING, "window {window}: {got} {expected}");
            let got = local_ncc(&f, &m, SIZE, window, Some(&mask)).expect("valid");
            let chosen: Vec<f64> =
                scores.iter().zip(&mask).filter(|(_, m)| **m).map(|(s, _)| *s).collect();
            let expected = chosen.iter().sum::<f64>() / chosen.len() as f64;
            assert!((got - expected).abs() < ROUNDING, "masked {window}: {got} {expected}");
        }
    }

    #[test]
    fn linear_remapping_correlates_fully() {
        let f = image(3);
        let m: Vec<f32> = f.iter().map(|v| 2.0 - 1.5 * v).collect();
        assert!((ncc(&f, &m).expect("valid") + 1.0).abs() < 1e-6);
        // Zero padding breaks the linear relation at the border only.
        let inner: Vec<bool> = (0..COUNT)
            .map(|i| {
                [(i % 9, 9), (i / 9 % 8, 8), (i / 72, 7)].iter().all(|&(v, n)| v > 0 && v < n - 1)
            })
            .collect();
        let local = local_ncc(&f, &m, SIZE, 3, Some(&inner)).expect("valid");
        assert!((local - 1.0).abs() < 1e-6, "{local}");
    }

    #[test]
    fn flat_images_score_zero_and_never_nan() {
        let (f, flat) = (image(4), vec![0.7f32; COUNT]);
        let inner: Vec<bool> = (0..COUNT).map(|i| i == 4 + 9 * 4 + 72 * 3).collect();
        assert_eq!(local_ncc(&f, &flat, SIZE, 5, Some(&inner)).expect("valid"), 0.0);
        assert!(ncc(&f, &flat).expect("valid").is_nan());
        assert!(local_ncc(&f, &flat, SIZE, 4, None).is_err());
        assert!(local_ncc(&f, &flat[1..], SIZE, 3, None).is_err());
    }
}
