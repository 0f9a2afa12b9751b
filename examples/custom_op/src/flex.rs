//! The loss on the CPU.

use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use ffdp_kit::real::{Real, by_dtype, elements, readable, tensor};
use rayon::prelude::*;

use super::CharbonnierOps;

/// Elements summed by one task; fixed, so that the sum does not depend on the threads.
const BLOCK: usize = 1 << 16;

/// `r`.
fn root(difference: f64, epsilon: f64) -> f64 {
    (difference * difference + epsilon * epsilon).sqrt()
}

fn rho(difference: f64, epsilon: f64) -> f64 {
    difference * difference / (root(difference, epsilon) + epsilon)
}

fn sum<T: Real>([a, b, weights]: [&FlexTensor; 3], epsilon: f64) -> FlexTensor {
    let [a, b, weights] = [a, b, weights].map(elements::<T>);
    let pairs = a.par_chunks(BLOCK).zip(b.par_chunks(BLOCK)).zip(weights.par_chunks(BLOCK));
    let sums: Vec<f64> = pairs
        .map(|((a, b), weights)| {
            let terms = a.iter().zip(b).zip(weights);
            terms.map(|((a, b), w)| w.wide() * rho(a.wide() - b.wide(), epsilon)).sum()
        })
        .collect();
    tensor(vec![T::of(sums.iter().sum())], [1])
}

fn to_image<T: Real>(
    [a, b, weights]: [&FlexTensor; 3],
    grad: &FlexTensor,
    epsilon: f64,
) -> FlexTensor {
    let scale = elements::<T>(grad)[0].wide();
    let terms = elements::<T>(a).par_iter().zip(elements::<T>(b)).zip(elements::<T>(weights));
    let slope = |((a, b), w): ((&T, &T), &T)| {
        let difference = a.wide() - b.wide();
        T::of(scale * w.wide() * difference / root(difference, epsilon))
    };
    tensor(terms.map(slope).collect(), a.shape())
}

fn to_weights<T: Real>([a, b]: [&FlexTensor; 2], grad: &FlexTensor, epsilon: f64) -> FlexTensor {
    let scale = elements::<T>(grad)[0].wide();
    let pairs = elements::<T>(a).par_iter().zip(elements::<T>(b));
    let terms = pairs.map(|(a, b)| T::of(scale * rho(a.wide() - b.wide(), epsilon)));
    tensor(terms.collect(), a.shape())
}

impl CharbonnierOps for Flex {
    fn charbonnier(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let [a, b, weights] = [a, b, weights].map(readable);
        by_dtype!("charbonnier", a.dtype(), sum([&a, &b, &weights], epsilon))
    }

    fn charbonnier_to_image(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let [a, b, weights, grad] = [a, b, weights, grad].map(readable);
        by_dtype!("charbonnier", a.dtype(), to_image([&a, &b, &weights], &grad, epsilon))
    }

    fn charbonnier_to_weights(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let [a, b, grad] = [a, b, grad].map(readable);
        by_dtype!("charbonnier", a.dtype(), to_weights([&a, &b], &grad, epsilon))
    }
}
