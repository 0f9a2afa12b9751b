//! Means over windows around every voxel, without a map of them: plane by plane.

use rayon::prelude::*;

/// Weighted means over the window around a voxel.
#[derive(Clone, Copy)]
pub(super) struct Moments {
    pub f: f64,
    pub m: f64,
    pub ff: f64,
    pub mm: f64,
    pub fm: f64,
}

/// Two images of one grid, and a separable window.
pub(super) struct Windows<'a> {
    pub fixed: &'a [f32],
    pub moved: &'a [f32],
    /// (x, y, z).
    pub size: [usize; 3],
    /// Along each axis: an odd number, symmetric. Images are zero beyond their border.
    pub weights: &'a [f64],
}

/// One plane of the five products.
type Planes = [Vec<f64>; 5];

impl Windows<'_> {
    /// Mean of `score` over the voxels that are `chosen(offset)`; NaN without any.
    ///
    /// A thread holds ten planes in f64.
    pub fn mean(
        &self,
        chosen: impl Fn(usize) -> bool + Sync,
        score: impl Fn(Moments) -> f64 + Sync,
    ) -> f64 {
        let [nx, ny, nz] = self.size;
        let plane = |z: usize| {
            let (mut sum, mut count) = (0.0, 0u64);
            let start_of = |y: usize| (z * ny + y) * nx;
            let has_chosen = |y: &usize| (start_of(*y)..start_of(*y) + nx).any(&chosen);
            let rows: Vec<usize> = (0..ny).filter(has_chosen).collect();
            if rows.is_empty() {
                return (sum, count);
            }
            // Background, of which images are full, is not summed.
            let planes = self.along_y(&self.along_z(z, &self.around(&rows)), &rows);
            let mut row: [Vec<f64>; 5] = std::array::from_fn(|_| vec![0.0; nx]);
            for y in rows {
                let start = start_of(y);
                self.along_x(&planes, y, &mut row);
                let [f, m, ff, mm, fm] = &row;
                for x in (0..nx).filter(|x| chosen(start + x)) {
                    sum += score(Moments { f: f[x], m: m[x], ff: ff[x], mm: mm[x], fm: fm[x] });
                    count += 1;
                }
            }
            (sum, count)
        };
        let parts: Vec<(f64, u64)> = (0..nz).into_par_iter().map(plane).collect();
        let (sum, count) = parts.iter().fold((0.0, 0), |(s, c), part| (s + part.0, c + part.1));
        sum / count as f64
    }

    /// The rows that the windows of these reach.
    fn around(&self, rows: &[usize]) -> Vec<usize> {
        let (radius, ny) = (self.weights.len() / 2, self.size[1]);
        let mut reached = vec![false; ny];
        for &y in rows {
            reached[y.saturating_sub(radius)..(y + radius + 1).min(ny)].fill(true);
        }
        (0..ny).filter(|y| reached[*y]).collect()
    }

    /// The products of some rows summed over the planes around `z`.
    fn along_z(&self, z: usize, rows: &[usize]) -> Planes {
        let (nx, plane) = (self.size[0], self.size[0] * self.size[1]);
        let mut sums: Planes = std::array::from_fn(|_| vec![0.0; plane]);
        let [f, m, ff, mm, fm] = &mut sums;
        for (weight, z) in self.taps(z, self.size[2]) {
            let fixed = &self.fixed[z * plane..][..plane];
            let moved = &self.moved[z * plane..][..plane];
            for row in rows.iter().map(|y| y * nx..(y + 1) * nx) {
                for i in row {
                    let (a, b) = (f64::from(fixed[i]), f64::from(moved[i]));
                    f[i] += weight * a;
                    m[i] += weight * b;
                    ff[i] += weight * (a * a);
                    mm[i] += weight * (b * b);
                    fm[i] += weight * (a * b);
                }
            }
        }
        sums
    }

    fn along_y(&self, planes: &Planes, rows: &[usize]) -> Planes {
        let [nx, ny, _] = self.size;
        std::array::from_fn(|k| {
            let mut sums = vec![0.0; nx * ny];
            for &y in rows {
                let row = &mut sums[y * nx..][..nx];
                for (weight, y) in self.taps(y, ny) {
                    let other = &planes[k][y * nx..][..nx];
                    row.iter_mut().zip(other).for_each(|(sum, v)| *sum += weight * v);
                }
            }
            sums
        })
    }

    fn along_x(&self, planes: &Planes, y: usize, row: &mut [Vec<f64>; 5]) {
        let (nx, radius) = (self.size[0], self.weights.len() / 2);
        for (sums, plane) in row.iter_mut().zip(planes) {
            let values = &plane[y * nx..][..nx];
            sums.fill(0.0);
            // One weight after the other, so that the inner loop runs along memory.
            for (k, weight) in self.weights.iter().enumerate() {
                let (skip, ahead) = (radius.saturating_sub(k), k.saturating_sub(radius));
                let shifted = values.iter().skip(ahead);
                sums.iter_mut().skip(skip).zip(shifted).for_each(|(sum, v)| *sum += weight * v);
            }
        }
    }

    /// The weights of the window around `center` with the positions in `0..count` they belong to. Along
    /// an axis of one voxel there is no window: a plane has no zeros before and behind it.
    fn taps(&self, center: usize, count: usize) -> impl Iterator<Item = (f64, usize)> {
        let radius = self.weights.len() / 2;
        let first = radius.saturating_sub(center);
        let last = self.weights.len().min(count + radius - center);
        let weight = move |k: usize| if count == 1 { 1.0 } else { self.weights[k] };
        (first..last).map(move |k| (weight(k), center + k - radius))
    }
}
