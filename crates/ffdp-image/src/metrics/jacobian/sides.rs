//! The differences around each voxel of a displacement, and the determinants they give.

use std::ops::Range;

use rayon::prelude::*;

use super::{Difference, FieldPlanes};
use crate::Result;
use crate::metrics::warp::check_field;

/// Parts of a sweep for each thread, so that none waits long for another.
const PARTS: usize = 3;
/// Voxels of a part at least.
const LEAST: usize = 1 << 19;

/// A displacement `[3, D, H, W]` with its grid, or some planes of it.
pub(super) struct Field<'a> {
    data: &'a [f32],
    size: [usize; 3],
    /// The rows that are swept, and the number on the whole grid of the first row that there is.
    rows: Range<usize>,
    before: usize,
}

impl<'a> Field<'a> {
    pub fn new(data: &'a [f32], size: [usize; 3]) -> Result<Self> {
        check_field(data, size)?;
        Ok(Self { data, size, rows: 0..size[1] * size[2], before: 0 })
    }

    /// Of planes of a grid of a size (x, y, z).
    pub fn of_planes(planes: &FieldPlanes<'a>, [nx, ny, _]: [usize; 3]) -> Result<Self> {
        let FieldPlanes { displacement, first, own } = planes;
        let count = displacement.len() / (3 * nx * ny);
        check_field(displacement, [nx, ny, count])?;
        let rows = (own.start - first) * ny..(own.end - first) * ny;
        Ok(Self { data: displacement, size: [nx, ny, count], rows, before: first * ny })
    }

    pub fn len(&self) -> usize {
        self.size.iter().product()
    }

    /// What `f` writes for every row of voxels, in memory order.
    pub fn map(&self, f: impl Fn(&mut OneSided, &mut [f32]) + Sync) -> Vec<f32> {
        let nx = self.size[0];
        let mut values = vec![0f32; self.len()];
        let rows = values.par_chunks_mut(nx).enumerate();
        rows.for_each_init(OneSided::default, |sides, (row, values)| {
            self.row(row).one_sided(0..nx, sides);
            f(sides, values);
        });
        values
    }

    /// What `add` has gathered from the rows, which it is given with their numbers on the whole grid, begun with `new` for
    /// some of them at a time and joined in their order: each thread has a few of these, which may be large.
    pub fn sweep<T: Send>(
        &self,
        new: impl Fn() -> T + Sync,
        add: impl Fn(&mut T, &mut OneSided, usize) + Sync,
        join: impl Fn(&mut T, T) + Sync,
    ) -> T {
        let nx = self.size[0];
        let least = LEAST.div_ceil(nx);
        let rows = self.rows.len().div_ceil(PARTS * rayon::current_num_threads()).max(least);
        let parts = self.rows.clone().into_par_iter().step_by(rows);
        let part = |first: usize| {
            let (mut found, mut sides) = (new(), OneSided::default());
            for row in first..(first + rows).min(self.rows.end) {
                self.row(row).one_sided(0..nx, &mut sides);
                add(&mut found, &mut sides, self.before + row);
            }
            found
        };
        let joined = parts.map(part).reduce_with(|mut all, next| {
            join(&mut all, next);
            all
        });
        joined.unwrap_or_else(new)
    }

    /// The determinant at a voxel.
    pub fn determinant(&self, voxel: usize, difference: Difference) -> f32 {
        let mut sides = OneSided::default();
        let x = voxel % self.size[0];
        self.row(voxel / self.size[0]).one_sided(x..x + 1, &mut sides);
        sides.determinants(difference)[0]
    }

    /// A row of voxels along x, with its neighbours.
    fn row(&self, row: usize) -> Row<'a> {
        let [nx, ny, nz] = self.size;
        let (y, z) = (row % ny, row / ny);
        let along = |place: usize, count: usize, step: usize| {
            // Where there is no neighbour: the row itself.
            let back = if place > 0 { row - step } else { row };
            let ahead = if place + 1 < count { row + step } else { row };
            // At the border both sides are the one that exists.
            [
                if place + 1 < count { [row, ahead] } else { [back, row] },
                if place > 0 { [back, row] } else { [row, ahead] },
            ]
        };
        let (along_y, along_z) = (along(y, ny, 1), along(z, nz, ny));
        let part = |c: usize, row: usize| &self.data[(c * ny * nz + row) * nx..][..nx];
        let sides = |c: usize| {
            [along_y, along_z].map(|sides| sides.map(|pair| pair.map(|row| part(c, row))))
        };
        Row { here: [0, 1, 2].map(|c| part(c, row)), across: [0, 1, 2].map(sides) }
    }
}

/// A row of voxels along x.
struct Row<'a> {
    /// Of each component.
    here: [&'a [f32]; 3],
    /// Of each component, along y and along z: the rows whose difference is the one forward, and that backward.
    across: [[[[&'a [f32]; 2]; 2]; 2]; 3],
}

impl Row<'_> {
    /// The differences around some of its voxels, at least one.
    fn one_sided(&self, voxels: Range<usize>, sides: &mut OneSided) {
        sides.count = voxels.len();
        sides.values.resize(LINES * sides.count, 0.0);
        for component in 0..3 {
            let identity = |axis: usize| if component == axis { 1.0 } else { 0.0 };
            let [forward, backward] = sides.lines_mut(0, component);
            along_x(self.here[component], voxels.clone(), identity(0), [forward, backward]);
            for (axis, pairs) in (1..).zip(&self.across[component]) {
                let lines = sides.lines_mut(axis, component);
                for ([from, to], line) in pairs.iter().zip(lines) {
                    let [from, to] = [from, to].map(|row| &row[voxels.clone()]);
                    difference([from, to], identity(axis), line);
                }
            }
        }
    }
}

/// The differences forward and backward along a row itself.
fn along_x(row: &[f32], voxels: Range<usize>, identity: f64, [forward, backward]: [&mut [f64]; 2]) {
    let (start, end, last) = (voxels.start, voxels.end, row.len() - 1);
    // The last voxel has no next one, the first one none before: both sides are the one that exists.
    let next = end.min(last);
    let (inner, border) = forward.split_at_mut(next - start);
    difference([&row[start..next], &row[start + 1..next + 1]], identity, inner);
    let before_last = last.saturating_sub(1);
    difference([&row[before_last..=before_last], &row[last..]], identity, border);
    let first = start.max(1);
    let (border, inner) = backward.split_at_mut(first - start);
    let second = last.min(1);
    difference([&row[..1], &row[second..=second]], identity, border);
    difference([&row[first - 1..end - 1], &row[first..end]], identity, inner);
}

/// `identity + to - from`, at as many voxels as there are results.
fn difference([from, to]: [&[f32]; 2], identity: f64, result: &mut [f64]) {
    for ((result, from), to) in result.iter_mut().zip(from).zip(to) {
        *result = identity + (f64::from(*to) - f64::from(*from));
    }
}

/// Three axes, two sides, three components.
const LINES: usize = 18;

/// dphi/dp at neighbouring voxels of a row.
#[derive(Default)]
pub(super) struct OneSided {
    /// Voxels.
    count: usize,
    /// By axis, component, side (forward, backward) and voxel: lines, through which the loops run.
    values: Vec<f64>,
    /// Differences by axis, component and voxel, made of both sides.
    mixed: Vec<f64>,
    /// The determinants that were asked for last.
    determinants: Vec<f32>,
}

impl OneSided {
    fn lines_mut(&mut self, axis: usize, component: usize) -> [&mut [f64]; 2] {
        let pair = &mut self.values[(axis * 3 + component) * 2 * self.count..][..2 * self.count];
        pair.split_at_mut(self.count).into()
    }

    /// The components along an axis; side 0 is forward, 1 backward.
    fn along(&self, axis: usize, side: usize) -> [&[f64]; 3] {
        let line = |c: usize| ((axis * 3 + c) * 2 + side) * self.count;
        [0, 1, 2].map(|c| &self.values[line(c)..][..self.count])
    }

    /// The determinant at every voxel.
    pub fn determinants(&mut self, difference: Difference) -> &[f32] {
        let mut result = std::mem::take(&mut self.determinants);
        result.resize(self.count, 0.0);
        match difference {
            Difference::Forward => {
                determinants([0, 1, 2].map(|axis| self.along(axis, 0)), &mut result)
            }
            Difference::Backward => {
                determinants([0, 1, 2].map(|axis| self.along(axis, 1)), &mut result)
            }
            Difference::Central => self.central(&mut result),
        }
        self.determinants = result;
        &self.determinants
    }

    fn central(&mut self, result: &mut [f32]) {
        let (values, mixed) = (&self.values, &mut self.mixed);
        mixed.resize(LINES / 2 * self.count, 0.0);
        let pairs = values.chunks_exact(2 * self.count);
        for (mixed, pair) in mixed.chunks_exact_mut(self.count).zip(pairs) {
            let (forward, backward) = pair.split_at(self.count);
            for ((mixed, forward), backward) in mixed.iter_mut().zip(forward).zip(backward) {
                *mixed = 0.5 * (forward + backward);
            }
        }
        let line = |line: usize| &self.mixed[line * self.count..][..self.count];
        determinants([0, 1, 2].map(|axis| [0, 1, 2].map(|c| line(axis * 3 + c))), result);
    }

    /// The voxels whose determinant is a fold, or folds in one of the eight mixtures of forward and backward differences.
    pub fn folds(&self, determinants: &[f32]) -> u64 {
        let mut sound: Vec<f32> = determinants.to_vec();
        for (b, c) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let along_x = [self.along(0, 0), self.along(0, 1)];
            mark_folds(along_x, [self.along(1, b), self.along(2, c)], &mut sound);
        }
        sound.iter().filter(|&&determinant| is_fold(determinant)).count() as u64
    }
}

/// Of three vectors at every voxel.
fn determinants([a, b, c]: [[&[f64]; 3]; 3], result: &mut [f32]) {
    let count = result.len();
    let [[a0, a1, a2], [b0, b1, b2], [c0, c1, c2]] = [a, b, c].map(|v| v.map(|v| &v[..count]));
    for (x, result) in result.iter_mut().enumerate() {
        let minors = minors([b0[x], b1[x], b2[x]], [c0[x], c1[x], c2[x]]);
        *result = det([a0[x], a1[x], a2[x]], minors) as f32;
    }
}

/// Writes 0 where one of two vectors a makes a fold with b and c.
fn mark_folds([a, other]: [[&[f64]; 3]; 2], [b, c]: [[&[f64]; 3]; 2], sound: &mut [f32]) {
    let count = sound.len();
    let [[a0, a1, a2], [o0, o1, o2], [b0, b1, b2], [c0, c1, c2]] =
        [a, other, b, c].map(|v| v.map(|v| &v[..count]));
    for (x, sound) in sound.iter_mut().enumerate() {
        let minors = minors([b0[x], b1[x], b2[x]], [c0[x], c1[x], c2[x]]);
        let one = det([a0[x], a1[x], a2[x]], minors) as f32;
        let two = det([o0[x], o1[x], o2[x]], minors) as f32;
        // No branch, so that the loop takes several voxels at a time.
        *sound = if !is_fold(one) & !is_fold(two) { *sound } else { 0.0 };
    }
}

pub(super) fn is_fold(determinant: f32) -> bool {
    determinant.is_nan() | (determinant <= 0.0)
}

/// The minors that the first vector of a determinant is multiplied with.
fn minors(b: [f64; 3], c: [f64; 3]) -> [f64; 3] {
    [b[1] * c[2] - b[2] * c[1], b[0] * c[2] - b[2] * c[0], b[0] * c[1] - b[1] * c[0]]
}

fn det(a: [f64; 3], minors: [f64; 3]) -> f64 {
    a[0] * minors[0] - a[1] * minors[1] + a[2] * minors[2]
}
