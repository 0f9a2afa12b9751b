//! One walk along z: the distances of a plane from the sums of those within a patch, and what is made of them.

use std::collections::VecDeque;
use std::ops::Range;

use burn::backend::flex::FlexTensor;

use super::super::{CHANNELS, NEIGHBOURS, PAIRS, Patch};
use ffdp_kit::real::{Real, elements};

/// Planes of a task: each needs the sums of `2 r` more.
pub(super) const CHUNK: usize = 16;

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

    /// `I(q + d e)` for every `q` of plane `z`, `e` each of the six neighbours.
    pub(super) fn neighbours(&self, z: usize) -> [Vec<f64>; 6] {
        let [w, h, d] = self.size;
        NEIGHBOURS.map(|(axis, sign)| {
            let shift = |a: usize| if a == axis { sign * self.patch.dilation as isize } else { 0 };
            let plane = &self.data[clamped(z, shift(2), d) * self.area()..][..self.area()];
            let mut values = Vec::with_capacity(self.area());
            for y in 0..h {
                let row = &plane[clamped(y, shift(1), h) * w..][..w];
                match shift(0) {
                    0 => values.extend_from_slice(row),
                    shift => values.extend((0..w).map(|x| row[clamped(x, shift, w)])),
                }
            }
            values
        })
    }

    /// For every channel, the squared differences of plane `z`, summed over a patch's extent along x and y.
    fn plane_sums(&self, z: usize) -> Vec<Vec<f64>> {
        let [w, h, _] = self.size;
        let r = self.patch.radius;
        let values = self.neighbours(z);
        let mut line = vec![0.0; w + 2 * r];
        let mut along_x = vec![0.0; self.area()];
        PAIRS
            .iter()
            .map(|&[a, b]| {
                let squares = values[a].iter().zip(&values[b]).map(|(a, b)| (a - b) * (a - b));
                let squares: Vec<f64> = squares.collect();
                for (row, sums) in squares.chunks(w).zip(along_x.chunks_mut(w)) {
                    line[..r].fill(row[0]);
                    line[r..r + w].copy_from_slice(row);
                    line[r + w..].fill(row[w - 1]);
                    sums.copy_from_slice(&line[..w]);
                    for o in 1..=2 * r {
                        sums.iter_mut().zip(&line[o..]).for_each(|(sum, value)| *sum += value);
                    }
                }
                let mut sums = vec![0.0; self.area()];
                for (y, sums) in sums.chunks_mut(w).enumerate() {
                    for o in -(r as isize)..=r as isize {
                        let row = &along_x[clamped(y, o, h) * w..][..w];
                        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                    }
                }
                sums
            })
            .collect()
    }
}

/// A walk along z, which keeps the sums of the planes within a patch.
pub(super) struct March<'a> {
    volume: &'a Volume,
    ring: VecDeque<(usize, Vec<Vec<f64>>)>,
    distances: Vec<Vec<f64>>,
}

impl<'a> March<'a> {
    pub(super) fn new(volume: &'a Volume) -> Self {
        let distances = vec![vec![0.0; volume.area()]; CHANNELS];
        Self { volume, ring: VecDeque::new(), distances }
    }

    /// The distances `D` of plane `z`, channel after channel.
    pub(super) fn distances(&mut self, z: usize) -> &[Vec<f64>] {
        let Self { volume, ring, distances } = self;
        let r = volume.patch.radius as isize;
        let per_voxel = 1.0 / volume.patch.voxels() as f64;
        let needed: Vec<usize> = (-r..=r).map(|o| clamped(z, o, volume.size[2])).collect();
        ring.retain(|(plane, _)| needed.contains(plane));
        for plane in &needed {
            if ring.iter().all(|(there, _)| there != plane) {
                ring.push_back((*plane, volume.plane_sums(*plane)));
            }
        }
        for (k, distances) in distances.iter_mut().enumerate() {
            distances.fill(0.0);
            for plane in &needed {
                let sums = ring.iter().find(|(there, _)| there == plane);
                let sums = &sums.expect("it was just put there").1[k];
                distances.iter_mut().zip(sums).for_each(|(d, sum)| *d += sum * per_voxel);
            }
        }
        distances
    }
}

/// What is made of the twelve distances of a voxel.
pub(super) struct Terms {
    /// `E`.
    excess: [f64; CHANNELS],
    /// The channel of the least distance.
    least: usize,
    /// `V`.
    pub(super) variance: f64,
}

impl Terms {
    pub(super) fn new(distances: &[Vec<f64>], voxel: usize) -> Self {
        let at: [f64; CHANNELS] = std::array::from_fn(|k| distances[k][voxel]);
        let least = (1..CHANNELS).fold(0, |least, k| if at[k] < at[least] { k } else { least });
        let excess = at.map(|distance| distance - at[least]);
        let variance = excess.iter().sum::<f64>() / CHANNELS as f64;
        Self { excess, least, variance }
    }

    /// `S`.
    pub(super) fn descriptor(&self, [low, high]: [f64; 2]) -> [f64; CHANNELS] {
        let variance = self.variance.clamp(low, high);
        self.excess.map(|excess| (-excess / variance).exp())
    }

    /// `dL/dD` of `g S`.
    pub(super) fn pull_back(
        &self,
        weighted: [f64; CHANNELS],
        [low, high]: [f64; 2],
    ) -> [f64; CHANNELS] {
        let variance = self.variance.clamp(low, high);
        let to_variance = match (low..=high).contains(&self.variance) {
            true => (0..CHANNELS).map(|k| weighted[k] * self.excess[k]).sum::<f64>(),
            false => 0.0,
        } / (variance * variance * CHANNELS as f64);
        let mut slope = weighted.map(|weighted| to_variance - weighted / variance);
        slope[self.least] -= slope.iter().sum::<f64>();
        slope
    }
}
