//! The mean on the CPU, axis by axis, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;

use super::{MeanPoolOps, pooled_shape, resized};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// Sums of three around every second entry of the middle axis of `[outer, n, inner]`.
fn halved(x: &[f64], n: usize, inner: usize) -> Vec<f64> {
    let half = n.div_ceil(2);
    let mut y = vec![0.0; x.len() / n * half];
    for (y, x) in y.chunks_mut(half * inner).zip(x.chunks(n * inner)) {
        for (i, y) in y.chunks_mut(inner).enumerate() {
            for j in (2 * i).saturating_sub(1)..(2 * i + 2).min(n) {
                y.iter_mut().zip(&x[j * inner..]).for_each(|(y, x)| *y += x);
            }
        }
    }
    y
}

/// The adjoint of [`halved`], `n` being the full extent.
fn spread(g: &[f64], n: usize, inner: usize) -> Vec<f64> {
    let half = n.div_ceil(2);
    let mut x = vec![0.0; g.len() / half * n];
    for (x, g) in x.chunks_mut(n * inner).zip(g.chunks(half * inner)) {
        for (i, g) in g.chunks(inner).enumerate() {
            for j in (2 * i).saturating_sub(1)..(2 * i + 2).min(n) {
                x[j * inner..].iter_mut().zip(g).for_each(|(x, g)| *x += g);
            }
        }
    }
    x
}

/// One pass after the other along the three axes of `size`, from the last to the first.
fn along_axes<T: Real>(
    x: &FlexTensor,
    size: [usize; 3],
    pass: impl Fn(&[f64], usize, usize) -> Vec<f64>,
    changed: impl Fn(usize) -> usize,
) -> Vec<T> {
    let mut values: Vec<f64> = elements::<T>(x).iter().map(|x| x.wide() / 27.0).collect();
    let mut inner = 1;
    for n in size.into_iter().rev() {
        values = pass(&values, n, inner);
        inner *= changed(n);
    }
    values.into_iter().map(T::of).collect()
}

fn forward<T: Real>(x: &FlexTensor) -> FlexTensor {
    let shape = x.layout().shape();
    let size = [shape[2], shape[3], shape[4]];
    tensor(along_axes::<T>(x, size, halved, |n| n.div_ceil(2)), pooled_shape(shape))
}

fn backward<T: Real>(grad: &FlexTensor, size: [usize; 3]) -> FlexTensor {
    tensor(along_axes::<T>(grad, size, spread, |n| n), resized(grad.layout().shape(), size))
}

impl MeanPoolOps for Flex {
    fn mean_pool_3d(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let x = x.to_contiguous();
        by_dtype!("mean_pool", x.dtype(), forward(&x))
    }

    fn mean_pool_3d_backward(grad: FloatTensor<Self>, size: [usize; 3]) -> FloatTensor<Self> {
        let grad = grad.to_contiguous();
        by_dtype!("mean_pool", grad.dtype(), backward(&grad, size))
    }
}
