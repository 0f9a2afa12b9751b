//! Samples of a stretch of neighbouring voxels, step by step: each step is a loop over arrays of fixed
//! length, which the compiler turns into vector instructions, where [`vectorized`](ffdp_kit::window::vectorized)
//! into long ones. Only reading the image goes voxel by voxel.
//!
//! All lanes are treated as if they lay in a [`Cell`](super::place::Cell); those that do not are given, and
//! are done again in the general way ([`SamplePosition`]).

use super::place::SamplePosition;
use super::{Row, Sampling};
use crate::ops::grid_sample::Interpolation;
use ffdp_kit::real::Real;

/// Voxels of a stretch.
pub(super) const LANES: usize = 32;

/// 2^52. Added to a number from 0 to there it leaves no digits behind the point: the sum is rounded to the nearest.
const WHOLE: f64 = (1u64 << 52) as f64;

/// A number for each voxel of a stretch.
pub(super) type Lanes = [f64; LANES];

/// Where up to [`LANES`] neighbouring output voxels sample the image.
pub(super) struct Stretch {
    /// Coordinates along x, y, z.
    at: [Lanes; 3],
    /// Offset of the first voxel of the cell; of some cell where a sample lies in none.
    first: [usize; LANES],
    /// From there along x, y, z.
    within: [Lanes; 3],
    /// Whether a sample lies in a cell.
    in_cell: [bool; LANES],
    /// Voxels that exist.
    pub count: usize,
    input: [usize; 3],
    sampling: Sampling,
}

impl<T: Real> Row<'_, T> {
    /// The voxels from `x` on. Inlined: a stretch is too large to be handed over.
    #[inline(always)]
    pub(super) fn stretch(&self, x: usize) -> Stretch {
        let count = (self.sampling.size[2] - x).min(LANES);
        let mut at = [[0.0; LANES]; 3];
        for (at, (start, step)) in at.iter_mut().zip(self.start.iter().zip(self.step)) {
            for (j, at) in at.iter_mut().enumerate() {
                *at = start + step * (x + j) as f64;
            }
        }
        if let Some(displacement) = self.displacement {
            let mut u = [[0.0; LANES]; 3];
            for (u, component) in u.iter_mut().zip(displacement) {
                for (u, value) in u.iter_mut().zip(&component[x..x + count]) {
                    *u = value.wide();
                }
            }
            for (at, scale) in at.iter_mut().zip(&self.sampling.scale) {
                for j in 0..LANES {
                    at[j] += scale[0] * u[0][j] + scale[1] * u[1][j] + scale[2] * u[2][j];
                }
            }
        }
        Stretch::at(at, count, self.input, self.sampling)
    }
}

impl Stretch {
    #[inline(always)]
    fn at(at: [Lanes; 3], count: usize, input: [usize; 3], sampling: Sampling) -> Self {
        let mut stretch = Self {
            at,
            first: [0; LANES],
            within: [[0.0; LANES]; 3],
            in_cell: [false; LANES],
            count,
            input,
            sampling,
        };
        if sampling.interpolation == Interpolation::Linear && input.iter().all(|side| *side > 1) {
            stretch.find_cells();
        }
        stretch
    }

    /// Without casts and without a branch, which would be done lane by lane.
    #[inline(always)]
    fn find_cells(&mut self) {
        let mut low = [[0.0; LANES]; 3];
        let mut inside = [1.0; LANES];
        for (i, low) in low.iter_mut().enumerate() {
            let last = (self.input[2 - i] - 1) as f64;
            for j in 0..LANES {
                let at = self.at[i][j];
                inside[j] *= if at > 0.0 { 1.0 } else { 0.0 } * if at < last { 1.0 } else { 0.0 };
                // Where there is no cell, some cell that can be read; also for what is not a number.
                let clamped = at.max(0.0).min(last - 1.0);
                let nearest = clamped + WHOLE - WHOLE;
                low[j] = nearest - if nearest > clamped { 1.0 } else { 0.0 };
                self.within[i][j] = at - low[j];
            }
        }
        let [_, h, w] = self.input.map(|side| side as f64);
        let [x, y, z] = &low;
        for j in 0..LANES {
            self.in_cell[j] = inside[j] > 0.0;
            let first = (z[j] * h + y[j]) * w + x[j];
            // The bits of the fraction are the number.
            self.first[j] = ((first + WHOLE).to_bits() ^ WHOLE.to_bits()) as usize;
        }
    }

    /// The samples that lie in no cell, and where they lie.
    #[inline(always)]
    pub(super) fn others(&self) -> impl Iterator<Item = (usize, SamplePosition)> {
        let lanes = (0..self.count).filter(|j| !self.in_cell[*j]);
        lanes.map(|j| {
            let Sampling { interpolation, padding, .. } = self.sampling;
            let at = self.at.map(|at| at[j]);
            (j, SamplePosition::of(at, self.input, interpolation, padding))
        })
    }

    /// Offsets from the first voxel of a cell to its pairs of voxels along x.
    #[inline(always)]
    fn pairs(&self) -> [usize; 4] {
        let [_, h, w] = self.input;
        [0, w, h * w, h * w + w]
    }

    /// The corners: for each pair the lower one, then the upper one.
    #[inline(always)]
    fn corners<T: Real>(&self, channel: &[T]) -> [[[T; LANES]; 2]; 4] {
        let mut corners = [[[T::default(); LANES]; 2]; 4];
        if !self.in_cell.contains(&true) {
            return corners;
        }
        for (j, first) in self.first.iter().enumerate() {
            for (corner, offset) in corners.iter_mut().zip(self.pairs()) {
                let pair = &channel[first + offset..][..2];
                corner[0][j] = pair[0];
                corner[1][j] = pair[1];
            }
        }
        corners
    }

    /// The values of a channel.
    #[inline(always)]
    pub(super) fn values<T: Real>(&self, channel: &[T]) -> Lanes {
        let corners = self.corners(channel);
        let [tx, ty, tz] = &self.within;
        let mut values = [0.0; LANES];
        for j in 0..LANES {
            let along = |k: usize| mix(corners[k][0][j].wide(), corners[k][1][j].wide(), tx[j]);
            let (near, far) = (mix(along(0), along(1), ty[j]), mix(along(2), along(3), ty[j]));
            values[j] = mix(near, far, tz[j]);
        }
        for (j, place) in self.others() {
            values[j] = place.value(channel, self.input, self.sampling.interpolation);
        }
        values
    }

    /// Adds `g` times the derivatives of a channel along x, y, z.
    #[inline(always)]
    pub(super) fn add_slopes<T: Real>(&self, channel: &[T], g: &Lanes, sums: &mut [Lanes; 3]) {
        let corners = self.corners(channel);
        let [tx, ty, tz] = &self.within;
        let mut slopes = [[0.0; LANES]; 3];
        for j in 0..LANES {
            let along = |k: usize| mix(corners[k][0][j].wide(), corners[k][1][j].wide(), tx[j]);
            let slope = |k: usize| corners[k][1][j].wide() - corners[k][0][j].wide();
            let [a, b, c, d] = [along(0), along(1), along(2), along(3)];
            slopes[0][j] =
                mix(mix(slope(0), slope(1), ty[j]), mix(slope(2), slope(3), ty[j]), tz[j]);
            slopes[1][j] = mix(b - a, d - c, tz[j]);
            slopes[2][j] = mix(c, d, ty[j]) - mix(a, b, ty[j]);
        }
        for (j, place) in self.others() {
            for (slopes, slope) in slopes.iter_mut().zip(place.slope(channel, self.input)) {
                slopes[j] = slope;
            }
        }
        for (sums, slopes) in sums.iter_mut().zip(&slopes) {
            for j in 0..LANES {
                sums[j] += g[j] * slopes[j];
            }
        }
    }

    /// Adds `g` to the eight corners of every cell; `sums` begins with voxel `start` of the image.
    #[inline(always)]
    pub(super) fn add_to_corners(&self, g: &Lanes, sums: &mut [f64], start: usize) {
        let [tx, ty, tz] = &self.within;
        let mut shares = [[[0.0; LANES]; 2]; 4];
        for j in 0..LANES {
            let rows = [
                (1.0 - ty[j]) * (1.0 - tz[j]),
                ty[j] * (1.0 - tz[j]),
                (1.0 - ty[j]) * tz[j],
                ty[j] * tz[j],
            ];
            for (shares, row) in shares.iter_mut().zip(rows) {
                let whole = row * g[j];
                shares[1][j] = tx[j] * whole;
                shares[0][j] = (1.0 - tx[j]) * whole;
            }
        }
        for j in (0..self.count).filter(|j| self.in_cell[*j]) {
            for (shares, offset) in shares.iter().zip(self.pairs()) {
                let pair = &mut sums[self.first[j] + offset - start..][..2];
                pair[0] += shares[0][j];
                pair[1] += shares[1][j];
            }
        }
    }

    /// The planes of the image, first and last, that the samples read or may read.
    #[inline(always)]
    pub(super) fn planes(&self) -> (usize, usize) {
        let last = self.input[0] - 1;
        let plane = |z: f64| (z.max(0.0) as usize).min(last);
        let reach = |reach: (usize, usize), z: &f64| {
            // The general way reads two neighbours of the nearest voxel at most.
            let (below, above) = (plane(z - 1.0), plane(z + 2.0));
            (reach.0.min(below), reach.1.max(above))
        };
        self.at[2][..self.count].iter().fold((last, 0), reach)
    }
}

#[inline(always)]
fn mix(a: f64, b: f64, t: f64) -> f64 {
    a + t * (b - a)
}
