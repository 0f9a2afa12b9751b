//! Jacobian determinant of `phi(p) = p + u(p)`: volume change and folds.

use rayon::prelude::*;

use crate::{Error, Result};

/// How a derivative is taken at a voxel; at the border, the one-sided one that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// `u(p + 1) - u(p)`.
    Forward,
    /// `u(p) - u(p - 1)`.
    Backward,
    /// `(u(p + 1) - u(p - 1)) / 2`.
    Central,
}

/// Distribution of det J over the voxels of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JacobianDistribution {
    /// Smallest determinant.
    pub min: f64,
    /// First percentile.
    pub p1: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest determinant.
    pub max: f64,
    /// Voxels with det J <= 0 or NaN.
    pub folds: u64,
    /// `folds` over the number of voxels.
    pub fold_fraction: f64,
}

/// Folds and volume change of a displacement field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JacobianReport {
    /// Forward differences along all axes.
    pub forward: JacobianDistribution,
    /// Backward differences along all axes.
    pub backward: JacobianDistribution,
    /// Central differences; blind to folds of one voxel (checkerboards).
    pub central: JacobianDistribution,
    /// Voxels that fold in at least one of: central, or any of the eight mixtures of forward and
    /// backward differences per axis. These are the true folds: a voxel that is not counted
    /// keeps its orientation in each of the eight corners around it.
    pub true_folds: u64,
    /// `true_folds` over the number of voxels.
    pub true_fold_fraction: f64,
    /// Standard deviation of ln det J (central, two voxels cropped per side where the grid has
    /// more than four, determinants below 1e-9 taken as 1e-9). 0 is volume-preserving up to a
    /// constant.
    pub sd_log: f64,
    /// The same as Learn2Reg's evaluation prints it: of ln(det J + 3).
    pub sd_log_learn2reg: f64,
}

/// det J at every voxel of a displacement `[3, D, H, W]` on a grid of `size` (x, y, z).
///
/// # Errors
/// [`Error::Shape`] when the field is not of that size.
pub fn jacobian_determinants(
    displacement: &[f32],
    size: [usize; 3],
    difference: Difference,
) -> Result<Vec<f32>> {
    let field = Field::new(displacement, size)?;
    Ok(field.map(|sides| sides.determinant(difference)))
}

/// The report of a displacement `[3, D, H, W]` (voxels) on a grid of `size` (x, y, z).
///
/// # Errors
/// [`Error::Shape`] when the field is not of that size.
pub fn jacobian(displacement: &[f32], size: [usize; 3]) -> Result<JacobianReport> {
    let field = Field::new(displacement, size)?;
    let all = [Difference::Forward, Difference::Backward, Difference::Central];
    let voxels: Vec<([f32; 3], bool)> = field.map(|sides| {
        let determinants = all.map(|difference| sides.determinant(difference));
        (determinants, is_fold(determinants[2]) || sides.fold_at_a_corner())
    });
    let [forward, backward, central] =
        [0, 1, 2].map(|kind| voxels.iter().map(|(d, _)| d[kind]).collect::<Vec<f32>>());
    let true_folds = voxels.iter().filter(|(_, folded)| *folded).count() as u64;
    let inner: Vec<f64> = (0..field.len())
        .filter(|&offset| field.is_two_voxels_inside(offset))
        .map(|offset| f64::from(central[offset]))
        .collect();
    Ok(JacobianReport {
        forward: distribution(forward),
        backward: distribution(backward),
        central: distribution(central),
        true_folds,
        true_fold_fraction: true_folds as f64 / field.len() as f64,
        sd_log: deviation(inner.iter().map(|det| det.max(1e-9).ln())),
        sd_log_learn2reg: deviation(inner.iter().map(|det| (det + 3.0).clamp(1e-9, 1e9).ln())),
    })
}

/// A displacement with its grid.
struct Field<'a> {
    data: &'a [f32],
    size: [usize; 3],
    strides: [usize; 3],
}

impl<'a> Field<'a> {
    fn new(data: &'a [f32], size: [usize; 3]) -> Result<Self> {
        let [nx, ny, nz] = size;
        if nx * ny * nz == 0 || data.len() != 3 * nx * ny * nz {
            return Err(Error::Shape {
                what: "a displacement [3, D, H, W] must match its grid".into(),
                expected: vec![3, nz, ny, nx],
                got: vec![data.len()],
            });
        }
        Ok(Self { data, size, strides: [1, nx, nx * ny] })
    }

    fn len(&self) -> usize {
        self.size.iter().product()
    }

    fn index(&self, offset: usize) -> [usize; 3] {
        [0, 1, 2].map(|axis| offset / self.strides[axis] % self.size[axis])
    }

    /// `f` at every voxel, in memory order.
    fn map<T: Send>(&self, f: impl Fn(OneSided) -> T + Sync) -> Vec<T> {
        (0..self.len()).into_par_iter().map(|offset| f(self.one_sided(offset))).collect()
    }

    fn one_sided(&self, offset: usize) -> OneSided {
        let index = self.index(offset);
        let mut sides = OneSided([[[0.0; 3]; 2]; 3]);
        for (axis, &i) in index.iter().enumerate() {
            let (n, stride) = (self.size[axis], self.strides[axis]);
            // At the border both sides are the one that exists.
            let ahead = if i + 1 < n { offset + stride } else { offset };
            let back = if i > 0 { offset - stride } else { offset };
            let [forward, backward] = &mut sides.0[axis];
            for component in 0..3 {
                let u = &self.data[component * self.len()..];
                let [u_back, u_here, u_ahead] =
                    [back, offset, ahead].map(|offset| f64::from(u[offset]));
                let identity = if component == axis { 1.0 } else { 0.0 };
                let (f, b) = (u_ahead - u_here, u_here - u_back);
                forward[component] = identity + if ahead == offset { b } else { f };
                backward[component] = identity + if back == offset { f } else { b };
            }
        }
        sides
    }

    fn is_two_voxels_inside(&self, offset: usize) -> bool {
        let index = self.index(offset);
        (0..3).all(|axis| {
            let n = self.size[axis];
            n <= 4 || (2..n - 2).contains(&index[axis])
        })
    }
}

/// dphi/dp at a voxel along each axis: forward, backward.
struct OneSided([[[f64; 3]; 2]; 3]);

impl OneSided {
    fn determinant(&self, difference: Difference) -> f32 {
        det(self.0.map(|[forward, backward]| match difference {
            Difference::Forward => forward,
            Difference::Backward => backward,
            Difference::Central => [0, 1, 2].map(|c| 0.5 * (forward[c] + backward[c])),
        })) as f32
    }

    /// Whether one of the eight mixtures of forward and backward differences folds.
    fn fold_at_a_corner(&self) -> bool {
        let side = |corner: usize, axis: usize| self.0[axis][corner >> axis & 1];
        (0..8).any(|corner| is_fold(det([0, 1, 2].map(|axis| side(corner, axis))) as f32))
    }
}

fn is_fold(determinant: f32) -> bool {
    determinant.is_nan() || determinant <= 0.0
}

fn det([a, b, c]: [[f64; 3]; 3]) -> f64 {
    a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0])
        + a[2] * (b[0] * c[1] - b[1] * c[0])
}

fn distribution(mut determinants: Vec<f32>) -> JacobianDistribution {
    let count = determinants.len();
    let folds = determinants.par_iter().filter(|&&det| is_fold(det)).count() as u64;
    determinants.par_sort_unstable_by(f32::total_cmp);
    // Linear interpolation between ranks, as numpy's default.
    let percentile = |percent: f64| {
        let rank = percent / 100.0 * (count - 1) as f64;
        let (low, high) = (rank.floor() as usize, rank.ceil() as usize);
        let (a, b) = (f64::from(determinants[low]), f64::from(determinants[high]));
        a + (rank - low as f64) * (b - a)
    };
    JacobianDistribution {
        min: percentile(0.0),
        p1: percentile(1.0),
        p50: percentile(50.0),
        p99: percentile(99.0),
        max: percentile(100.0),
        folds,
        fold_fraction: folds as f64 / count as f64,
    }
}

/// Standard deviation of the population, as numpy's default.
fn deviation(values: impl ExactSizeIterator<Item = f64> + Clone) -> f64 {
    let count = values.len() as f64;
    let mean = values.clone().sum::<f64>() / count;
    (values.map(|v| (v - mean).powi(2)).sum::<f64>() / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: [usize; 3] = [7, 6, 5];
    const ALL: [Difference; 3] = [Difference::Forward, Difference::Backward, Difference::Central];
    /// Rounding of f32 displacements of a few voxels.
    const F32_ROUNDING: f64 = 2e-5;

    /// u = (A - I) p + t as a field.
    fn affine(matrix: [[f64; 3]; 3], size: [usize; 3]) -> Vec<f32> {
        let count = size.iter().product::<usize>();
        let mut data = vec![0f32; 3 * count];
        for offset in 0..count {
            let p = [offset % size[0], offset / size[0] % size[1], offset / size[0] / size[1]]
                .map(|v| v as f64);
            for (c, row) in matrix.iter().enumerate() {
                let mapped: f64 = row.iter().zip(p).map(|(a, v)| a * v).sum();
                data[c * count + offset] = (mapped - p[c] + 0.3) as f32;
            }
        }
        data
    }

    #[test]
    fn affine_fields_have_the_determinant_of_their_matrix() {
        for (matrix, expected) in [
            ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 1.0),
            ([[1.2, 0.1, 0.0], [-0.2, 0.9, 0.3], [0.05, 0.0, 1.1]], 1.2115),
            // A reflection folds everywhere.
            ([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], -1.0),
        ] {
            let field = affine(matrix, SIZE);
            for difference in ALL {
                let dets = jacobian_determinants(&field, SIZE, difference).expect("sizes match");
                let worst =
                    dets.iter().map(|&d| (f64::from(d) - expected).abs()).fold(0.0, f64::max);
                assert!(worst < F32_ROUNDING, "{difference:?} {matrix:?}: off by {worst}");
            }
            let report = jacobian(&field, SIZE).expect("sizes match");
            let all = if expected > 0.0 { 0 } else { 210 };
            assert_eq!((report.true_folds, report.central.folds), (all, all), "{matrix:?}");
            assert!(report.sd_log < F32_ROUNDING && report.sd_log_learn2reg < F32_ROUNDING);
        }
    }

    #[test]
    fn size_one_axes_do_not_deform() {
        let size = [5, 1, 4];
        let field = affine([[1.5, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 2.0]], size);
        let report = jacobian(&field, size).expect("sizes match");
        assert!((report.central.p50 - 3.0).abs() < F32_ROUNDING, "{report:?}");
    }

    #[test]
    fn one_voxel_fold_is_seen_though_central_differences_are_blind() {
        // A checkerboard of amplitude 0.6 along x swaps neighbours.
        let [nx, ny, nz] = SIZE;
        let mut field = vec![0f32; 3 * nx * ny * nz];
        for (offset, u) in field[..nx * ny * nz].iter_mut().enumerate() {
            *u = if offset % nx % 2 == 0 { 0.6 } else { -0.6 };
        }
        let report = jacobian(&field, SIZE).expect("sizes match");
        // One-sided at x = 0 even the central difference sees it; at the last x, which is even,
        // the only neighbour is farther away, not swapped.
        let face = (ny * nz) as u64;
        assert_eq!(report.central.folds, face, "{:?}", report.central);
        assert_eq!(report.true_folds, (nx * ny * nz) as u64 - face);
        assert!(report.forward.min < -0.19 && report.forward.max > 2.19, "{:?}", report.forward);
    }

    #[test]
    fn percentiles_interpolate_between_ranks() {
        let d = distribution((0..=200).rev().map(|i| i as f32).collect());
        assert_eq!([d.min, d.p1, d.p50, d.p99, d.max], [0.0, 2.0, 100.0, 198.0, 200.0]);
        assert_eq!(d.folds, 1);
        let d = distribution(vec![1.0, 2.0]);
        assert!((d.p1 - 1.01).abs() < 1e-12 && d.p50 == 1.5);
    }

    #[test]
    fn nan_counts_as_a_fold_and_wrong_size_is_an_error() {
        let mut field = affine([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], SIZE);
        field[100] = f32::NAN;
        assert!(jacobian(&field, SIZE).expect("sizes match").true_folds > 0);
        assert!(jacobian(&field[1..], SIZE).is_err());
        assert!(jacobian(&[], [0, 4, 4]).is_err());
    }
}
