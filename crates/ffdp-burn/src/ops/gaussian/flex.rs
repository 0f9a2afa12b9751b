//! Smoothing on the CPU: one pass per axis, sums in `f64`.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{Direction, GaussianOps, GaussianOptions};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// `K 1` along an axis of `len` voxels.
fn norms(half: &[f64], len: usize) -> Vec<f64> {
    let weight = |i: usize, j: usize| half.get(i.abs_diff(j)).copied().unwrap_or(0.0);
    let reach = half.len();
    let near = |i: usize| i.saturating_sub(reach)..(i + reach).min(len);
    (0..len).map(|i| near(i).map(|j| weight(i, j)).sum()).collect()
}

/// One pass: lines of `len` voxels, `stride` apart, in blocks of `len * stride` elements.
fn pass<T: Real>(
    data: &[T],
    half: &[f64],
    len: usize,
    stride: usize,
    direction: Direction,
) -> Vec<T> {
    let norms = norms(half, len);
    let radius = half.len() - 1;
    let mut output = vec![T::default(); data.len()];
    // One task per plane of `stride` neighbouring lines at one position of the axis.
    output.par_chunks_mut(stride).enumerate().for_each(|(chunk, output)| {
        let (block, i) = (chunk / len, chunk % len);
        let source = &data[block * len * stride..][..len * stride];
        let mut sums = vec![0.0f64; stride];
        for j in i.saturating_sub(radius)..(i + radius + 1).min(len) {
            let weight = match direction {
                Direction::Forward => half[i.abs_diff(j)] / norms[i],
                Direction::Adjoint => half[i.abs_diff(j)] / norms[j],
            };
            let values = &source[j * stride..][..stride];
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value.wide());
        }
        output.iter_mut().zip(&sums).for_each(|(value, sum)| *value = T::of(*sum));
    });
    output
}

/// The pass along x, where lines are contiguous.
fn pass_along_lines<T: Real>(data: &[T], half: &[f64], len: usize, direction: Direction) -> Vec<T> {
    let norms = norms(half, len);
    let radius = half.len() - 1;
    let mut output = vec![T::default(); data.len()];
    output.par_chunks_mut(len).zip(data.par_chunks(len)).with_min_len(64).for_each(
        |(output, line)| {
            for (i, value) in output.iter_mut().enumerate() {
                let near = i.saturating_sub(radius)..(i + radius + 1).min(len);
                let sum: f64 = match direction {
                    Direction::Forward => {
                        near.map(|j| half[i.abs_diff(j)] * line[j].wide()).sum::<f64>() / norms[i]
                    }
                    Direction::Adjoint => {
                        near.map(|j| half[i.abs_diff(j)] * line[j].wide() / norms[j]).sum()
                    }
                };
                *value = T::of(sum);
            }
        },
    );
    output
}

fn run<T: Real>(x: &FlexTensor, options: &GaussianOptions, direction: Direction) -> FlexTensor {
    let shape = x.layout().shape().clone();
    let [d, h, w] = [shape[2], shape[3], shape[4]];
    let mut data = elements::<T>(x).to_vec();
    let kernel = |axis: usize| Some(options.half_kernel(axis)).filter(|half| half.len() > 1);
    if let Some(half) = kernel(0) {
        data = pass_along_lines(&data, &half, w, direction);
    }
    if let Some(half) = kernel(1) {
        data = pass(&data, &half, h, w, direction);
    }
    if let Some(half) = kernel(2) {
        data = pass(&data, &half, d, h * w, direction);
    }
    tensor(data, shape)
}

impl GaussianOps for Flex {
    fn gaussian_3d(
        x: FloatTensor<Self>,
        options: GaussianOptions,
        direction: Direction,
    ) -> FloatTensor<Self> {
        let x = x.to_contiguous();
        by_dtype!("gaussian", x.dtype(), run(&x, &options, direction))
    }
}
