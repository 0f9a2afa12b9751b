//! Linear layers on the CPU, composed of Burn's operations, which are as fast as the CPU there.

use burn::backend::Flex;
use burn::backend::ops::{ActivationOps, FloatTensorOps};
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;

use super::{Activation, LinearOps};
use crate::ops::precision::Precision;

fn biased(z: FloatTensor<Flex>, bias: FloatTensor<Flex>) -> FloatTensor<Flex> {
    let row = Shape::from([1, bias.layout().shape()[0]]);
    Flex::float_add(z, Flex::float_reshape(bias, row))
}

impl LinearOps for Flex {
    fn multiply_rows(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        _: Precision,
    ) -> FloatTensor<Self> {
        Self::float_matmul(x, weight)
    }

    fn multiply_rows_to_x(
        grad: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        _: Precision,
    ) -> FloatTensor<Self> {
        Self::float_matmul(grad, Self::float_transpose(weight))
    }

    fn multiply_rows_to_weight(
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        _: Precision,
    ) -> FloatTensor<Self> {
        Self::float_matmul(Self::float_transpose(x), grad)
    }

    fn activate(
        z: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        match activation {
            Activation::Identity => biased(z, bias),
            Activation::Gelu => Self::gelu(biased(z, bias)),
        }
    }

    fn activate_backward(
        z: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        activation: Activation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let entries = bias.layout().shape().clone();
        let to_z = match activation {
            Activation::Identity => grad,
            Activation::Gelu => Self::gelu_backward(biased(z, bias), grad),
        };
        let to_bias = Self::float_reshape(Self::float_sum_dim(to_z.clone(), 0), entries);
        (to_z, to_bias)
    }
}
