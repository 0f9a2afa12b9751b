//! Smoothing on the CPU: one pass per axis, sums in `f64`.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{Direction, GaussianOps, GaussianOptions};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};
use ffdp_kit::window::weigh;

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
        let first = i.saturating_sub(radius);
        let weight = |j: usize| match direction {
            Direction::Forward => half[i.abs_diff(j)] / norms[i],
            Direction::Adjoint => half[i.abs_diff(j)] / norms[j],
        };
        let weights: Vec<f64> = (first..(i + radius + 1).min(len)).map(weight).collect();
        weigh(&weights, |j| &source[(first + j) * stride..][..stride], output);
    });
    output
}

/// The pass along x, where lines are contiguous.
fn pass_along_lines<T: Real>(data: &[T], half: &[f64], len: usize, direction: Direction) -> Vec<T> {
    let norms = norms(half, len);
    let radius = half.len() - 1;
    let weights: Vec<f64> = (0..=2 * radius).map(|j| half[radius.abs_diff(j)]).collect();
    let mut output = vec![T::default(); data.len()];
    let lines = output.par_chunks_mut(len).zip(data.par_chunks(len)).with_min_len(64);
    // Zeros around a line have no share in its sums.
    lines.for_each_init(
        || (vec![0.0; len + 2 * radius], vec![0.0; len]),
        |(padded, sums), (output, line)| {
            let values = padded[radius..].iter_mut().zip(line).zip(&norms);
            match direction {
                Direction::Forward => {
                    values.for_each(|((value, given), _)| *value = given.wide());
                    weigh(&weights, |j| &padded[j..], sums);
                    let values = output.iter_mut().zip(sums).zip(&norms);
                    values.for_each(|((value, sum), norm)| *value = T::of(*sum / norm));
                }
                Direction::Adjoint => {
                    values.for_each(|((value, given), norm)| *value = given.wide() / norm);
                    weigh(&weights, |j| &padded[j..], output);
                }
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
