//! The descriptors on the CPU: plane by plane, in f64. Tasks are chunks of planes. `march.rs` walks through a chunk.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use self::march::{CHUNK, March, Terms, Volume, clamped};
use super::{CHANNELS, MindCall, MindOps, MindStorage, NEIGHBOURS, PAIRS, Patch, descriptor_shape};
use ffdp_kit::real::{Real, by_dtype, elements, readable, tensor};

mod march;

fn variance<T: Real>(image: &FlexTensor, patch: Patch) -> FlexTensor {
    let of_chunk = |volume: &Volume, chunk: usize| {
        let mut march = March::new(volume);
        let of_plane = |z: usize| {
            let distances = march.distances(z);
            (0..volume.area()).map(|p| Terms::new(distances, p).variance).sum::<f64>()
        };
        volume.planes_of(chunk).map(of_plane).sum()
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

/// Writes the twelve values of a voxel, `at` in a chunk.
fn write<T: Real>(part: &mut [&mut [T]], at: usize, values: [f64; CHANNELS]) {
    part.iter_mut().zip(values).for_each(|(part, value)| part[at] = T::of(value));
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
            let mut march = March::new(volume);
            for (i, z) in volume.planes_of(chunk).enumerate() {
                let distances = march.distances(z);
                for p in 0..area {
                    let values = Terms::new(distances, p).descriptor(bounds);
                    write(&mut part, i * area + p, values);
                }
            }
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
        let mut march = March::new(volume);
        for (i, z) in volume.planes_of(chunk).enumerate() {
            let distances = march.distances(z);
            for p in 0..area {
                let terms = Terms::new(distances, p);
                let descriptor = terms.descriptor(bounds);
                let grad = |k: usize| grad[k * len + z * area + p].wide();
                let weighted = std::array::from_fn(|k| grad(k) * descriptor[k]);
                let slope = terms.pull_back(weighted, bounds);
                write(&mut part, i * area + p, slope.map(|slope| slope * per_voxel));
            }
        }
    });
    slopes
}

/// One of two images that are compared.
#[derive(Clone, Copy)]
struct Side<'a> {
    volume: &'a Volume,
    bounds: [f64; 2],
}

/// `sum u |S - R|^2 / 12` over a chunk of planes, both images marching; writes the slopes of those whose part has
/// channels.
fn compare_chunk<T: Real>(
    sides: [Side; 2],
    weights: Option<&[T]>,
    chunk: usize,
    mut parts: [Vec<&mut [T]>; 2],
) -> f64 {
    let volume = sides[0].volume;
    let (area, per_voxel) = (volume.area(), 1.0 / volume.patch.voxels() as f64);
    let mut marches = sides.map(|side| March::new(side.volume));
    let mut sum = 0.0;
    for (i, z) in volume.planes_of(chunk).enumerate() {
        let distances = marches.each_mut().map(|march| march.distances(z));
        for p in 0..area {
            let weight = weights.map_or(1.0, |weights| weights[z * area + p].wide());
            let weight = weight / CHANNELS as f64;
            let terms = distances.map(|distances| Terms::new(distances, p));
            let descriptors = [0, 1].map(|side| terms[side].descriptor(sides[side].bounds));
            let squares = descriptors[0].iter().zip(&descriptors[1]).map(|(s, r)| (s - r).powi(2));
            sum += weight * squares.sum::<f64>();
            for (side, part) in parts.iter_mut().enumerate().filter(|(_, part)| !part.is_empty()) {
                let [own, other] = [descriptors[side], descriptors[1 - side]];
                let weighted = std::array::from_fn(|k| 2.0 * weight * (own[k] - other[k]) * own[k]);
                let slope = terms[side].pull_back(weighted, sides[side].bounds);
                write(part, i * area + p, slope.map(|slope| slope * per_voxel));
            }
        }
    }
    sum
}

/// `sum u |S - R|^2 / 12` of two images, and of those that need it `dL/dD` as [`slopes`] gives it.
fn compare<T: Real>(
    sides: [Side; 2],
    weights: Option<&[T]>,
    needs: [bool; 2],
) -> (f64, [Vec<T>; 2]) {
    let (len, area) = (sides[0].volume.data.len(), sides[0].volume.area());
    let mut slopes = needs.map(|needed| vec![T::default(); usize::from(needed) * CHANNELS * len]);
    let [moved, fixed] = slopes.each_mut().map(|slopes| by_chunks(slopes, len, area));
    let parts: Vec<_> = moved.into_iter().zip(fixed).collect();
    let sums = parts
        .into_par_iter()
        .enumerate()
        .map(|(chunk, (moved, fixed))| compare_chunk(sides, weights, chunk, [moved, fixed]));
    // In order, so that the sum does not depend on the threads.
    let sum = sums.collect::<Vec<f64>>().iter().sum();
    (sum, slopes)
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

/// The gradient of the image from the slopes of its distances.
fn to_image<T: Real>(volume: &Volume, slopes: &[T]) -> Vec<T> {
    let planes = 0..volume.size[2];
    let passed = planes.clone().into_par_iter().map(|z| passed(volume, slopes, z));
    let passed: Vec<[Vec<f64>; 6]> = passed.collect();
    let collected = planes.into_par_iter().map(|z| collected(volume, &passed, z));
    collected.collect::<Vec<_>>().into_iter().flatten().map(T::of).collect()
}

fn backward<T: Real>(
    image: &FlexTensor,
    bounds: &FlexTensor,
    grad: &FlexTensor,
    patch: Patch,
) -> FlexTensor {
    let volumes = Volume::batch::<T>(image, patch);
    let len = volumes[0].data.len();
    let grads = elements::<T>(grad).chunks(CHANNELS * len);
    let mut output = Vec::with_capacity(volumes.len() * len);
    for ((volume, bounds), grad) in volumes.iter().zip(pairs::<T>(bounds)).zip(grads) {
        output.extend(to_image(volume, &slopes(volume, bounds, grad)));
    }
    tensor(output, image.layout().shape().clone())
}

/// The sum, and the gradients of both images; a placeholder where `needs` is false.
fn difference<T: Real>(
    images: &[FlexTensor; 2],
    bounds: &[FlexTensor; 2],
    weights: Option<&FlexTensor>,
    patch: Patch,
    needs: [bool; 2],
) -> [FlexTensor; 3] {
    let volumes = images.each_ref().map(|image| Volume::batch::<T>(image, patch));
    let bounds = bounds.each_ref().map(pairs::<T>);
    let len = volumes[0][0].data.len();
    let mut sum = 0.0;
    let mut gradients = [Vec::new(), Vec::new()];
    for n in 0..volumes[0].len() {
        let sides = [0, 1].map(|i| Side { volume: &volumes[i][n], bounds: bounds[i][n] });
        let weights = weights.map(|weights| &elements::<T>(weights)[n * len..][..len]);
        let (of_images, slopes) = compare(sides, weights, needs);
        sum += of_images;
        for i in (0..2).filter(|i| needs[*i]) {
            gradients[i].extend(to_image(sides[i].volume, &slopes[i]));
        }
    }
    let number = |value| tensor(vec![T::of(value)], [1]);
    let [to_moved, to_fixed] = gradients.map(|gradient| match gradient.is_empty() {
        true => number(0.0),
        false => tensor(gradient, images[0].layout().shape().clone()),
    });
    [number(sum), to_moved, to_fixed]
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

    fn mind_difference_3d_with_gradient(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        moved_bounds: FloatTensor<Self>,
        fixed_bounds: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: MindCall,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let images = [moved, fixed].map(readable);
        let bounds = [moved_bounds, fixed_bounds].map(|bounds| bounds.to_contiguous());
        let weights = call.weighted.then(|| readable(weights));
        let (weights, patch) = (weights.as_ref(), call.patch);
        let dtype = images[0].dtype();
        let [sum, to_moved, to_fixed] =
            by_dtype!("mind", dtype, difference(&images, &bounds, weights, patch, needs));
        (sum, to_moved, to_fixed)
    }
}
