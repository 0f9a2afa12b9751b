//! Upsampling on the CPU, axis by axis, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{UpsampleOps, halved_shape, joined_shape};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// Doubles the middle axis of `[outer, n, inner]`.
fn doubled<T: Real>(x: &[T], n: usize, inner: usize) -> Vec<T> {
    let mut y = vec![T::default(); 2 * x.len()];
    y.par_chunks_mut(2 * n * inner).zip(x.par_chunks(n * inner)).for_each(|(y, x)| {
        for (j, y) in y.chunks_mut(inner).enumerate() {
            let i = j / 2;
            let neighbour = if j % 2 == 0 { i.saturating_sub(1) } else { (i + 1).min(n - 1) };
            for (k, y) in y.iter_mut().enumerate() {
                let (near, far) = (x[i * inner + k].wide(), x[neighbour * inner + k].wide());
                *y = T::of(0.75 * near + 0.25 * far);
            }
        }
    });
    y
}

/// The adjoint of [`doubled`], `n` being the halved extent.
fn gathered<T: Real>(grad: &[T], n: usize, inner: usize) -> Vec<T> {
    let mut x = vec![T::default(); grad.len() / 2];
    x.par_chunks_mut(n * inner).zip(grad.par_chunks(2 * n * inner)).for_each(|(x, g)| {
        for (i, x) in x.chunks_mut(inner).enumerate() {
            let before = if i == 0 { 0 } else { 2 * i - 1 };
            let behind = if i + 1 == n { 2 * i + 1 } else { 2 * i + 2 };
            for (k, x) in x.iter_mut().enumerate() {
                let at = |j: usize| g[j * inner + k].wide();
                let near = at(2 * i) + at(2 * i + 1);
                *x = T::of(0.75 * near + 0.25 * (at(before) + at(behind)));
            }
        }
    });
    x
}

fn forward<T: Real>(x: &FlexTensor, skip: &FlexTensor, joins: bool) -> FlexTensor {
    let shape = joined_shape(x.layout().shape(), skip.layout().shape(), joins);
    let [n, _, d, h, w] = x.layout().shape().dims();
    let up = doubled(elements::<T>(x), d, h * w);
    let up = doubled(&up, h, w);
    let up = doubled(&up, w, 1);
    if !joins {
        return tensor(up, shape);
    }
    let skip = elements::<T>(skip);
    let mut joined = Vec::with_capacity(shape.num_elements());
    for (up, skip) in up.chunks(up.len() / n).zip(skip.chunks(skip.len() / n)) {
        joined.extend_from_slice(up);
        joined.extend_from_slice(skip);
    }
    tensor(joined, shape)
}

fn backward<T: Real>(grad: &FlexTensor, channels: usize) -> FlexTensor {
    let shape = halved_shape(grad.layout().shape(), channels);
    let [n, _, d, h, w] = shape.dims();
    let grad = elements::<T>(grad);
    let samples = grad.chunks(grad.len() / n);
    let own: Vec<T> = samples.flat_map(|g| &g[..channels * 8 * d * h * w]).copied().collect();
    let back = gathered(&own, w, 1);
    let back = gathered(&back, h, w);
    tensor(gathered(&back, d, h * w), shape)
}

impl UpsampleOps for Flex {
    fn upsample_3d(
        x: FloatTensor<Self>,
        skip: FloatTensor<Self>,
        joins: bool,
    ) -> FloatTensor<Self> {
        let (x, skip) = (x.to_contiguous(), skip.to_contiguous());
        by_dtype!("upsample", x.dtype(), forward(&x, &skip, joins))
    }

    fn upsample_3d_backward(grad: FloatTensor<Self>, channels: usize) -> FloatTensor<Self> {
        let grad = grad.to_contiguous();
        by_dtype!("upsample", grad.dtype(), backward(&grad, channels))
    }
}
