//! Where the object in an image lies, how large it is and how it is turned: its moments.
//!
//! ```text
//! c = sum m x / sum m          C = sum m (x - c) (x - c)^T / sum m
//! ```
//! `x` voxel centres in RAS mm, so that flipped, oblique and anisotropic grids make no difference ·
//! `m` the intensity where it is foreground, else 0.

use ffdp_image::image::{Matrix3, Volume, symmetric_eigen};

/// Moments of an image's foreground.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mass {
    /// `c`, RAS mm.
    pub centre_mm: [f64; 3],
    /// `C`, mm^2.
    pub covariance: Matrix3,
}

impl Mass {
    /// Of the voxels above `threshold`, as a part of the largest value. An image with nothing above
    /// zero counts as uniform: its frame.
    pub fn of(volume: &Volume, threshold: f64) -> Self {
        let largest = volume.data.iter().fold(0.0f32, |m, &v| m.max(v));
        if largest <= 0.0 {
            return Self::weighted(volume, |_| 1.0);
        }
        let least = threshold * f64::from(largest);
        Self::weighted(volume, |v| if f64::from(v) > least { f64::from(v) } else { 0.0 })
    }

    fn weighted(volume: &Volume, mass: impl Fn(f32) -> f64) -> Self {
        let geometry = &volume.geometry;
        // In voxels first: nine sums instead of nine products with a matrix for every voxel.
        let (mut total, mut first, mut second) = (0.0, [0.0; 3], [[0.0; 3]; 3]);
        let middle = geometry.size.map(|n| (n as f64 - 1.0) / 2.0);
        for (offset, &v) in volume.data.iter().enumerate() {
            let m = mass(v);
            if m == 0.0 {
                continue;
            }
            let index = geometry.index_of(offset);
            let x: [f64; 3] = std::array::from_fn(|i| index[i] as f64 - middle[i]);
            total += m;
            for i in 0..3 {
                first[i] += m * x[i];
                (0..3).for_each(|j| second[i][j] += m * x[i] * x[j]);
            }
        }
        let mean = first.map(|s| s / total);
        let covariance: Matrix3 = std::array::from_fn(|i| {
            std::array::from_fn(|j| second[i][j] / total - mean[i] * mean[j])
        });
        let to_mm = geometry.voxel_to_mm();
        let linear = to_mm.linear();
        let centre = std::array::from_fn(|i| middle[i] + mean[i]);
        let covariance = std::array::from_fn(|i| {
            let row = to_mm_row(&linear, &covariance, i);
            std::array::from_fn(|j| (0..3).map(|k| row[k] * linear[j][k]).sum())
        });
        Self { centre_mm: to_mm.apply(centre), covariance }
    }

    /// Radius of the ball that has the same `trace C`: how far the object reaches.
    pub fn radius_mm(&self) -> f64 {
        let trace: f64 = (0..3).map(|i| self.covariance[i][i]).sum();
        (5.0 / 3.0 * trace).sqrt()
    }

    /// The principal axes as columns, the longest first.
    pub fn axes(&self) -> Matrix3 {
        symmetric_eigen(&self.covariance).1
    }
}

/// Row `i` of `linear * covariance`.
fn to_mm_row(linear: &Matrix3, covariance: &Matrix3, i: usize) -> [f64; 3] {
    std::array::from_fn(|k| (0..3).map(|l| linear[i][l] * covariance[l][k]).sum())
}
