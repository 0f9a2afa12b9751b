use burn::module::Module;
use burn::tensor::Tensor;

use super::conv3d::Conv3d;
use super::initializer::WeightInit;
use crate::ops::{InstanceNormOptions, Precision, instance_norm, join_conv3d};

/// Convolution 3^3 without bias, then instance normalisation without affine parameters, then
/// LeakyReLU, with slope 0.01 if nothing else is set: the decoder's unit.
#[derive(Module, Debug)]
pub struct Conv3dRelu {
    /// The convolution.
    pub conv: Conv3d,
    /// The normalisation and the activation.
    #[module(skip)]
    pub norm: InstanceNormOptions,
}

impl Conv3dRelu {
    /// From `c_in` to `c_out` channels.
    pub fn new(c_in: usize, c_out: usize, precision: Precision, init: &mut WeightInit) -> Self {
        Self {
            conv: Conv3d::new(c_in, c_out, precision, init),
            norm: InstanceNormOptions::default(),
        }
    }

    /// Shapes: input `[N, C_in, D, H, W]`; output `[N, C_out, D, H, W]`.
    pub fn forward(&self, x: Tensor<5>) -> Tensor<5> {
        instance_norm(self.conv.forward(x), &self.norm)
    }

    /// The unit of `x` at twice its resolution joined with `skip`. Shapes: x `[N, C, D, H, W]`, skip
    /// `[N, C_in - C, 2D, 2H, 2W]`; output `[N, C_out, 2D, 2H, 2W]`.
    pub fn forward_joined(&self, x: Tensor<5>, skip: Tensor<5>) -> Tensor<5> {
        let y = join_conv3d(x, skip, self.conv.weight.val(), self.conv.precision);
        instance_norm(y, &self.norm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

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
