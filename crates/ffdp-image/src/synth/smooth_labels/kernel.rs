//! The filters of smooth label maps: sampled B-spline, Gaussian, and the shape-keeping smoother.

use rayon::prelude::*;

/// Variance of the cubic B-spline, voxels squared: what interpolation smooths by itself.
const SPLINE_VARIANCE: f64 = 1.0 / 3.0;

/// The cubic B-spline at -1, 0, 1: coefficients to values at the knots.
pub const SPLINE_AT_KNOTS: [f32; 3] = [1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0];

/// Values on a box of voxels, x fastest.
#[derive(Clone, Debug)]
pub struct Grid {
    pub size: [usize; 3],
    pub values: Vec<f32>,
}

/// Gaussian taps such that, together with the B-spline, the variance is `sigma_voxels`^2.
///
/// Cut at 3 deviations and normalised; one tap where the B-spline alone is as wide.
pub fn gaussian(sigma_voxels: f64) -> Vec<f32> {
    let variance = (sigma_voxels * sigma_voxels - SPLINE_VARIANCE).max(0.0);
    let radius = (3.0 * variance.sqrt()).ceil() as i32;
    let tap = |i: i32| if i == 0 { 1.0 } else { (-0.5 * f64::from(i * i) / variance).exp() };
    let taps: Vec<f64> = (-radius..=radius).map(tap).collect();
    let sum: f64 = taps.iter().sum();
    taps.iter().map(|t| (t / sum) as f32).collect()
}

/// Reach of [`smooth`] in voxels to each side.
pub fn reach(gaussian: &[f32]) -> usize {
    gaussian.len() / 2 * 2 + 1
}

/// B-spline coefficients `w = p * (2 - b * p) * h` of an indicator `h`; zero beyond the box.
///
/// With `g = b * p` the field's values are `(2 g - g * g) * h`. That low-pass, Tukey's twicing,
/// has no second moment: to second order a curved surface does not shrink towards its centre, as
/// it does under the Gaussian `g` alone.
pub fn smooth(indicator: Grid, gaussian: &[f32]) -> Grid {
    let once = convolve(indicator, gaussian);
    let mut twice = convolve(convolve(once.clone(), &SPLINE_AT_KNOTS), gaussian);
    let pairs = twice.values.par_iter_mut().zip(&once.values);
    pairs.for_each(|(twice, once)| *twice = 2.0 * once - *twice);
    twice
}

/// Convolution with a symmetric kernel along all axes, zero beyond the box.
fn convolve(grid: Grid, kernel: &[f32]) -> Grid {
    if kernel.len() == 1 {
        return grid;
    }
    let Grid { size: [nx, ny, nz], values } = grid;
    let mut source = values;
    let mut target = vec![0f32; source.len()];
    target.par_chunks_mut(nx).zip(source.par_chunks(nx)).for_each(|(to, from)| {
        along_line(to, from, kernel);
    });
    // Along y and z whole lines are added: the same vector operation for every x.
    source.par_chunks_mut(nx).enumerate().for_each(|(row, to)| {
        let (y, z) = (row % ny, row / ny);
        add_lines(to, y, ny, kernel, |y| &target[(z * ny + y) * nx..][..nx]);
    });
    target.par_chunks_mut(nx).enumerate().for_each(|(row, to)| {
        let (y, z) = (row % ny, row / ny);
        add_lines(to, z, nz, kernel, |z| &source[(z * ny + y) * nx..][..nx]);
    });
    Grid { size: [nx, ny, nz], values: target }
}

fn along_line(to: &mut [f32], from: &[f32], kernel: &[f32]) {
    let radius = kernel.len() / 2;
    for (x, value) in to.iter_mut().enumerate() {
        let low = x.saturating_sub(radius);
        let high = (x + radius).min(from.len() - 1);
        let taps = &kernel[low + radius - x..=high + radius - x];
        *value = from[low..=high].iter().zip(taps).map(|(v, t)| v * t).sum();
    }
}

fn add_lines<'a>(
    to: &mut [f32],
    at: usize,
    count: usize,
    kernel: &[f32],
    line: impl Fn(usize) -> &'a [f32],
) {
    let radius = kernel.len() / 2;
    to.fill(0.0);
    for neighbour in at.saturating_sub(radius)..=(at + radius).min(count - 1) {
        let tap = kernel[neighbour + radius - at];
        to.iter_mut().zip(line(neighbour)).for_each(|(sum, v)| *sum += tap * v);
    }
}
