//! The normalisation on the CPU, sums in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{InstanceNormOps, InstanceNormOptions};
use crate::ops::real::{Real, by_dtype, elements, tensor};

/// Elements summed by one task; fixed, so that a sum does not depend on the threads.
const BLOCK: usize = 1 << 14;

/// The mean of `f` over the elements of both slices.
fn mean<T: Real>(a: &[T], b: &[T], f: impl Fn(f64, f64) -> f64 + Sync) -> f64 {
    let blocks = a.par_chunks(BLOCK).zip(b.par_chunks(BLOCK));
    let sums: Vec<f64> =
        blocks.map(|(a, b)| a.iter().zip(b).map(|(a, b)| f(a.wide(), b.wide())).sum()).collect();
    sums.iter().sum::<f64>() / a.len() as f64
}

fn forward<T: Real>(x: &FlexTensor, o: InstanceNormOptions) -> (FlexTensor, FlexTensor) {
    let shape = x.layout().shape().clone();
    let rows = shape[0] * shape[1];
    let values = elements::<T>(x);
    let mut y = vec![T::default(); values.len()];
    let mut scales = vec![T::default(); rows];
    let voxels = values.len() / rows;
    let channels = values.chunks(voxels).zip(y.chunks_mut(voxels)).zip(&mut scales);
    for ((x, y), stored) in channels {
        let m = mean(x, x, |x, _| x);
        let scale = 1.0 / (mean(x, x, |x, _| (x - m).powi(2)) + o.epsilon).sqrt();
        *stored = T::of(scale);
        y.par_iter_mut().zip(x).for_each(|(y, x)| {
            let n = (x.wide() - m) * scale;
            *y = T::of(if n > 0.0 { n } else { o.slope * n });
        });
    }
    (tensor(y, shape), tensor(scales, [rows]))
}

fn backward<T: Real>(
    y: &FlexTensor,
    scales: &FlexTensor,
    grad: &FlexTensor,
    o: InstanceNormOptions,
) -> FlexTensor {
    let shape = y.layout().shape().clone();
    let (values, grads, scales) = (elements::<T>(y), elements::<T>(grad), elements::<T>(scales));
    let mut to_x = vec![T::default(); values.len()];
    let voxels = values.len() / scales.len();
    let gain = |y: f64| if y > 0.0 { 1.0 } else { o.slope };
    let channels = values.chunks(voxels).zip(grads.chunks(voxels)).zip(scales);
    for (((y, grad), scale), to_x) in channels.zip(to_x.chunks_mut(voxels)) {
        let mean_h = mean(y, grad, |y, g| g * gain(y));
        let mean_hn = mean(y, grad, |y, g| g * y);
        to_x.par_iter_mut().zip(y.par_iter().zip(grad)).for_each(|(to_x, (y, g))| {
            let (y, g) = (y.wide(), g.wide());
            let n = y / gain(y);
            *to_x = T::of(scale.wide() * (g * gain(y) - mean_h - n * mean_hn));
        });
    }
    tensor(to_x, shape)
}

impl InstanceNormOps for Flex {
    fn instance_norm_3d(x: FloatTensor<Self>, options: InstanceNormOptions) -> FloatTensor<Self> {
        Self::instance_norm_3d_with_scales(x, options).0
    }

    fn instance_norm_3d_with_scales(
        x: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let x = x.to_contiguous();
        by_dtype!("instance_norm", x.dtype(), forward(&x, options))
    }

    fn instance_norm_3d_backward(
        y: FloatTensor<Self>,
        scales: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self> {
        let (y, scales, grad) = (y.to_contiguous(), scales.to_contiguous(), grad.to_contiguous());
        by_dtype!("instance_norm", y.dtype(), backward(&y, &scales, &grad, options))
    }
}
