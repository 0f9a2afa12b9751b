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

    /// The values of `f` at every voxel, in memory order, and how often it says true.
    pub fn map(&self, f: impl Fn(OneSided) -> (f32, bool) + Sync) -> (Vec<f32>, u64) {
        let mut values = vec![0f32; self.len()];
        let rows = values.par_chunks_mut(self.size[0]).enumerate();
        let count = rows.map(|(row, values)| {
            let row = self.row(row);
            let mut count = 0;
            for (x, value) in values.iter_mut().enumerate() {
                let (here, counts) = f(row.one_sided(x));
                *value = here;
                count += u64::from(counts);
            }
            count
        });
        let count = count.sum();
        (values, count)
    }

    /// The differences around a voxel.
    pub fn at(&self, voxel: usize) -> OneSided {
        self.row(voxel / self.size[0]).one_sided(voxel % self.size[0])
    }

    /// A row of voxels along x, with its neighbours.
    fn row(&self, row: usize) -> Row<'a> {
        let [nx, ny, nz] = self.size;
        let (y, z) = (row % ny, row / ny);
        // Where there is no neighbour: the row itself.
        let [back_y, ahead_y] = [row - usize::from(y > 0), row + usize::from(y + 1 < ny)];
        let [back_z, ahead_z] =
            [if z > 0 { row - ny } else { row }, if z + 1 < nz { row + ny } else { row }];
        let component = |c: usize| {
            [row, back_y, ahead_y, back_z, ahead_z]
                .map(|row| &self.data[(c * ny * nz + row) * nx..][..nx])
        };
        Row { u: [component(0), component(1), component(2)], ends: [y, z], last: [ny - 1, nz - 1] }
    }
}

/// A row of voxels along x.
struct Row<'a> {
    /// Of each component: the row, those before and behind it along y, and along z.
    u: [[&'a [f32]; 5]; 3],
    /// Index of the row along y and z.
    ends: [usize; 2],
    /// Largest index along y and z.
    last: [usize; 2],
}

impl Row<'_> {
    fn one_sided(&self, x: usize) -> OneSided {
        let last = self.u[0][0].len() - 1;
        let index = [x, self.ends[0], self.ends[1]];
        let lasts = [last, self.last[0], self.last[1]];
        let mut sides = OneSided([[[0.0; 3]; 2]; 3]);
        for (component, [here, back_y, ahead_y, back_z, ahead_z]) in self.u.iter().enumerate() {
            let u = f64::from(here[x]);
            let neighbours = [
                [here[x.saturating_sub(1)], here[(x + 1).min(last)]],
                [back_y[x], ahead_y[x]],
                [back_z[x], ahead_z[x]],
            ];
            for (axis, [back, ahead]) in neighbours.into_iter().enumerate() {
                let identity = if component == axis { 1.0 } else { 0.0 };
                let (f, b) = (f64::from(ahead) - u, u - f64::from(back));
                // At the border both sides are the one that exists.
                let [forward, backward] = &mut sides.0[axis];
                forward[component] = identity + if index[axis] == lasts[axis] { b } else { f };
                backward[component] = identity + if index[axis] == 0 { f } else { b };
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
        let [along_x, along_y, along_z] = &self.0;
        along_y.iter().any(|&b| {
            along_z.iter().any(|&c| along_x.iter().any(|&a| is_fold(det([a, b, c]) as f32)))
        })
    }
}

pub(super) fn is_fold(determinant: f32) -> bool {
    determinant.is_nan() || determinant <= 0.0
}

fn det([a, b, c]: [[f64; 3]; 3]) -> f64 {
    a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0])
        + a[2] * (b[0] * c[1] - b[1] * c[0])
}
