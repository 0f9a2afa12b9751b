//! Interpolation by a cubic B-spline through the samples, as `scipy.ndimage.map_coordinates` does it
//! by default; Learn2Reg samples displacements at landmarks this way.
//!
//! Coefficients by a recursive filter along each axis, samples mirrored about the outer ones
//! (Unser 1999, "Splines: a perfect fit for signal and image processing").

use rayon::prelude::*;

/// `sqrt(3) - 2`: the pole of the filter.
const POLE: f64 = -0.267_949_192_431_122_7;

/// A spline through the samples of a grid.
pub struct CubicSpline {
    coefficients: Vec<f64>,
    size: [usize; 3],
}

impl CubicSpline {
    /// Through samples `[D, H, W]` on a grid of `size` (x, y, z).
    pub fn through(samples: &[f32], size: [usize; 3]) -> Self {
        let [nx, ny, _] = size;
        let mut coefficients: Vec<f64> = samples.iter().map(|&v| f64::from(v)).collect();
        for (axis, stride) in [(0, 1), (1, nx), (2, nx * ny)] {
            filter_axis(&mut coefficients, size[axis], stride);
        }
        Self { coefficients, size }
    }

    /// The value at a continuous voxel index; 0 outside of the outer voxel centres.
    pub fn at(&self, p: [f64; 3]) -> f64 {
        if (0..3).any(|i| !(0.0..=(self.size[i] - 1) as f64).contains(&p[i])) {
            return 0.0;
        }
        self.read(p)
    }

    /// The value at a continuous voxel index, of samples that go on mirrored.
    pub fn read(&self, p: [f64; 3]) -> f64 {
        let [x, y, z] = [0, 1, 2].map(|i| taps(p[i], self.size[i]));
        let mut value = 0.0;
        for (k, wz) in z {
            for (j, wy) in y {
                let row = (k * self.size[1] + j) * self.size[0];
                value +=
                    wz * wy * x.iter().map(|&(i, w)| w * self.coefficients[row + i]).sum::<f64>();
            }
        }
        value
    }
}

/// The four coefficients that bear on a point, with their weights.
fn taps(p: f64, count: usize) -> [(usize, f64); 4] {
    let floor = p.floor();
    let t = p - floor;
    let weights = [
        (1.0 - t).powi(3) / 6.0,
        2.0 / 3.0 - t * t * (1.0 - 0.5 * t),
        2.0 / 3.0 - (1.0 - t).powi(2) * (1.0 - 0.5 * (1.0 - t)),
        t.powi(3) / 6.0,
    ];
    std::array::from_fn(|k| (mirrored(floor as i64 + k as i64 - 1, count), weights[k]))
}

/// An index of `count` samples that are mirrored about the outer ones.
pub(super) fn mirrored(index: i64, count: usize) -> usize {
    let period = (2 * count as i64 - 2).max(1);
    let index = index.rem_euclid(period);
    index.min((period - index).rem_euclid(period)) as usize
}

fn filter_axis(data: &mut [f64], count: usize, stride: usize) {
    if count < 2 {
        return;
    }
    data.par_chunks_mut(count * stride).for_each(|block| {
        let mut line = vec![0.0; count];
        for start in 0..stride {
            (0..count).for_each(|i| line[i] = block[start + i * stride]);
            filter_line(&mut line);
            (0..count).for_each(|i| block[start + i * stride] = line[i]);
        }
    });
}

/// From samples to coefficients, in place.
fn filter_line(line: &mut [f64]) {
    let last = line.len() - 1;
    let power = |k: usize| POLE.powi(k as i32);
    // The causal filter starts with the sum over the mirrored samples before the first.
    let inner: f64 = (1..last).map(|k| (power(k) + power(2 * last - k)) * line[k]).sum();
    line[0] = (line[0] + power(last) * line[last] + inner) / (1.0 - power(2 * last));
    for i in 1..=last {
        line[i] += POLE * line[i - 1];
    }
    line[last] = POLE / (POLE * POLE - 1.0) * (line[last] + POLE * line[last - 1]);
    for i in (0..last).rev() {
        line[i] = POLE * (line[i + 1] - line[i]);
    }
    line.iter_mut().for_each(|c| *c *= 6.0);
}
