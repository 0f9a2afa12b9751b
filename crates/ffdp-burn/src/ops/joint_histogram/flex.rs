//! The joint histogram on the CPU: rayon over blocks of voxels, a table of f64 each.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::kernel::{MOST_TAPS, Taps, bin, clamped, with_taps};
use super::{Binning, HistogramMode, JointHistogramOps, ParzenKernel};
use ffdp_kit::real::{Real, by_dtype, elements, readable, tensor};

/// Blocks of a volume, at most: bounds the tables in flight. Their number does not depend on the
/// threads, nor does the result.
const BLOCKS: usize = 64;
/// Voxels of a block, at least.
const BLOCK: usize = 1 << 14;

fn block(voxels: usize) -> usize {
    voxels.div_ceil(BLOCKS).max(BLOCK)
}

/// The weight of a voxel of one volume.
fn weight_at<T: Real>(weights: Option<&[T]>, voxel: usize) -> f64 {
    weights.map_or(1.0, |weights| clamped(weights[voxel].wide()))
}

/// Adds a range of voxels to a table.
fn vote<T: Real, const N: usize>(
    table: &mut [f64],
    a: &[T],
    b: &[T],
    weight: &dyn Fn(usize) -> f64,
    binning: &Binning,
) {
    let (options, inner) = (&binning.options, binning.options.inner_bins());
    for (voxel, (a, b)) in a.iter().zip(b).enumerate() {
        let vote = weight(voxel);
        if options.is_hard() {
            let [row, column] =
                [a, b].map(|value| bin(value.wide(), options.kernel.radius(), inner));
            table[row * options.bins + column] += vote;
            continue;
        }
        let [a, b] = [a, b].map(|value| Taps::<N>::new(value.wide(), options.kernel, inner));
        for (k, share) in a.weight[..a.count].iter().enumerate() {
            let row = &mut table[(a.first + k) * options.bins + b.first..][..b.count];
            row.iter_mut().zip(&b.weight).for_each(|(cell, w)| *cell += vote * share * w);
        }
    }
}

/// Convolves a table with a kernel along both axes; zeros outside.
fn convolve(table: &[f64], kernel: &[f64], bins: usize) -> Vec<f64> {
    let reach = kernel.len() / 2;
    let mut output = vec![0.0; table.len()];
    for (cell, value) in table.iter().enumerate().filter(|(_, value)| **value != 0.0) {
        let (row, column) = (cell / bins, cell % bins);
        for (k, share) in kernel.iter().enumerate() {
            // The padding of the table is wider than the reach of the kernel.
            let start = (row + k - reach) * bins + column - reach;
            let cells = output[start..].iter_mut().zip(kernel);
            cells.for_each(|(cell, w)| *cell += value * share * w);
        }
    }
    output
}

fn forward<T: Real>(
    a: &FlexTensor,
    b: &FlexTensor,
    weights: &FlexTensor,
    binning: Binning,
) -> FlexTensor {
    let shape = a.layout().shape().clone();
    let (bins, voxels) = (binning.options.bins, shape[2] * shape[3] * shape[4]);
    let mut output = Vec::with_capacity(shape[0] * bins * bins);
    let weights = binning.weighted.then(|| elements::<T>(weights));
    for n in 0..shape[0] {
        let volume = n * voxels..(n + 1) * voxels;
        let [a, b] = [a, b].map(|image| &elements::<T>(image)[volume.clone()]);
        let weights = weights.map(|weights| &weights[volume.clone()]);
        let length = block(voxels);
        let blocks = a.par_chunks(length).zip(b.par_chunks(length)).enumerate();
        let tables: Vec<Vec<f64>> = blocks
            .map(|(block, (a, b))| {
                let mut table = vec![0.0; bins * bins];
                let weight = |voxel| weight_at(weights, block * length + voxel);
                with_taps!(binning.options.kernel, vote::<T>(&mut table, a, b, &weight, &binning));
                table
            })
            .collect();
        let mut table = vec![0.0; bins * bins];
        for part in tables {
            table.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        if binning.options.mode == HistogramMode::Approximate {
            table = convolve(&table, &binning.options.kernel.at_whole_bins(), bins);
        }
        output.extend(table.into_iter().map(T::of));
    }
    tensor(output, binning.table(&shape))
}

/// The gradients of one voxel to the two images, its weight left out.
fn gradients<T: Real, const N: usize>(a: T, b: T, table: &[T], binning: &Binning) -> [f64; 2] {
    let (options, inner) = (&binning.options, binning.options.inner_bins());
    let [a, b] = [a, b].map(|value| Taps::<N>::new(value.wide(), options.kernel, inner));
    let mut to = [0.0; 2];
    for k in 0..a.count {
        let row = &table[(a.first + k) * options.bins + b.first..][..b.count];
        let along = |taps: &[f64]| row.iter().zip(taps).map(|(g, w)| g.wide() * w).sum::<f64>();
        to[0] += a.slope[k] * along(&b.weight);
        to[1] += a.weight[k] * along(&b.slope);
    }
    to
}

fn backward<T: Real>(
    images: [&FlexTensor; 3],
    grad: &FlexTensor,
    binning: Binning,
    needs: [bool; 2],
) -> (FlexTensor, FlexTensor) {
    with_taps!(binning.options.kernel, backward_of::<T>(images, grad, binning, needs))
}

fn backward_of<T: Real, const N: usize>(
    [a, b, weights]: [&FlexTensor; 3],
    grad: &FlexTensor,
    binning: Binning,
    needs: [bool; 2],
) -> (FlexTensor, FlexTensor) {
    let shape = a.layout().shape().clone();
    let (cells, voxels) = (binning.options.bins.pow(2), shape[2] * shape[3] * shape[4]);
    let weights = binning.weighted.then(|| elements::<T>(weights));
    let (first, second, grad) = (elements::<T>(a), elements::<T>(b), elements::<T>(grad));
    let of = |input: usize| -> FlexTensor {
        if !needs[input] {
            return tensor(vec![T::default()], [1]);
        }
        if binning.options.kernel == ParzenKernel::Delta {
            return tensor(vec![T::default(); first.len()], shape.clone());
        }
        let pairs = first.par_iter().zip(second).enumerate();
        let data = pairs.map(|(voxel, (a, b))| {
            let table = &grad[voxel / voxels * cells..][..cells];
            T::of(weight_at(weights, voxel) * gradients::<T, N>(*a, *b, table, &binning)[input])
        });
        tensor(data.collect(), shape.clone())
    };
    (of(0), of(1))
}

impl JointHistogramOps for Flex {
    fn joint_histogram_3d(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        binning: Binning,
    ) -> FloatTensor<Self> {
        let [a, b, weights] = [a, b, weights].map(readable);
        by_dtype!("joint_histogram", a.dtype(), forward(&a, &b, &weights, binning))
    }

    fn joint_histogram_3d_backward(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        binning: Binning,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let [a, b, weights, grad] = [a, b, weights, grad].map(readable);
        let images = [&a, &b, &weights];
        by_dtype!("joint_histogram", a.dtype(), backward(images, &grad, binning, needs))
    }
}
