//! Gaussian smoothing by one convolution per axis.

use burn::Tensor;
use burn::tensor::TensorData;

use super::lncc::convolve;
use crate::ops::GaussianOptions;

/// Gaussian smoothing of every channel, renormalised at the borders; see
/// [`crate::ops::gaussian()`].
///
/// # Shapes
/// x and result `[N, C, D, H, W]`.
pub fn gaussian(x: Tensor<5>, options: &GaussianOptions) -> Tensor<5> {
    let dims = x.dims();
    // x, y, z are the last, the last but one and the last but two dimensions.
    (0..3).map(|axis| (axis, 4 - axis)).fold(x, |x, (axis, dim)| {
        let half = options.half_kernel(axis);
        let radius = half.len() - 1;
        if radius == 0 {
            return x;
        }
        let kernel: Vec<f64> = (0..=2 * radius).map(|i| half[i.abs_diff(radius)]).collect();
        let mass = |p: usize| -> f64 {
            let near = (0..dims[dim]).map(|q| half.get(p.abs_diff(q)).copied().unwrap_or(0.0));
            near.sum()
        };
        let inverse: Vec<f64> = (0..dims[dim]).map(|p| 1.0 / mass(p)).collect();
        let mut shape = [1; 5];
        shape[dim] = dims[dim];
        let inverse = TensorData::new(inverse, shape);
        let inverse = Tensor::<5>::from_data(inverse, (&x.device(), x.dtype()));
        convolve(x, kernel, dim) * inverse
    })
}
