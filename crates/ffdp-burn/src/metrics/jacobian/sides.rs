//! The differences around each voxel of a displacement, and the determinants they give.

use rayon::prelude::*;

use super::Difference;
use crate::Result;
use crate::metrics::warp::check_field;

/// A displacement `[3, D, H, W]` with its grid.
pub(super) struct Field<'a> {
    data: &'a [f32],
    size: [usize; 3],
}

impl<'a> Field<'a> {
    pub fn new(data: &'a [f32], size: [usize; 3]) -> Result<Self> {
        check_field(data, size)?;
        Ok(Self { data, size })
    }

    pub fn len(&self) -> usize {
        self.size.iter().product()
    }

    /// `f` at every voxel, in memory order.
    pub fn map(&self, f: impl Fn(OneSided) -> f32 + Sync) -> Vec<f32> {
        let mut values = vec![0f32; self.len()];
        values.par_chunks_mut(self.size[0]).enumerate().for_each(|(row, values)| {
            values.iter_mut().enumerate().for_each(|(x, value)| *value = f(self.one_sided(x, row)));
        });
        values
    }

    /// Voxels where `f` holds.
    pub fn count(&self, f: impl Fn(OneSided) -> bool + Sync) -> u64 {
        let rows = (0..self.size[1] * self.size[2]).into_par_iter();
        rows.map(|row| (0..self.size[0]).filter(|&x| f(self.one_sided(x, row))).count() as u64)
            .sum()
    }

    /// At voxel `x` of a row of the volume.
    fn one_sided(&self, x: usize, row: usize) -> OneSided {
        let [nx, ny, _] = self.size;
        let offset = row * nx + x;
        let index = [x, row % ny, row / ny];
        let strides = [1, nx, nx * ny];
        let mut sides = OneSided([[[0.0; 3]; 2]; 3]);
        for (axis, &i) in index.iter().enumerate() {
            let (n, stride) = (self.size[axis], strides[axis]);
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
}

/// dphi/dp at a voxel along each axis: forward, backward.
pub(super) struct OneSided([[[f64; 3]; 2]; 3]);

impl OneSided {
    pub fn determinant(&self, difference: Difference) -> f32 {
        det(self.0.map(|[forward, backward]| match difference {
            Difference::Forward => forward,
            Difference::Backward => backward,
            Difference::Central => [0, 1, 2].map(|c| 0.5 * (forward[c] + backward[c])),
        })) as f32
    }

    /// Whether one of the eight mixtures of forward and backward differences folds.
    pub fn fold_at_a_corner(&self) -> bool {
        let side = |corner: usize, axis: usize| self.0[axis][corner >> axis & 1];
        (0..8).any(|corner| is_fold(det([0, 1, 2].map(|axis| side(corner, axis))) as f32))
    }
}

pub(super) fn is_fold(determinant: f32) -> bool {
    determinant.is_nan() || determinant <= 0.0
}

fn det([a, b, c]: [[f64; 3]; 3]) -> f64 {
    a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0])
        + a[2] * (b[0] * c[1] - b[1] * c[0])
}
