//! Attention composed of Burn's operations, for windows that no kernel of ours can hold. The
//! matrices of all windows exist while it runs, and are computed anew in the backward pass.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::Shape;

use super::APART;

/// The sizes of a call.
struct Sizes {
    all: usize,
    windows: usize,
    heads: usize,
    tokens: usize,
    channels: usize,
}

impl Sizes {
    fn new<B: Backend>([qkv, bias, regions]: [&FloatTensor<B>; 3]) -> Self {
        let (shape, heads) = (qkv.shape(), bias.shape()[0]);
        let channels = shape[2] / 3 / heads;
        Self { all: shape[0], windows: regions.shape()[0], heads, tokens: shape[1], channels }
    }

    fn scale(&self) -> f64 {
        1.0 / (self.channels as f64).sqrt()
    }
}

/// Queries, keys and values, each `[B, heads, T, channels]`.
fn split<B: Backend>(qkv: FloatTensor<B>, s: &Sizes) -> [FloatTensor<B>; 3] {
    let shape = Shape::from([s.all, s.tokens, 3, s.heads, s.channels]);
    let parts = B::float_permute(B::float_reshape(qkv, shape), &[2, 0, 3, 1, 4]);
    let one = Shape::from([s.all, s.heads, s.tokens, s.channels]);
    [0, 1, 2].map(|i| {
        let slices = [(i..i + 1).into()];
        B::float_reshape(B::float_slice(parts.clone(), &slices), one.clone())
    })
}

fn transposed<B: Backend>(matrix: FloatTensor<B>) -> FloatTensor<B> {
    B::float_swap_dims(matrix, 2, 3)
}

/// `exp(s - l)` and `l`, `[B, heads, T, T]` and `[B, heads, T, 1]`.
fn weights<B: Backend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    bias: FloatTensor<B>,
    regions: FloatTensor<B>,
    s: &Sizes,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let t = s.tokens;
    let q = B::float_mul_scalar(q, s.scale().into());
    let scores = B::float_matmul(q, transposed::<B>(k));
    let scores = B::float_add(scores, B::float_reshape(bias, Shape::from([1, s.heads, t, t])));
    // Any distance of regions is at least 1, and counts as 1.
    let rows = B::float_reshape(regions.clone(), Shape::from([1, s.windows, 1, t, 1]));
    let columns = B::float_reshape(regions, Shape::from([1, s.windows, 1, 1, t]));
    let apart = B::float_abs(B::float_sub(rows, columns));
    let apart = B::float_mul_scalar(B::float_clamp_max(apart, 1.0.into()), APART.into());
    let by_window = Shape::from([s.all / s.windows, s.windows, s.heads, t, t]);
    let scores = B::float_sub(B::float_reshape(scores, by_window), apart);
    let scores = B::float_reshape(scores, Shape::from([s.all, s.heads, t, t]));
    let largest = B::float_max_dim(scores.clone(), 3);
    let exponentials = B::float_exp(B::float_sub(scores, largest.clone()));
    let sums = B::float_sum_dim(exponentials.clone(), 3);
    let logs = B::float_add(largest, B::float_log(sums.clone()));
    (B::float_div(exponentials, sums), logs)
}

/// `[B, heads, T, channels]` to `[B, T, heads channels]`.
fn joined<B: Backend>(rows: FloatTensor<B>, s: &Sizes) -> FloatTensor<B> {
    let shape = Shape::from([s.all, s.tokens, s.heads * s.channels]);
    B::float_reshape(B::float_swap_dims(rows, 1, 2), shape)
}

/// The result and the logs.
pub(super) fn forward<B: Backend>(
    [qkv, bias, regions]: [FloatTensor<B>; 3],
) -> (FloatTensor<B>, FloatTensor<B>) {
    let s = Sizes::new::<B>([&qkv, &bias, &regions]);
    let [q, k, v] = split::<B>(qkv, &s);
    let (p, logs) = weights::<B>(q, k, bias, regions, &s);
    let logs = B::float_reshape(logs, Shape::from([s.all, s.heads, s.tokens]));
    (joined::<B>(B::float_matmul(p, v), &s), logs)
}

/// The gradients of qkv and bias; the logs are not needed.
pub(super) fn backward<B: Backend>(
    [qkv, bias, regions, _, grad]: [FloatTensor<B>; 5],
) -> (FloatTensor<B>, FloatTensor<B>) {
    let s = Sizes::new::<B>([&qkv, &bias, &regions]);
    let [q, k, v] = split::<B>(qkv.clone(), &s);
    let (p, _) = weights::<B>(q.clone(), k.clone(), bias.clone(), regions, &s);
    let by_token = Shape::from([s.all, s.tokens, s.heads, s.channels]);
    let grad = B::float_swap_dims(B::float_reshape(grad, by_token), 1, 2);
    let to_v = B::float_matmul(transposed::<B>(p.clone()), grad.clone());
    let to_p = B::float_matmul(grad, transposed::<B>(v));
    let dot = B::float_sum_dim(B::float_mul(p.clone(), to_p.clone()), 3);
    let to_s = B::float_mul(p, B::float_sub(to_p, dot));
    let scaled = |rows| B::float_mul_scalar(rows, s.scale().into());
    let to_q = scaled(B::float_matmul(to_s.clone(), k));
    let to_k = scaled(B::float_matmul(transposed::<B>(to_s.clone()), q));
    let to_qkv = B::float_cat([to_q, to_k, to_v].map(|rows| joined::<B>(rows, &s)).into(), 2);
    let to_bias = B::float_reshape(B::float_sum_dim(to_s, 0), bias.shape());
    (B::float_reshape(to_qkv, qkv.shape()), to_bias)
}
