//! Attention on the CPU: a window and head at a time, its matrix in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{APART, WindowAttentionOps, result_shape};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// The inputs, element by element.
struct Inputs<'a, T> {
    qkv: &'a [T],
    bias: &'a [T],
    regions: &'a [T],
    windows: usize,
    heads: usize,
    tokens: usize,
    channels: usize,
}

impl<'a, T: Real> Inputs<'a, T> {
    fn new(qkv: &'a FlexTensor, bias: &'a FlexTensor, regions: &'a FlexTensor) -> Self {
        let [all, tokens, c3] = qkv.layout().shape().dims();
        let heads = bias.layout().shape()[0];
        Self {
            qkv: elements(qkv),
            bias: elements(bias),
            regions: elements(regions),
            windows: all,
            heads,
            tokens,
            channels: c3 / 3 / heads,
        }
    }

    /// Where the row of a token's query (0), key (1) or value (2) starts.
    fn row(&self, [window, head, token, which]: [usize; 4]) -> usize {
        (((window * self.tokens + token) * 3 + which) * self.heads + head) * self.channels
    }

    /// Of a window and head, its queries, keys or values in f64, `[T, channels]`.
    fn matrix(&self, window: usize, head: usize, which: usize) -> Vec<f64> {
        let rows = (0..self.tokens).map(|token| self.row([window, head, token, which]));
        rows.flat_map(|at| self.qkv[at..at + self.channels].iter().map(|v| v.wide())).collect()
    }

    /// `s_ij`, row by row.
    fn scores(&self, window: usize, head: usize) -> Vec<f64> {
        let (t, c) = (self.tokens, self.channels);
        let (q, k) = (self.matrix(window, head, 0), self.matrix(window, head, 1));
        let regions = &self.regions[window * t % self.regions.len()..][..t];
        let bias = &self.bias[head * t * t..][..t * t];
        let scale = 1.0 / (c as f64).sqrt();
        let score = |ij: usize| {
            let (i, j) = (ij / t, ij % t);
            let apart = if regions[i].wide() == regions[j].wide() { 0.0 } else { APART };
            scale * dot(&q[i * c..][..c], &k[j * c..][..c]) + bias[ij].wide() - apart
        };
        (0..t * t).map(score).collect()
    }

    /// All pairs of windows and heads.
    fn pairs(&self) -> rayon::range::Iter<usize> {
        (0..self.windows * self.heads).into_par_iter()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `sum_j m_ij rows_j` for every `i`, `m` being `[T, T]` or transposed.
fn product(m: &[f64], rows: &[f64], t: usize, transposed: bool) -> Vec<f64> {
    let c = rows.len() / t;
    let mut result = vec![0.0; t * c];
    for (i, result) in result.chunks_mut(c).enumerate() {
        for (j, row) in rows.chunks(c).enumerate() {
            let weight = m[if transposed { j * t + i } else { i * t + j }];
            result.iter_mut().zip(row).for_each(|(sum, v)| *sum += weight * v);
        }
    }
    result
}

fn forward<T: Real>(
    qkv: &FlexTensor,
    bias: &FlexTensor,
    regions: &FlexTensor,
) -> (FlexTensor, FlexTensor) {
    let shapes = [qkv, bias, regions].map(|tensor| tensor.layout().shape());
    let shape = result_shape(shapes[0], shapes[1], shapes[2]);
    let inputs = Inputs::<T>::new(qkv, bias, regions);
    let (t, c) = (inputs.tokens, inputs.channels);
    let heads: Vec<(Vec<f64>, Vec<f64>)> = inputs
        .pairs()
        .map(|pair| {
            let (window, head) = (pair / inputs.heads, pair % inputs.heads);
            let mut p = inputs.scores(window, head);
            let logs: Vec<f64> = p.chunks(t).map(log_sum_exp).collect();
            p.iter_mut().enumerate().for_each(|(ij, s)| *s = (*s - logs[ij / t]).exp());
            (product(&p, &inputs.matrix(window, head, 2), t, false), logs)
        })
        .collect();
    let mut y = vec![T::default(); shape.num_elements()];
    for (pair, (result, _)) in heads.iter().enumerate() {
        let (window, head) = (pair / inputs.heads, pair % inputs.heads);
        for (token, row) in result.chunks(c).enumerate() {
            let at = ((window * t + token) * inputs.heads + head) * c;
            y[at..at + c].iter_mut().zip(row).for_each(|(y, v)| *y = T::of(*v));
        }
    }
    let logs = heads.iter().flat_map(|(_, logs)| logs.iter().map(|v| T::of(*v))).collect();
    (tensor(y, shape), tensor(logs, [inputs.windows, inputs.heads, t]))
}

fn log_sum_exp(scores: &[f64]) -> f64 {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    largest + scores.iter().map(|s| (s - largest).exp()).sum::<f64>().ln()
}

/// The gradients of one window and head: of its queries, keys and values, and of the scores.
fn head_backward<T: Real>(
    inputs: &Inputs<T>,
    pair: usize,
    grad: &[T],
) -> ([Vec<f64>; 3], Vec<f64>) {
    let (window, head) = (pair / inputs.heads, pair % inputs.heads);
    let (t, c) = (inputs.tokens, inputs.channels);
    let [q, k, v] = [0, 1, 2].map(|which| inputs.matrix(window, head, which));
    let start = |token: usize| ((window * t + token) * inputs.heads + head) * c;
    let g: Vec<f64> =
        (0..t).flat_map(|token| grad[start(token)..][..c].iter().map(|g| g.wide())).collect();
    let mut p = inputs.scores(window, head);
    for row in p.chunks_mut(t) {
        let log = log_sum_exp(row);
        row.iter_mut().for_each(|s| *s = (*s - log).exp());
    }
    let to_v = product(&p, &g, t, true);
    let mut to_s = p;
    for (row, g) in to_s.chunks_mut(t).zip(g.chunks(c)) {
        let to_p: Vec<f64> = v.chunks(c).map(|v| dot(g, v)).collect();
        let d = dot(row, &to_p);
        row.iter_mut().zip(&to_p).for_each(|(p, to_p)| *p *= to_p - d);
    }
    let scale = 1.0 / (c as f64).sqrt();
    let scaled = |rows: Vec<f64>| rows.into_iter().map(|v| scale * v).collect();
    let to_q = scaled(product(&to_s, &k, t, false));
    let to_k = scaled(product(&to_s, &q, t, true));
    ([to_q, to_k, to_v], to_s)
}

fn backward<T: Real>(
    qkv: &FlexTensor,
    bias: &FlexTensor,
    regions: &FlexTensor,
    grad: &FlexTensor,
) -> (FlexTensor, FlexTensor) {
    let inputs = Inputs::<T>::new(qkv, bias, regions);
    let grad = elements::<T>(grad);
    let (t, c) = (inputs.tokens, inputs.channels);
    let mut to_qkv = vec![T::default(); inputs.qkv.len()];
    let mut to_bias = vec![0.0; inputs.bias.len()];
    // One window after the other, so that their matrices are not all held at once.
    for window in 0..inputs.windows {
        let pairs = window * inputs.heads..(window + 1) * inputs.heads;
        let heads: Vec<_> =
            pairs.into_par_iter().map(|pair| head_backward(&inputs, pair, grad)).collect();
        for (head, (gradients, to_s)) in heads.iter().enumerate() {
            for (which, rows) in gradients.iter().enumerate() {
                for (token, row) in rows.chunks(c).enumerate() {
                    let at = inputs.row([window, head, token, which]);
                    to_qkv[at..at + c].iter_mut().zip(row).for_each(|(to, v)| *to = T::of(*v));
                }
            }
            let to_bias = &mut to_bias[head * t * t..][..t * t];
            to_bias.iter_mut().zip(to_s).for_each(|(sum, v)| *sum += v);
        }
    }
    let to_bias = to_bias.into_iter().map(T::of).collect();
    let shape = |tensor: &FlexTensor| tensor.layout().shape().clone();
    (tensor(to_qkv, shape(qkv)), tensor(to_bias, shape(bias)))
}

impl WindowAttentionOps for Flex {
    fn attend_windows(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        Self::attend_windows_with_logs(qkv, bias, regions).0
    }

    fn attend_windows_with_logs(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let [qkv, bias, regions] = [qkv, bias, regions].map(|tensor| tensor.to_contiguous());
        by_dtype!("window_attention", qkv.dtype(), forward(&qkv, &bias, &regions))
    }

    fn attend_windows_backward(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
        _: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let inputs = [qkv, bias, regions, grad].map(|tensor| tensor.to_contiguous());
        let [qkv, bias, regions, grad] = &inputs;
        by_dtype!("window_attention", qkv.dtype(), backward(qkv, bias, regions, grad))
    }
}
