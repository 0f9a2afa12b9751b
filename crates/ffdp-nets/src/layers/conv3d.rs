//! The 3^3 convolution of the decoder.
//!
//! Burn's own `nn::conv::Conv3d` is not used: it fails on a GPU at 80 -> 16 channels of
//! 160x192x224 voxels and is slow on a CPU; see [`conv3d`](crate::ops::conv3d()).

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::initializer::WeightInit;
use crate::ops::{Precision, conv3d_with};

/// A convolution with a kernel of 3^3, stride 1 and zero padding that keeps the size.
#[derive(Module, Debug)]
pub struct Conv3d {
    /// `[C_out, C_in, 3, 3, 3]`.
    pub weight: Param<Tensor<5>>,
    /// `[C_out]`.
    pub bias: Option<Param<Tensor<1>>>,
    /// Of the products.
    #[module(skip)]
    pub precision: Precision,
}

impl Conv3d {
    /// Without bias, with PyTorch's default initial values U(+-1/sqrt(27 C_in)).
    pub fn new(c_in: usize, c_out: usize, precision: Precision, init: &mut WeightInit) -> Self {
        let bound = 1.0 / ((27 * c_in) as f64).sqrt();
        Self { weight: init.uniform([c_out, c_in, 3, 3, 3], bound), bias: None, precision }
    }

    /// With PyTorch's default initial values for weights and bias, U(+-1/sqrt(27 C_in)).
    pub fn with_bias(
        c_in: usize,
        c_out: usize,
        precision: Precision,
        init: &mut WeightInit,
    ) -> Self {
        let bound = 1.0 / ((27 * c_in) as f64).sqrt();
        let weight = init.uniform([c_out, c_in, 3, 3, 3], bound);
        Self { weight, bias: Some(init.uniform([c_out], bound)), precision }
    }

    /// With weights N(0, std^2) and a bias of 0.
    pub fn near_zero(
        c_in: usize,
        c_out: usize,
        std: f64,
        precision: Precision,
        init: &mut WeightInit,
    ) -> Self {
        let weight = init.normal([c_out, c_in, 3, 3, 3], std);
        Self { weight, bias: Some(init.zeros([c_out])), precision }
    }

    /// Shapes: input `[N, C_in, D, H, W]`; output `[N, C_out, D, H, W]`.
    pub fn forward(&self, x: Tensor<5>) -> Tensor<5> {
        self.shifted(conv3d_with(x, self.weight.val(), [1; 3], self.precision))
    }

    /// What the convolution gives, plus the bias. Shapes: y `[N, C_out, D, H, W]`; output the same.
    pub(crate) fn shifted(&self, y: Tensor<5>) -> Tensor<5> {
        let Some(bias) = &self.bias else { return y };
        // Spread over the rows first: the bias' gradient is then the sum of many short sums, which
        // fill a GPU, and not of three long ones.
        let [n, c, d, h, w] = y.dims();
        let rows = bias.val().reshape([1, c, 1, 1]).expand([1, c, d * h, 1]);
        (y.reshape([n, c, d * h, w]) + rows).reshape([n, c, d, h, w])
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::PaddingConfig3d;
    use burn::nn::conv::Conv3dConfig;
    use burn::tensor::{DType, Device};

    use super::*;
    use ffdp_kit::testing::{assert_close, normal, tensor, to_f64};

    #[test]
    fn agrees_with_burns_own_layer() {
        let device = Device::flex();
        let init = &mut WeightInit::new(0, &device);
        let layer = Conv3d::near_zero(3, 5, 0.5, Precision::Single, init);
        let padding = PaddingConfig3d::Explicit(1, 1, 1);
        let mut peer = Conv3dConfig::new([3, 5], [3; 3]).with_padding(padding).init(&device);
        peer.weight = Param::from_tensor(layer.weight.val());
        peer.bias = Some(Param::from_tensor(layer.bias.as_ref().expect("it has one").val()));
        let x = tensor(&normal(2 * 3 * 4 * 5 * 6, 1), [2, 3, 4, 5, 6], &device, DType::F32);
        let (y, expected) = (layer.forward(x.clone()), peer.forward(x));
        // f32 sums of 81 products in another order.
        assert_close("conv3d", &to_f64(y), &to_f64(expected), 2e-6);
    }
}
