//! Images between their voxels, smoother than by the eight voxels around: a cubic B-spline through the samples, or a windowed sinc.
//!
//! On the host in f64, for images that are resampled once, in the end; what is optimised is read linearly, by kernels.

use rayon::prelude::*;

use super::cubic_spline::CubicSpline;
use super::geometry::Geometry;
use super::volume::Volume;

/// How an image is read between voxels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmoothKernel {
    /// The cubic B-spline through all samples (Unser 1999).
    Cubic,
    /// A sinc in a Lanczos window of three voxels to either side, its weights brought to a sum of 1 (Lanczos 1956; Duchon 1979).
    Lanczos,
}

/// Voxels to either side of a point that the sinc reads.
const LANCZOS: usize = 3;

/// An image that can be read anywhere. It goes on beyond its outer voxel centres mirrored about them.
pub struct SmoothImage {
    kernel: Kernel,
    geometry: Geometry,
}

enum Kernel {
    Cubic(CubicSpline),
    Lanczos(Vec<f32>),
}

impl SmoothImage {
    /// Of all voxels.
    pub fn new(Volume { data, geometry }: Volume, kernel: SmoothKernel) -> Self {
        let kernel = match kernel {
            SmoothKernel::Cubic => Kernel::Cubic(CubicSpline::through(&data, geometry.size)),
            SmoothKernel::Lanczos => Kernel::Lanczos(data),
        };
        Self { kernel, geometry }
    }

    /// The grid of the voxels.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The value at a continuous voxel index; `None` beyond the outer faces of the voxels.
    pub fn at(&self, p: [f64; 3]) -> Option<f64> {
        let size = self.geometry.size;
        let inside = |i: usize| (-0.5..=size[i] as f64 - 0.5).contains(&p[i]);
        (0..3).all(inside).then(|| match &self.kernel {
            Kernel::Cubic(spline) => spline.read(p),
            Kernel::Lanczos(data) => lanczos(data, size, p),
        })
    }

    /// The values at points that a function numbers, on all cores; `outside` beyond the image.
    pub fn at_all(
        &self,
        count: usize,
        outside: f32,
        p: impl Fn(usize) -> [f64; 3] + Sync,
    ) -> Vec<f32> {
        let value = |i| self.at(p(i)).map_or(outside, |value| value as f32);
        (0..count).into_par_iter().map(value).collect()
    }
}

fn lanczos(data: &[f32], size: [usize; 3], p: [f64; 3]) -> f64 {
    let [x, y, z] = [0, 1, 2].map(|i| lanczos_taps(p[i], size[i]));
    let mut sum = 0.0;
    for (k, wz) in z {
        for (j, wy) in y {
            let row = &data[(k * size[1] + j) * size[0]..][..size[0]];
            sum += wz * wy * x.iter().map(|&(i, w)| w * f64::from(row[i])).sum::<f64>();
        }
    }
    sum
}

/// The voxels that bear on a point, with their weights.
fn lanczos_taps(p: f64, count: usize) -> [(usize, f64); 2 * LANCZOS] {
    let first = p.floor() as i64 + 1 - LANCZOS as i64;
    let weights: [f64; 2 * LANCZOS] = std::array::from_fn(|k| {
        let distance = p - (first + k as i64) as f64;
        sinc(distance) * sinc(distance / LANCZOS as f64)
    });
    let sum: f64 = weights.iter().sum();
    std::array::from_fn(|k| {
        (super::cubic_spline::mirrored(first + k as i64, count), weights[k] / sum)
    })
}

/// `sin(pi x) / (pi x)`.
fn sinc(x: f64) -> f64 {
    let angle = std::f64::consts::PI * x;
    if angle.abs() < 1e-8 { 1.0 } else { angle.sin() / angle }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(size: [usize; 3], f: impl Fn([f64; 3]) -> f64) -> Volume {
        let grid = Geometry::new(size, [1.0, 2.0, 0.5]).expect("valid");
        let value = |i| f(grid.index_of(i).map(|i| i as f64)) as f32;
        Volume::new((0..grid.len()).map(value).collect(), grid.clone()).expect("fits")
    }

    #[test]
    fn samples_and_constants_are_kept_and_nothing_is_beyond_the_faces() {
        let noise =
            image([7, 5, 6], |[x, y, z]| ((x * 12.9 + y * 78.2 + z * 37.7).sin() * 437.5).fract());
        let flat = image([7, 1, 6], |_| 3.25);
        for kernel in [SmoothKernel::Cubic, SmoothKernel::Lanczos] {
            let smooth = SmoothImage::new(noise.clone(), kernel);
            for (i, &value) in noise.data.iter().enumerate() {
                let p = noise.geometry.index_of(i).map(|i| i as f64);
                let error = (smooth.at(p).expect("inside") - f64::from(value)).abs();
                // Values below 1, kept in f32.
                assert!(error < 1e-6, "{kernel:?} {p:?}: {error}");
            }
            let smooth = SmoothImage::new(flat.clone(), kernel);
            for p in [[0.3, 0.0, 4.9], [-0.5, 0.5, 5.5], [6.49, -0.4, 0.0]] {
                assert!((smooth.at(p).expect("inside") - 3.25).abs() < 1e-6, "{kernel:?} {p:?}");
            }
            for p in [[-0.51, 0.0, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 5.6]] {
                assert_eq!(smooth.at(p), None);
            }
        }
    }

    #[test]
    fn smooth_waves_are_read_better_than_linearly() {
        // Eight voxels a wave, away from the border.
        let wave = |[x, y, z]: [f64; 3]| {
            let step = std::f64::consts::TAU / 8.0;
            (step * x).sin() * (step * y + 0.4).sin() * (step * z + 1.1).cos()
        };
        let image = image([20; 3], wave);
        let largest = |kernel: Option<SmoothKernel>| {
            let smooth = SmoothImage::new(image.clone(), kernel.unwrap_or(SmoothKernel::Cubic));
            let mut most = 0.0f64;
            for i in 0..500 {
                let p =
                    [0, 1, 2].map(|k| 6.0 + 8.0 * ((i * (7 + 4 * k)) % 500) as f64 / 500.0 + 0.013);
                let value = match kernel {
                    Some(_) => smooth.at(p).expect("inside"),
                    None => linear(&image, p),
                };
                most = most.max((value - wave(p)).abs());
            }
            most
        };
        let (linear, cubic, sinc) = (
            largest(None),
            largest(Some(SmoothKernel::Cubic)),
            largest(Some(SmoothKernel::Lanczos)),
        );
        println!("largest errors: linear {linear:.4}, cubic {cubic:.4}, sinc {sinc:.4}");
        // Cubic splines err by the fourth power of the spacing, straight lines by the second: 0.2 and 0.003 of this wave.
        assert!(linear > 0.1 && cubic < linear / 20.0 && sinc < linear / 5.0);
    }

    fn linear(image: &Volume, p: [f64; 3]) -> f64 {
        let [nx, ny, _] = image.geometry.size;
        let low = p.map(|v| v.floor() as usize);
        let corner = |c: usize| {
            let i = [0, 1, 2].map(|k| low[k] + (c >> k & 1));
            let weight = |k: usize| {
                let t = p[k] - low[k] as f64;
                if c >> k & 1 == 1 { t } else { 1.0 - t }
            };
            let value = image.data[(i[2] * ny + i[1]) * nx + i[0]];
            weight(0) * weight(1) * weight(2) * f64::from(value)
        };
        (0..8).map(corner).sum()
    }
}
