//! The normalisation on the CPU, sums in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::LayerNormOps;
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// Tokens of one task; fixed, so that a sum does not depend on the threads.
const BLOCK: usize = 1024;

/// The mean of a token and `1 / sqrt(v + eps)`.
fn moments<T: Real>(x: &[T], epsilon: f64) -> (f64, f64) {
    let count = x.len() as f64;
    let mean = x.iter().map(|x| x.wide()).sum::<f64>() / count;
    let variance = x.iter().map(|x| (x.wide() - mean).powi(2)).sum::<f64>() / count;
    (mean, 1.0 / (variance + epsilon).sqrt())
}

fn forward<T: Real>(
    x: &FlexTensor,
    gamma: &FlexTensor,
    beta: &FlexTensor,
    epsilon: f64,
) -> FlexTensor {
    let (values, gamma, beta) = (elements::<T>(x), elements::<T>(gamma), elements::<T>(beta));
    let mut y = vec![T::default(); values.len()];
    y.par_chunks_mut(gamma.len()).zip(values.par_chunks(gamma.len())).for_each(|(y, x)| {
        let (mean, scale) = moments(x, epsilon);
        for (c, y) in y.iter_mut().enumerate() {
            let n = (x[c].wide() - mean) * scale;
            *y = T::of(gamma[c].wide() * n + beta[c].wide());
        }
    });
    tensor(y, x.layout().shape().clone())
}

/// Writes the gradient of a block of tokens; its shares of those of gamma and beta.
fn block_backward<T: Real>(
    to_x: &mut [T],
    [x, grad, gamma]: [&[T]; 3],
    epsilon: f64,
) -> [Vec<f64>; 2] {
    let channels = gamma.len();
    let [mut to_gamma, mut to_beta] = [vec![0.0; channels], vec![0.0; channels]];
    let tokens = x.chunks(channels).zip(grad.chunks(channels));
    for (to_x, (x, grad)) in to_x.chunks_mut(channels).zip(tokens) {
        let (mean, scale) = moments(x, epsilon);
        let n = |c: usize| (x[c].wide() - mean) * scale;
        let h = |c: usize| grad[c].wide() * gamma[c].wide();
        let mean_h = (0..channels).map(h).sum::<f64>() / channels as f64;
        let mean_hn = (0..channels).map(|c| h(c) * n(c)).sum::<f64>() / channels as f64;
        for c in 0..channels {
            to_x[c] = T::of(scale * (h(c) - mean_h - n(c) * mean_hn));
            to_gamma[c] += grad[c].wide() * n(c);
            to_beta[c] += grad[c].wide();
        }
    }
    [to_gamma, to_beta]
}

fn backward<T: Real>(
    x: &FlexTensor,
    gamma: &FlexTensor,
    grad: &FlexTensor,
    epsilon: f64,
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let (values, grads) = (elements::<T>(x), elements::<T>(grad));
    let (shape, weights) = (x.layout().shape().clone(), elements::<T>(gamma));
    let mut to_x = vec![T::default(); values.len()];
    let block = BLOCK * weights.len();
    let shares: Vec<[Vec<f64>; 2]> = to_x
        .par_chunks_mut(block)
        .zip(values.par_chunks(block).zip(grads.par_chunks(block)))
        .map(|(to_x, (x, grad))| block_backward(to_x, [x, grad, weights], epsilon))
        .collect();
    let total = |which: usize| -> FlexTensor {
        let sum = |c: usize| T::of(shares.iter().map(|share| share[which][c]).sum());
        tensor((0..weights.len()).map(sum).collect(), [weights.len()])
    };
    (tensor(to_x, shape), total(0), total(1))
}

impl LayerNormOps for Flex {
    fn normalise_tokens(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let (x, gamma, beta) = (x.to_contiguous(), gamma.to_contiguous(), beta.to_contiguous());
        by_dtype!("layer_norm", x.dtype(), forward(&x, &gamma, &beta, epsilon))
    }

    fn normalise_tokens_backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let (x, gamma, grad) = (x.to_contiguous(), gamma.to_contiguous(), grad.to_contiguous());
        by_dtype!("layer_norm", x.dtype(), backward(&x, &gamma, &grad, epsilon))
    }
}
