use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::leaky_relu;

use super::conv3d::Conv3d;
use super::initializer::WeightInit;
use crate::ops::Precision;

/// Added to the variance before the root, as in PyTorch's `InstanceNorm3d`.
const EPSILON: f64 = 1e-5;
/// Slope of the activation below zero, as in PyTorch's `LeakyReLU`.
const NEGATIVE_SLOPE: f64 = 0.01;

/// Convolution 3^3 without bias, then instance normalisation without affine parameters, then
/// LeakyReLU with slope 0.01: the decoder's unit.
#[derive(Module, Debug)]
pub struct Conv3dRelu {
    /// The convolution.
    pub conv: Conv3d,
}

impl Conv3dRelu {
    /// From `c_in` to `c_out` channels.
    pub fn new(c_in: usize, c_out: usize, precision: Precision, init: &mut WeightInit) -> Self {
        Self { conv: Conv3d::new(c_in, c_out, precision, init) }
    }

    /// Shapes: input `[N, C_in, D, H, W]`; output `[N, C_out, D, H, W]`.
    pub fn forward(&self, x: Tensor<5>) -> Tensor<5> {
        leaky_relu(instance_norm(self.conv.forward(x)), NEGATIVE_SLOPE)
    }
}

/// `(x - mean) / sqrt(var + 1e-5)` with the mean and the biased variance of each channel of each
/// sample.
fn instance_norm(x: Tensor<5>) -> Tensor<5> {
    let [n, c, d, h, w] = x.dims();
    let x = x.reshape([n * c, d * h * w]);
    // Two passes: subtracting the mean first keeps small variances exact in f32.
    let centred = x.clone() - x.mean_dim(1);
    let variance = centred.clone().square().mean_dim(1);
    let normalised = centred * (variance + EPSILON).sqrt().recip();
    normalised.reshape([n, c, d, h, w])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{DType, Device};

    use crate::testing::{normal, tensor};

    #[test]
    fn each_channel_of_each_sample_has_mean_zero_and_unit_variance() {
        let device = Device::flex();
        // A large offset, which a one-pass variance in f32 would not survive.
        let values: Vec<f64> = normal(6 * 8 * 7 * 6, 1).iter().map(|v| 300.0 + 2.0 * v).collect();
        let x: Tensor<5> = tensor(&values, [2, 3, 8, 7, 6], &device, DType::F32);
        let y = instance_norm(x).reshape([6, 8 * 7 * 6]);
        let means: Vec<f32> = y.clone().mean_dim(1).into_data().try_to_vec().unwrap();
        let variances: Vec<f32> = y.square().mean_dim(1).into_data().try_to_vec().unwrap();
        // f32 rounding of values near 300 with deviation 2 is 1e-5 relative to the deviation.
        assert!(means.iter().all(|m| m.abs() < 1e-4), "{means:?}");
        assert!(variances.iter().all(|v| (v - 1.0).abs() < 1e-4), "{variances:?}");
    }

    #[test]
    fn a_constant_channel_becomes_zero() {
        let x = Tensor::<5>::full([1, 1, 4, 4, 4], 0.1, &Device::flex());
        let largest = instance_norm(x).abs().max().into_scalar::<f32>();
        // At worst one ulp of the mean (7e-9) over sqrt(1e-5).
        assert!(largest < 1e-5, "{largest}");
    }

    #[test]
    fn negative_values_are_scaled_by_the_slope() {
        let device = Device::flex();
        let mut unit = Conv3dRelu::new(1, 1, Precision::Single, &mut WeightInit::new(0, &device));
        // The identity kernel: only the normalisation and the activation act.
        let mut kernel = vec![0f32; 27];
        kernel[13] = 1.0;
        let kernel = Tensor::<1>::from_floats(kernel.as_slice(), &device);
        unit.conv.weight = burn::module::Param::from_tensor(kernel.reshape([1, 1, 3, 3, 3]));
        let x = Tensor::<1>::from_floats([-1f32, 1.0, 1.0, -1.0], &device).reshape([1, 1, 1, 2, 2]);
        let y: Vec<f32> = unit.forward(x).into_data().try_to_vec().unwrap();
        for (value, expected) in y.iter().zip([-0.01f32, 1.0, 1.0, -0.01]) {
            assert!((value / expected - 1.0).abs() < 1e-4, "{value} is not {expected}");
        }
    }
}
