//! The normalisation on the CPU, sums in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::part::InstanceNormPartOps;
use super::{InstanceNormOps, InstanceNormOptions};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

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
    let mut scaling = vec![T::default(); 2 * rows];
    let voxels = values.len() / rows;
    for (row, (x, y)) in values.chunks(voxels).zip(y.chunks_mut(voxels)).enumerate() {
        let m = mean(x, x, |x, _| x);
        let scale = 1.0 / (mean(x, x, |x, _| (x - m).powi(2)) + o.epsilon).sqrt();
        (scaling[row], scaling[rows + row]) = (T::of(m), T::of(scale));
        y.par_iter_mut().zip(x).for_each(|(y, x)| {
            let n = (x.wide() - m) * scale;
            *y = T::of(if n > 0.0 { n } else { o.slope * n });
        });
    }
    (tensor(y, shape), tensor(scaling, [2, rows]))
}

fn backward<T: Real>(
    y: &FlexTensor,
    scaling: &FlexTensor,
    grad: &FlexTensor,
    o: InstanceNormOptions,
) -> FlexTensor {
    let shape = y.layout().shape().clone();
    let (values, grads, scaling) = (elements::<T>(y), elements::<T>(grad), elements::<T>(scaling));
    let (_, scales) = scaling.split_at(scaling.len() / 2);
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
        Self::instance_norm_3d_with_scaling(x, options).0
    }

    fn instance_norm_3d_with_scaling(
        x: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let x = x.to_contiguous();
        by_dtype!("instance_norm", x.dtype(), forward(&x, options))
    }

    fn instance_norm_3d_backward(
        y: FloatTensor<Self>,
        scaling: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self> {
        let (y, scaling, grad) = (y.to_contiguous(), scaling.to_contiguous(), grad.to_contiguous());
        by_dtype!("instance_norm", y.dtype(), backward(&y, &scaling, &grad, options))
    }
}

/// Means, then variances, `[2, rows]`.
fn moments<T: Real>(x: &FlexTensor) -> FlexTensor {
    let shape = x.layout().shape();
    let rows = shape[0] * shape[1];
    let values = elements::<T>(x);
    let mut moments = vec![T::default(); 2 * rows];
    for (row, x) in values.chunks(values.len() / rows).enumerate() {
        let m = mean(x, x, |x, _| x);
        moments[row] = T::of(m);
        moments[rows + row] = T::of(mean(x, x, |x, _| (x - m).powi(2)));
    }
    tensor(moments, [2, rows])
}

/// The scaling of a volume, `[2, rows]`, from moments `[K, 2, rows]` of its parts and their shares of its voxels.
fn scaling<T: Real>(moments: &FlexTensor, shares: &FlexTensor, epsilon: f64) -> FlexTensor {
    let (moments, shares) = (elements::<T>(moments), elements::<T>(shares));
    let rows = moments.len() / (2 * shares.len());
    let of_parts = |row: usize| {
        let of_part = move |(k, share): (usize, &T)| {
            let [mean, variance] = [0, 1].map(|i| moments[(2 * k + i) * rows + row].wide());
            (share.wide(), mean, variance)
        };
        shares.iter().enumerate().map(of_part)
    };
    let mut scaling = vec![T::default(); 2 * rows];
    for row in 0..rows {
        let m: f64 = of_parts(row).map(|(share, mean, _)| share * mean).sum();
        let v: f64 = of_parts(row).map(|(share, mean, v)| share * (v + (mean - m).powi(2))).sum();
        scaling[row] = T::of(m);
        scaling[rows + row] = T::of(1.0 / (v + epsilon).sqrt());
    }
    tensor(scaling, [2, rows])
}

fn apply<T: Real>(x: &FlexTensor, scaling: &FlexTensor, o: InstanceNormOptions) -> FlexTensor {
    let (values, scaling) = (elements::<T>(x), elements::<T>(scaling));
    let (means, scales) = scaling.split_at(scaling.len() / 2);
    let mut y = vec![T::default(); values.len()];
    let voxels = values.len() / means.len();
    let channels = values.chunks(voxels).zip(y.chunks_mut(voxels));
    for ((x, y), (m, scale)) in channels.zip(means.iter().zip(scales)) {
        y.par_iter_mut().zip(x).for_each(|(y, x)| {
            let n = (x.wide() - m.wide()) * scale.wide();
            *y = T::of(if n > 0.0 { n } else { o.slope * n });
        });
    }
    tensor(y, x.layout().shape().clone())
}

/// The sums of `h`, then those of `h n`, `[2, rows]`.
fn sums<T: Real>(y: &FlexTensor, grad: &FlexTensor, o: InstanceNormOptions) -> FlexTensor {
    let shape = y.layout().shape();
    let rows = shape[0] * shape[1];
    let (values, grads) = (elements::<T>(y), elements::<T>(grad));
    let voxels = values.len() / rows;
    let gain = |y: f64| if y > 0.0 { 1.0 } else { o.slope };
    let mut sums = vec![T::default(); 2 * rows];
    for (row, (y, grad)) in values.chunks(voxels).zip(grads.chunks(voxels)).enumerate() {
        sums[row] = T::of(voxels as f64 * mean(y, grad, |y, g| g * gain(y)));
        sums[rows + row] = T::of(voxels as f64 * mean(y, grad, |y, g| g * y));
    }
    tensor(sums, [2, rows])
}

fn finish<T: Real>(
    y: &FlexTensor,
    scaling: &FlexTensor,
    grad: &FlexTensor,
    means: &FlexTensor,
    o: InstanceNormOptions,
) -> FlexTensor {
    let (values, grads) = (elements::<T>(y), elements::<T>(grad));
    let (scaling, means) = (elements::<T>(scaling), elements::<T>(means));
    let rows = means.len() / 2;
    let voxels = values.len() / rows;
    let mut to_x = vec![T::default(); values.len()];
    let channels = values.chunks(voxels).zip(grads.chunks(voxels));
    for (row, ((y, grad), to_x)) in channels.zip(to_x.chunks_mut(voxels)).enumerate() {
        let scale = scaling[rows + row].wide();
        let (mean_h, mean_hn) = (means[row].wide(), means[rows + row].wide());
        to_x.par_iter_mut().zip(y.par_iter().zip(grad)).for_each(|(to_x, (y, g))| {
            let (y, g) = (y.wide(), g.wide());
            let gain = if y > 0.0 { 1.0 } else { o.slope };
            *to_x = T::of(scale * (g * gain - mean_h - y / gain * mean_hn));
        });
    }
    tensor(to_x, y.layout().shape().clone())
}

impl InstanceNormPartOps for Flex {
    fn instance_moments_3d(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let x = x.to_contiguous();
        by_dtype!("instance_norm", x.dtype(), moments(&x))
    }

    fn instance_scaling_3d(
        moments: FloatTensor<Self>,
        shares: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let (moments, shares) = (moments.to_contiguous(), shares.to_contiguous());
        by_dtype!("instance_norm", moments.dtype(), scaling(&moments, &shares, epsilon))
    }

    fn instance_apply_3d(
        x: FloatTensor<Self>,
        scaling: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self> {
        let (x, scaling) = (x.to_contiguous(), scaling.to_contiguous());
        by_dtype!("instance_norm", x.dtype(), apply(&x, &scaling, options))
    }

    fn instance_sums_3d(
        y: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self> {
        let (y, grad) = (y.to_contiguous(), grad.to_contiguous());
        by_dtype!("instance_norm", y.dtype(), sums(&y, &grad, options))
    }

    fn instance_finish_3d(
        y: FloatTensor<Self>,
        scaling: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        means: FloatTensor<Self>,
        options: InstanceNormOptions,
    ) -> FloatTensor<Self> {
        let (y, grad) = (y.to_contiguous(), grad.to_contiguous());
        let (scaling, means) = (scaling.to_contiguous(), means.to_contiguous());
        by_dtype!("instance_norm", y.dtype(), finish(&y, &scaling, &grad, &means, options))
    }
}
