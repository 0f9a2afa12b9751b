//! The descriptors on the CPU: plane by plane, in f64. Tasks are chunks of planes.

use std::collections::VecDeque;
use std::ops::Range;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{CHANNELS, MindOps, MindStorage, NEIGHBOURS, PAIRS, Patch, descriptor_shape};
use ffdp_kit::real::{Real, by_dtype, elements, readable, tensor};

/// Planes of a task: each needs the sums of `2 r` more.
const CHUNK: usize = 16;

/// `position + offset` on an axis of `len` voxels.
fn clamped(position: usize, offset: isize, len: usize) -> usize {
    position.saturating_add_signed(offset).min(len - 1)
}

/// One image, widened, and how it is looked at.
struct Volume {
    data: Vec<f64>,
    /// Extents along x, y, z.
    size: [usize; 3],
    patch: Patch,
}

impl Volume {
    /// The images of a batch.
    fn batch<T: Real>(image: &FlexTensor, patch: Patch) -> Vec<Self> {
        let shape = image.layout().shape();
        let size = [shape[4], shape[3], shape[2]];
        let images = elements::<T>(image).chunks(size.iter().product());
        let widened = |data: &[T]| data.iter().map(|value| value.wide()).collect();
        images.map(|data| Self { data: widened(data), size, patch }).collect()
    }

    fn area(&self) -> usize {
        self.size[0] * self.size[1]
    }

    fn chunks(&self) -> usize {
        self.size[2].div_ceil(CHUNK)
    }

    fn planes_of(&self, chunk: usize) -> Range<usize> {
        chunk * CHUNK..((chunk + 1) * CHUNK).min(self.size[2])
    }

    /// `I(q + d e)` for every `q` of plane `z`, `e` each of the six neighbours.
    fn neighbours(&self, z: usize) -> [Vec<f64>; 6] {
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

    /// Visits `planes` in order, each with its distances `D`, channel after channel.
    fn for_planes(&self, planes: Range<usize>, mut visit: impl FnMut(usize, &[Vec<f64>])) {
        let r = self.patch.radius as isize;
        let mut ring: VecDeque<(usize, Vec<Vec<f64>>)> = VecDeque::new();
        let mut distances = vec![vec![0.0; self.area()]; CHANNELS];
        let per_voxel = 1.0 / self.patch.voxels() as f64;
        for z in planes {
            let needed: Vec<usize> = (-r..=r).map(|o| clamped(z, o, self.size[2])).collect();
            ring.retain(|(plane, _)| needed.contains(plane));
            for plane in &needed {
                if ring.iter().all(|(there, _)| there != plane) {
                    ring.push_back((*plane, self.plane_sums(*plane)));
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
            visit(z, &distances);
        }
    }
}

/// What is made of the twelve distances of a voxel.
struct Terms {
    /// `E`.
    excess: [f64; CHANNELS],
    /// The channel of the least distance.
    least: usize,
    /// `V`.
    variance: f64,
}

impl Terms {
    fn new(distances: &[Vec<f64>], voxel: usize) -> Self {
        let at: [f64; CHANNELS] = std::array::from_fn(|k| distances[k][voxel]);
        let least = (1..CHANNELS).fold(0, |least, k| if at[k] < at[least] { k } else { least });
        let excess = at.map(|distance| distance - at[least]);
        let variance = excess.iter().sum::<f64>() / CHANNELS as f64;
        Self { excess, least, variance }
    }

    /// `S`.
    fn descriptor(&self, [low, high]: [f64; 2]) -> [f64; CHANNELS] {
        let variance = self.variance.clamp(low, high);
        self.excess.map(|excess| (-excess / variance).exp())
    }

    /// `dL/dD` of `dL/dS`.
    fn pull_back(&self, grad: [f64; CHANNELS], [low, high]: [f64; 2]) -> [f64; CHANNELS] {
        let variance = self.variance.clamp(low, high);
        let descriptor = self.descriptor([low, high]);
        let weighted: [f64; CHANNELS] = std::array::from_fn(|k| grad[k] * descriptor[k]);
        let to_variance = match (low..=high).contains(&self.variance) {
            true => (0..CHANNELS).map(|k| weighted[k] * self.excess[k]).sum::<f64>(),
            false => 0.0,
        } / (variance * variance * CHANNELS as f64);
        let mut slope = weighted.map(|weighted| to_variance - weighted / variance);
        slope[self.least] -= slope.iter().sum::<f64>();
        slope
    }
}

fn variance<T: Real>(image: &FlexTensor, patch: Patch) -> FlexTensor {
    let of_chunk = |volume: &Volume, chunk: usize| {
        let mut sum = 0.0;
        volume.for_planes(volume.planes_of(chunk), |_, distances| {
            sum += (0..volume.area()).map(|p| Terms::new(distances, p).variance).sum::<f64>();
        });
        sum
    };
    let of = |volume: &Volume| {
        let sums = (0..volume.chunks()).into_par_iter().map(|chunk| of_chunk(volume, chunk));
        // In order, so that the sum does not depend on the threads.
        T::of(sums.collect::<Vec<f64>>().iter().sum())
    };
    let volumes = Volume::batch::<T>(image, patch);
    let sums: Vec<T> = volumes.iter().map(of).collect();
    let images = sums.len();
    tensor(sums, [images])
}

/// `low`, `high` of each image.
fn pairs<T: Real>(bounds: &FlexTensor) -> Vec<[f64; 2]> {
    elements::<T>(bounds).chunks(2).map(|pair| [pair[0].wide(), pair[1].wide()]).collect()
}

/// The parts of all channels that belong to each chunk of planes.
fn by_chunks<T>(channels: &mut [T], len: usize, area: usize) -> Vec<Vec<&mut [T]>> {
    let chunks = len.div_ceil(CHUNK * area);
    let mut parts: Vec<Vec<&mut [T]>> = (0..chunks).map(|_| Vec::new()).collect();
    for channel in channels.chunks_mut(len) {
        let slices = channel.chunks_mut(CHUNK * area);
        parts.iter_mut().zip(slices).for_each(|(part, slice)| part.push(slice));
    }
    parts
}

fn describe<T: Real>(image: &FlexTensor, bounds: &FlexTensor, patch: Patch) -> FlexTensor {
    let shape = descriptor_shape(image.layout().shape());
    let mut output = vec![T::default(); shape.num_elements()];
    let volumes = Volume::batch::<T>(image, patch);
    let bounds = pairs::<T>(bounds);
    let len = volumes[0].data.len();
    for ((volume, bounds), output) in
        volumes.iter().zip(bounds).zip(output.chunks_mut(CHANNELS * len))
    {
        let area = volume.area();
        by_chunks(output, len, area).into_par_iter().enumerate().for_each(|(chunk, mut part)| {
            let planes = volume.planes_of(chunk);
            let first = planes.start;
            volume.for_planes(planes, |z, distances| {
                for p in 0..area {
                    let values = Terms::new(distances, p).descriptor(bounds);
                    let at = (z - first) * area + p;
                    part.iter_mut().zip(values).for_each(|(part, value)| part[at] = T::of(value));
                }
            });
        });
    }
    tensor(output, shape)
}

/// How often the patch of voxel `p` of an axis takes voxel `q`.
fn times(p: usize, q: usize, len: usize, radius: usize) -> f64 {
    let offsets = -(radius as isize)..=radius as isize;
    offsets.filter(|o| clamped(p, *o, len) == q).count() as f64
}

/// `dL/dD` of every voxel, channel after channel, over the voxels of a patch.
fn slopes<T: Real>(volume: &Volume, bounds: [f64; 2], grad: &[T]) -> Vec<T> {
    let (len, area) = (volume.data.len(), volume.area());
    let mut slopes = vec![T::default(); CHANNELS * len];
    let per_voxel = 1.0 / volume.patch.voxels() as f64;
    by_chunks(&mut slopes, len, area).into_par_iter().enumerate().for_each(|(chunk, mut part)| {
        let planes = volume.planes_of(chunk);
        let first = planes.start;
        volume.for_planes(planes, |z, distances| {
            for p in 0..area {
                let grad = std::array::from_fn(|k| grad[k * len + z * area + p].wide());
                let slope = Terms::new(distances, p).pull_back(grad, bounds);
                let at = (z - first) * area + p;
                for (part, slope) in part.iter_mut().zip(slope) {
                    part[at] = T::of(slope * per_voxel);
                }
            }
        });
    });
    slopes
}

/// The adjoint of the sum over patches, of plane `z` of one channel.
fn adjoint_sum<T: Real>(volume: &Volume, slopes: &[T], z: usize) -> Vec<f64> {
    let [w, h, d] = volume.size;
    let (area, r) = (volume.area(), volume.patch.radius);
    let mut along_z = vec![0.0; area];
    for p in z.saturating_sub(r)..(z + r + 1).min(d) {
        let times = times(p, z, d, r);
        let plane = &slopes[p * area..][..area];
        along_z.iter_mut().zip(plane).for_each(|(sum, slope)| *sum += times * slope.wide());
    }
    let mut along_y = vec![0.0; area];
    for (y, row) in along_z.chunks(w).enumerate() {
        for o in -(r as isize)..=r as isize {
            let sums = &mut along_y[clamped(y, o, h) * w..][..w];
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
    }
    let mut sums = vec![0.0; area];
    for (row, sums) in along_y.chunks(w).zip(sums.chunks_mut(w)) {
        for (x, value) in row.iter().enumerate() {
            (-(r as isize)..=r as isize).for_each(|o| sums[clamped(x, o, w)] += value);
        }
    }
    sums
}

/// What the voxels of plane `z` pass to each of their six neighbours.
fn passed<T: Real>(volume: &Volume, slopes: &[T], z: usize) -> [Vec<f64>; 6] {
    let values = volume.neighbours(z);
    let mut passed: [Vec<f64>; 6] = std::array::from_fn(|_| vec![0.0; volume.area()]);
    for ([a, b], slopes) in PAIRS.into_iter().zip(slopes.chunks(volume.data.len())) {
        for (p, h) in adjoint_sum(volume, slopes, z).into_iter().enumerate() {
            let slope = 2.0 * h * (values[a][p] - values[b][p]);
            passed[a][p] += slope;
            passed[b][p] -= slope;
        }
    }
    passed
}

/// What plane `z` is passed by all.
fn collected(volume: &Volume, passed: &[[Vec<f64>; 6]], z: usize) -> Vec<f64> {
    let ([w, h, d], area) = (volume.size, volume.area());
    let dilation = volume.patch.dilation;
    let mut sums = vec![0.0; area];
    for (n, (axis, sign)) in NEIGHBOURS.into_iter().enumerate() {
        let shift = sign * dilation as isize;
        if axis < 2 {
            for (p, value) in passed[z][n].iter().enumerate() {
                let (x, y) = (p % w, p / w);
                let to = match axis {
                    0 => y * w + clamped(x, shift, w),
                    _ => clamped(y, shift, h) * w + x,
                };
                sums[to] += value;
            }
            continue;
        }
        let first = z.saturating_sub(dilation);
        let near = &passed[first..(z + dilation + 1).min(d)];
        for (q, plane) in (first..).zip(near) {
            if clamped(q, shift, d) == z {
                sums.iter_mut().zip(&plane[n]).for_each(|(sum, value)| *sum += value);
            }
        }
    }
    sums
}

fn backward<T: Real>(
    image: &FlexTensor,
    bounds: &FlexTensor,
    grad: &FlexTensor,
    patch: Patch,
) -> FlexTensor {
    let volumes = Volume::batch::<T>(image, patch);
    let (len, depth) = (volumes[0].data.len(), volumes[0].size[2]);
    let grads = elements::<T>(grad).chunks(CHANNELS * len);
    let mut output = Vec::with_capacity(volumes.len() * len);
    for ((volume, bounds), grad) in volumes.iter().zip(pairs::<T>(bounds)).zip(grads) {
        let slopes = slopes(volume, bounds, grad);
        let passed = (0..depth).into_par_iter().map(|z| passed(volume, &slopes, z));
        let passed: Vec<[Vec<f64>; 6]> = passed.collect();
        let planes = (0..depth).into_par_iter().map(|z| collected(volume, &passed, z));
        output.extend(planes.collect::<Vec<_>>().into_iter().flatten().map(T::of));
    }
    tensor(output, image.layout().shape().clone())
}

impl MindOps for Flex {
    fn mind_variance_3d(image: FloatTensor<Self>, patch: Patch) -> FloatTensor<Self> {
        let image = readable(image);
        by_dtype!("mind", image.dtype(), variance(&image, patch))
    }

    fn mind_3d(
        image: FloatTensor<Self>,
        bounds: FloatTensor<Self>,
        patch: Patch,
        storage: MindStorage,
    ) -> FloatTensor<Self> {
        let (image, bounds) = (readable(image), bounds.to_contiguous());
        let values = by_dtype!("mind", image.dtype(), describe(&image, &bounds, patch));
        let dtype = storage.dtype(values.dtype());
        if dtype == values.dtype() { values } else { Flex::float_cast(values, dtype.into()) }
    }

    fn mind_3d_backward(
        image: FloatTensor<Self>,
        bounds: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        patch: Patch,
    ) -> FloatTensor<Self> {
        let (image, bounds, grad) = (readable(image), bounds.to_contiguous(), grad.to_contiguous());
        by_dtype!("mind", image.dtype(), backward(&image, &bounds, &grad, patch))
    }
}
