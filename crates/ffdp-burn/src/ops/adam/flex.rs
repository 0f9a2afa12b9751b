//! Adam's direction on the CPU, in `f64`.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{AdamConstants, AdamOps};
use crate::ops::real::{Real, by_dtype, elements, tensor};

/// Elements of one task; fixed, so that sums do not depend on the threads.
const BLOCK: usize = 1 << 16;

/// Takes the gradient of one field into its moments; returns the sum of the mean squares.
fn update<T: Real>(grad: &[T], mean: &mut [T], square: &mut [T], beta: [f64; 2]) -> f64 {
    let blocks = mean.par_chunks_mut(BLOCK).zip(square.par_chunks_mut(BLOCK));
    let sums: Vec<f64> = blocks
        .zip(grad.par_chunks(BLOCK))
        .map(|((mean, square), grad)| {
            let mut sum = 0.0;
            for ((m, v), g) in mean.iter_mut().zip(square).zip(grad) {
                let g = g.wide();
                *m = T::of(beta[0] * m.wide() + (1.0 - beta[0]) * g);
                *v = T::of(beta[1] * v.wide() + (1.0 - beta[1]) * g * g);
                sum += v.wide();
            }
            sum
        })
        .collect();
    sums.iter().sum()
}

/// The length of the longest vector of a field.
fn longest<T: Real>(field: &[T]) -> f64 {
    let len = field.len() / 3;
    let squares = (0..len).into_par_iter().with_min_len(BLOCK).map(|voxel| {
        (0..3).map(|component| field[component * len + voxel].wide().powi(2)).sum::<f64>()
    });
    squares.reduce(|| 0.0, f64::max).sqrt()
}

fn run<T: Real>(
    grad: &FlexTensor,
    mean: &FlexTensor,
    square: &FlexTensor,
    constants: &AdamConstants,
) -> [FlexTensor; 4] {
    let shape = grad.layout().shape().clone();
    let grad = elements::<T>(grad);
    let (mut mean, mut square) = (elements::<T>(mean).to_vec(), elements::<T>(square).to_vec());
    let mut direction = vec![T::default(); grad.len()];
    let len = grad.len() / shape[0];
    let [c1, c2] = constants.correction;
    let mut lengths = Vec::with_capacity(shape[0]);
    for (n, direction) in direction.chunks_mut(len).enumerate() {
        let field = n * len..(n + 1) * len;
        let (m, v) = (&mut mean[field.clone()], &mut square[field.clone()]);
        let sum = update(&grad[field], m, v, constants.beta);
        let rms = (c2 * sum / len as f64).sqrt();
        let floor = constants.gradient_floor * rms + constants.epsilon;
        let moments = m.par_iter().zip(v).with_min_len(BLOCK);
        direction.par_iter_mut().zip(moments).for_each(|(d, (m, v))| {
            *d = T::of(c1 * m.wide() / ((c2 * v.wide()).sqrt() + floor));
        });
        lengths.push(T::of(longest(direction)));
    }
    let batch = shape[0];
    [
        tensor(direction, shape.clone()),
        tensor(lengths, [batch]),
        tensor(mean, shape.clone()),
        tensor(square, shape),
    ]
}

impl AdamOps for Flex {
    fn adam_3d(
        grad: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        constants: AdamConstants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [grad, mean, square] = [grad, mean, square].map(|tensor| tensor.to_contiguous());
        let [direction, longest, mean, square] =
            by_dtype!("adam", grad.dtype(), run(&grad, &mean, &square, &constants));
        (direction, longest, mean, square)
    }
}
