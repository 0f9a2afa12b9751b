//! The descriptors on the CPU: row by row, in f64, several voxels at a time. Tasks are chunks of planes.
//!
//! `rows.rs` walks through the rows of a chunk, `terms.rs` has the formula, `adjoint.rs` passes slopes back.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;
use std::ops::Range;

use self::adjoint::to_image;
use self::rows::{CHUNK, Volume, walk};
use self::terms::{Block, LANES, Terms, block};
use super::{CHANNELS, MindCall, MindOps, MindStorage, Patch, descriptor_shape};
use ffdp_kit::real::{Real, by_dtype, elements, readable, tensor};

mod adjoint;
mod rows;
mod terms;

fn variance<T: Real>(image: &FlexTensor, patch: Patch) -> FlexTensor {
    let of_chunk = |volume: &Volume, chunk: usize| {
        let mut sums = [0.0; LANES];
        walk(
            [volume],
            chunk,
            #[inline(always)]
            |_, [distances]: &[Block; 1]| {
                let variance = Terms::new(distances).variance;
                for i in 0..LANES {
                    sums[i] += variance[i];
                }
            },
        );
        sums.iter().sum::<f64>()
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

/// Writes the twelve values of voxels of a chunk.
#[inline(always)]
fn write<T: Real>(part: &mut [&mut [T]], voxels: Range<usize>, values: &Block) {
    for (part, values) in part.iter_mut().zip(values) {
        let part = part[voxels.clone()].iter_mut();
        part.zip(values).for_each(|(part, value)| *part = T::of(*value));
    }
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
        let parts = by_chunks(output, len, volume.area());
        parts.into_par_iter().enumerate().for_each(|(chunk, mut part)| {
            walk(
                [volume],
                chunk,
                #[inline(always)]
                |voxels, [distances]: &[Block; 1]| {
                    let descriptors = Terms::new(distances).descriptor(bounds);
                    write(&mut part, volume.in_chunk(voxels, chunk), &descriptors);
                },
            );
        });
    }
    tensor(output, shape)
}

/// `dL/dD` of every voxel, channel after channel, over the voxels of a patch.
fn slopes<T: Real>(volume: &Volume, bounds: [f64; 2], grad: &[T]) -> Vec<T> {
    let len = volume.data.len();
    let mut slopes = vec![T::default(); CHANNELS * len];
    let per_voxel = 1.0 / volume.patch.voxels() as f64;
    let parts = by_chunks(&mut slopes, len, volume.area());
    parts.into_par_iter().enumerate().for_each(|(chunk, mut part)| {
        walk(
            [volume],
            chunk,
            #[inline(always)]
            |voxels: Range<usize>, [distances]: &[Block; 1]| {
                let terms = Terms::new(distances);
                let mut weighted = terms.descriptor(bounds);
                for (k, weighted) in weighted.iter_mut().enumerate() {
                    let grad = grad[k * len..][voxels.clone()].iter();
                    weighted.iter_mut().zip(grad).for_each(|(s, g)| *s *= per_voxel * g.wide());
                }
                let slopes = terms.pull_back(&weighted, bounds);
                write(&mut part, volume.in_chunk(voxels, chunk), &slopes);
            },
        );
    });
    slopes
}

/// One of two images that are compared.
#[derive(Clone, Copy)]
struct Side<'a> {
    volume: &'a Volume,
    bounds: [f64; 2],
}

/// `sum u |S - R|^2 / 12` over a chunk of planes; writes the slopes of those whose part has channels.
fn compare_chunk<T: Real>(
    sides: [Side; 2],
    weights: Option<&[T]>,
    chunk: usize,
    mut parts: [Vec<&mut [T]>; 2],
) -> f64 {
    let volume = sides[0].volume;
    let per_voxel = 1.0 / volume.patch.voxels() as f64;
    let mut sums = [0.0; LANES];
    walk(
        sides.map(|side| side.volume),
        chunk,
        #[inline(always)]
        |voxels: Range<usize>, distances: &[Block; 2]| {
            let mut weight = [1.0 / CHANNELS as f64; LANES];
            if let Some(weights) = weights {
                let weights = weights[voxels.clone()].iter();
                weight.iter_mut().zip(weights).for_each(|(weight, u)| *weight *= u.wide());
            }
            let terms = [Terms::new(&distances[0]), Terms::new(&distances[1])];
            let descriptors =
                [terms[0].descriptor(sides[0].bounds), terms[1].descriptor(sides[1].bounds)];
            // Beyond a row both are 1.
            let off = block(|k, i| descriptors[0][k][i] - descriptors[1][k][i]);
            for off in &off {
                for i in 0..LANES {
                    sums[i] += weight[i] * off[i] * off[i];
                }
            }
            let voxels = volume.in_chunk(voxels, chunk);
            for (side, part) in parts.iter_mut().enumerate().filter(|(_, part)| !part.is_empty()) {
                let factor = [2.0, -2.0][side] * per_voxel;
                let weighted =
                    block(|k, i| factor * weight[i] * off[k][i] * descriptors[side][k][i]);
                write(part, voxels.clone(), &terms[side].pull_back(&weighted, sides[side].bounds));
            }
        },
    );
    sums.iter().sum()
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
