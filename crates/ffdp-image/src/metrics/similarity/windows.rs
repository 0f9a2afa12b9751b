//! Sums over windows around every voxel, without a map of them: tile by tile, along z.
//!
//! A tile is a few rows of the image. Its planes are summed along x and y one after the other, and wait in a ring
//! until the window along z has all of its own: the sums stay in the cache of a core, however large the image is.

use std::ops::Range;

use rayon::prelude::*;

/// Rows of a tile. Those around it that its windows reach are summed along x for it alone.
const ROWS: usize = 16;
/// Planes of a tile; those before and behind it, likewise.
const PLANES: usize = 64;
/// Numbers that are summed side by side.
const LANES: usize = 8;

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

impl Windows<'_> {
    /// Sum of `score` over the voxels that are `chosen(offset)`, and how many they are.
    pub fn sum(
        &self,
        chosen: impl Fn(usize) -> bool + Sync,
        score: impl Fn(Moments) -> f64 + Sync,
    ) -> (f64, u64) {
        let [nx, ny, nz] = self.size;
        let part = |tile: &mut Tile, (first_row, first_plane): (usize, usize)| {
            tile.begin(first_row..(first_row + ROWS).min(ny));
            let (mut sum, mut count) = (0.0, 0u64);
            for z in first_plane..(first_plane + PLANES).min(nz) {
                for y in tile.rows.clone() {
                    let row = (z * ny + y) * nx..(z * ny + y + 1) * nx;
                    // Background, of which images are full, is not summed.
                    if !row.clone().any(&chosen) {
                        continue;
                    }
                    let [f, m, ff, mm, fm] = tile.row(y, z);
                    for (x, _) in row.enumerate().filter(|(_, offset)| chosen(*offset)) {
                        sum += score(Moments { f: f[x], m: m[x], ff: ff[x], mm: mm[x], fm: fm[x] });
                        count += 1;
                    }
                }
            }
            (sum, count)
        };
        let planes = || (0..nz).step_by(PLANES);
        let tiles = (0..ny).step_by(ROWS).flat_map(|y| planes().map(move |z| (y, z)));
        let tiles: Vec<(usize, usize)> = tiles.collect();
        let parts = tiles.into_par_iter().map_init(|| Tile::new(self), part);
        // Added in order: the same bits on any number of threads.
        let parts: Vec<(f64, u64)> = parts.collect();
        parts.iter().fold((0.0, 0), |(s, c), part| (s + part.0, c + part.1))
    }

    /// The window along an axis of so many voxels. Along one there is none: a plane has no zeros before and behind it.
    fn along(&self, count: usize) -> &[f64] {
        if count == 1 { &[1.0] } else { self.weights }
    }

    /// The weights of the window around `center` with the positions in `0..count` they belong to.
    fn taps(&self, center: usize, count: usize) -> impl Iterator<Item = (f64, usize)> {
        let weights = self.along(count);
        let radius = weights.len() / 2;
        let first = radius.saturating_sub(center);
        let last = weights.len().min(count + radius - center);
        (first..last).map(move |k| (weights[k], center + k - radius))
    }
}

/// Lines of numbers that are as long, of each of the five products.
struct Lines {
    /// Of one line: the columns, and what fills the last lanes.
    stride: usize,
    count: usize,
    values: Vec<f64>,
}

impl Lines {
    fn new(count: usize, stride: usize) -> Self {
        Self { stride, count, values: vec![0.0; 5 * count * stride] }
    }

    fn line(&self, product: usize, line: usize) -> &[f64] {
        &self.values[(product * self.count + line) * self.stride..][..self.stride]
    }

    fn line_mut(&mut self, product: usize, line: usize) -> &mut [f64] {
        &mut self.values[(product * self.count + line) * self.stride..][..self.stride]
    }
}

/// A few rows, on their way along z.
struct Tile<'a> {
    windows: &'a Windows<'a>,
    rows: Range<usize>,
    /// A row of each product, with zeros where the window leaves the image.
    padded: Lines,
    /// The rows that the windows reach, summed along x.
    along_x: Lines,
    /// Planes summed along x and y: each at its number modulo the width of the window.
    ring: Vec<Lines>,
    /// Which planes they are.
    held: Vec<Option<usize>>,
    /// A row of means.
    means: Lines,
}

impl<'a> Tile<'a> {
    fn new(windows: &'a Windows<'a>) -> Self {
        let [nx, ny, nz] = windows.size;
        let [wx, wy, wz] = [nx, ny, nz].map(|count| windows.along(count).len());
        let stride = nx.next_multiple_of(LANES);
        Self {
            windows,
            rows: 0..0,
            padded: Lines::new(1, stride + wx - 1),
            along_x: Lines::new(ROWS + wy - 1, stride),
            ring: (0..wz).map(|_| Lines::new(ROWS, stride)).collect(),
            held: vec![None; wz],
            means: Lines::new(1, stride),
        }
    }

    /// Begins with other rows.
    fn begin(&mut self, rows: Range<usize>) {
        self.rows = rows;
        self.held.fill(None);
    }

    /// The means around the voxels of a row.
    fn row(&mut self, y: usize, z: usize) -> [&[f64]; 5] {
        let (windows, depth) = (self.windows, self.windows.size[2]);
        windows.taps(z, depth).for_each(|(_, plane)| self.hold(plane));
        let place = y - self.rows.start;
        for product in 0..5 {
            let line = |plane: usize| self.ring[plane % self.ring.len()].line(product, place);
            let terms = windows.taps(z, depth).map(|(weight, plane)| (weight, line(plane)));
            weighted_sum(terms, self.means.line_mut(product, 0));
        }
        [0, 1, 2, 3, 4].map(|product| self.means.line(product, 0))
    }

    /// Sums a plane along x and y, unless it is there.
    fn hold(&mut self, z: usize) {
        let place = z % self.ring.len();
        if self.held[place].replace(z) == Some(z) {
            return;
        }
        let windows = self.windows;
        let [_, ny, _] = windows.size;
        let reach = windows.along(ny).len() / 2;
        let first = self.rows.start.saturating_sub(reach);
        for y in first..(self.rows.end + reach).min(ny) {
            self.sum_along_x(z * ny + y, y - first);
        }
        let Self { rows, ring, along_x, .. } = self;
        for (line, y) in rows.clone().enumerate() {
            for product in 0..5 {
                let rows = windows.taps(y, ny).map(|(w, y)| (w, along_x.line(product, y - first)));
                weighted_sum(rows, ring[place].line_mut(product, line));
            }
        }
    }

    /// Sums the products of a row of the image.
    fn sum_along_x(&mut self, row: usize, line: usize) {
        let Windows { fixed, moved, size: [nx, ..], .. } = *self.windows;
        let weights = self.windows.along(nx);
        let [fixed, moved] = [fixed, moved].map(|image| &image[row * nx..][..nx]);
        let padded = self.padded.values.chunks_exact_mut(self.padded.stride);
        let mut inside = padded.map(|line| &mut line[weights.len() / 2..][..nx]);
        let [f, m, ff, mm, fm] = [(); 5].map(|()| inside.next().expect("a line of each product"));
        for x in 0..nx {
            let (a, b) = (f64::from(fixed[x]), f64::from(moved[x]));
            (f[x], m[x], ff[x], mm[x], fm[x]) = (a, b, a * a, b * b, a * b);
        }
        for k in 0..5 {
            let padded = self.padded.line(k, 0);
            let shifted = weights.iter().enumerate().map(|(k, &weight)| (weight, &padded[k..]));
            weighted_sum(shifted, self.along_x.line_mut(k, line));
        }
    }
}

/// `sum = w0 v0 + w1 v1 + ...`, for each of some lanes' numbers.
fn weighted_sum<'a>(terms: impl Iterator<Item = (f64, &'a [f64])>, sum: &mut [f64]) {
    let terms: Vec<(f64, &[f64])> = terms.collect();
    let (lanes, rest) = sum.as_chunks_mut::<LANES>();
    assert!(rest.is_empty(), "lines end with their lanes");
    for (place, sum) in lanes.iter_mut().enumerate() {
        let mut here = [0.0; LANES];
        for (weight, values) in &terms {
            let values: &[f64; LANES] =
                values[place * LANES..][..LANES].try_into().expect("so many lanes");
            for (here, value) in here.iter_mut().zip(values) {
                *here += weight * value;
            }
        }
        *sum = here;
    }
}
