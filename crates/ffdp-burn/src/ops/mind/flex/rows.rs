//! A walk through the rows of an image: distances from the squared differences of neighbours, summed along z, x, y.

use std::ops::Range;

use burn::backend::flex::FlexTensor;

use super::super::{CHANNELS, PAIRS, Patch};
use super::terms::{Block, LANES};
use ffdp_kit::real::{Real, elements};
use ffdp_kit::window::{vectorized, weigh};

/// Planes of a task, which begins with rows of its own; along z nothing is kept.
pub(super) const CHUNK: usize = 4;

/// `position + offset` on an axis of `len` voxels.
pub(super) fn clamped(position: usize, offset: isize, len: usize) -> usize {
    position.saturating_add_signed(offset).min(len - 1)
}

/// One image, widened, and how it is looked at.
pub(super) struct Volume {
    pub(super) data: Vec<f64>,
    /// Extents along x, y, z.
    pub(super) size: [usize; 3],
    pub(super) patch: Patch,
}

impl Volume {
    /// The images of a batch.
    pub(super) fn batch<T: Real>(image: &FlexTensor, patch: Patch) -> Vec<Self> {
        let shape = image.layout().shape();
        let size = [shape[4], shape[3], shape[2]];
        let images = elements::<T>(image).chunks(size.iter().product());
        let widened = |data: &[T]| data.iter().map(|value| value.wide()).collect();
        images.map(|data| Self { data: widened(data), size, patch }).collect()
    }

    pub(super) fn area(&self) -> usize {
        self.size[0] * self.size[1]
    }

    pub(super) fn chunks(&self) -> usize {
        self.size[2].div_ceil(CHUNK)
    }

    pub(super) fn planes_of(&self, chunk: usize) -> Range<usize> {
        chunk * CHUNK..((chunk + 1) * CHUNK).min(self.size[2])
    }

    /// Voxels of the image, counted from the first one of their chunk.
    pub(super) fn in_chunk(&self, voxels: Range<usize>, chunk: usize) -> Range<usize> {
        let first = chunk * CHUNK * self.area();
        voxels.start - first..voxels.end - first
    }

    /// `I(q + d e)` for the `q` of row `y` of plane `z`, `e` each of [`NEIGHBOURS`](super::super::NEIGHBOURS). Those
    /// along x are written to `aside`.
    pub(super) fn neighbours<'a>(
        &'a self,
        y: usize,
        z: usize,
        aside: &'a mut [Vec<f64>; 2],
    ) -> [&'a [f64]; 6] {
        let [w, h, d] = self.size;
        let row = |y: usize, z: usize| &self.data[(z * h + y) * w..][..w];
        let (own, near) = (row(y, z), self.patch.dilation.min(w));
        let [right, left] = aside;
        right[..w - near].copy_from_slice(&own[near..]);
        right[w - near..].fill(own[w - 1]);
        left[near..].copy_from_slice(&own[..w - near]);
        left[..near].fill(own[0]);
        let step = self.patch.dilation as isize;
        let [front, back] = [step, -step].map(|step| row(clamped(y, step, h), z));
        let [above, below] = [step, -step].map(|step| row(y, clamped(z, step, d)));
        [right, left, front, back, above, below]
    }

    /// Memory for neighbours along x.
    pub(super) fn aside(&self) -> [Vec<f64>; 2] {
        [vec![0.0; self.size[0]], vec![0.0; self.size[0]]]
    }
}

/// A walk through the rows of a plane, which keeps those within a patch.
struct March<'a> {
    volume: &'a Volume,
    aside: [Vec<f64>; 2],
    line: Vec<f64>,
    /// One for every voxel along an axis of a patch.
    ones: Vec<f64>,
    /// For every channel as many rows as a patch has, summed over its extent along z and x; row `y` in place
    /// `y % (2 r + 1)`. Each begins where a block does; beyond it lie zeros.
    sums: Vec<f64>,
    /// The places of the rows that the present one needs, in their order.
    needed: Vec<usize>,
}

impl<'a> March<'a> {
    fn new(volume: &'a Volume) -> Self {
        let (w, width) = (volume.size[0], 2 * volume.patch.radius + 1);
        Self {
            volume,
            aside: volume.aside(),
            line: vec![0.0; w + width - 1],
            ones: vec![1.0; width],
            sums: vec![0.0; CHANNELS * width * w.next_multiple_of(LANES)],
            needed: Vec::with_capacity(width),
        }
    }

    /// Where the sums of channel `k` of the row in `place` begin.
    fn start(&self, k: usize, place: usize) -> usize {
        (k * self.ones.len() + place) * self.volume.size[0].next_multiple_of(LANES)
    }

    /// Moves to row `y` of plane `z`: to the first one, or from the one before.
    #[inline(always)]
    fn go_to(&mut self, y: usize, z: usize) {
        let (h, r, width) = (self.volume.size[1], self.volume.patch.radius, self.ones.len());
        let first = if y == 0 { 0 } else { y + r };
        (first..h.min(y + r + 1)).for_each(|row| self.sum_row(row, z));
        let rows = -(r as isize)..=r as isize;
        self.needed.clear();
        self.needed.extend(rows.map(|o| clamped(y, o, h) % width));
    }

    /// The squared differences of a row, summed along z and x.
    #[inline(always)]
    fn sum_row(&mut self, y: usize, z: usize) {
        let ([w, _, d], r) = (self.volume.size, self.volume.patch.radius);
        let starts: [usize; CHANNELS] = std::array::from_fn(|k| self.start(k, y % self.ones.len()));
        let Self { volume, aside, line, ones, sums, .. } = self;
        starts.iter().for_each(|start| sums[*start..][..w].fill(0.0));
        for o in -(r as isize)..=r as isize {
            let values = volume.neighbours(y, clamped(z, o, d), aside);
            for ([a, b], start) in PAIRS.into_iter().zip(starts) {
                let values = values[a].iter().zip(values[b]);
                let sums = sums[start..][..w].iter_mut();
                sums.zip(values).for_each(|(sum, (a, b))| *sum += (a - b) * (a - b));
            }
        }
        for start in starts {
            let sums = &mut sums[start..][..w];
            line[..r].fill(sums[0]);
            line[r..r + w].copy_from_slice(sums);
            line[r + w..].fill(sums[w - 1]);
            weigh(ones, |o| &line[o..][..w], sums);
        }
    }

    /// The distances `D` of voxels of the row, from voxel `first` on.
    #[inline(always)]
    fn distances(&self, first: usize, distances: &mut Block) {
        let per_voxel = 1.0 / self.volume.patch.voxels() as f64;
        for (k, distances) in distances.iter_mut().enumerate() {
            distances.fill(0.0);
            for place in &self.needed {
                let sums = &self.sums[self.start(k, *place) + first..][..LANES];
                for i in 0..LANES {
                    distances[i] += sums[i] * per_voxel;
                }
            }
        }
    }
}

/// Walks through a chunk of planes of images of one size, row by row: `f` is given some voxels of a row and their
/// distances in each image, which beyond the row are 0. It is compiled for the vectors of the processor where it is
/// `#[inline(always)]`.
pub(super) fn walk<const N: usize>(
    volumes: [&Volume; N],
    chunk: usize,
    mut f: impl FnMut(Range<usize>, &[Block; N]),
) {
    let [w, h, _] = volumes[0].size;
    let mut marches = volumes.map(March::new);
    let mut distances = [[[0.0; LANES]; CHANNELS]; N];
    vectorized(
        #[inline(always)]
        || {
            for (z, y) in volumes[0].planes_of(chunk).flat_map(|z| (0..h).map(move |y| (z, y))) {
                marches.iter_mut().for_each(|march| march.go_to(y, z));
                let row = (z * h + y) * w;
                for x in (0..w).step_by(LANES) {
                    for (march, distances) in marches.iter().zip(&mut distances) {
                        march.distances(x, distances);
                    }
                    f(row + x..row + w.min(x + LANES), &distances);
                }
            }
        },
    );
}
