//! Burn's linear layers and layer norms, computed by the operations of [`crate::ops`].
//!
//! The parameters stay in Burn's modules, so that their names and layouts in checkpoints, and the
//! import of PyTorch's, are Burn's.

use burn::nn::{LayerNorm, Linear};
use burn::tensor::Tensor;

use crate::ops::{Activation, Precision, layer_norm, linear};

/// The default of Burn and PyTorch, which all layers here have; Burn's module keeps its own to itself.
const EPSILON: f64 = 1e-5;

/// The layer norm over the last axis. Shapes: x `[.., C]`; result the same.
///
/// # Panics
/// If the layer has no shift.
pub fn normalise<const D: usize>(layer: &LayerNorm, x: Tensor<D>) -> Tensor<D> {
    let beta = layer.beta.as_ref().expect("layer norms here have a shift");
    layer_norm(x, layer.gamma.val(), beta.val(), EPSILON)
}

/// The linear layer over the last axis, then the activation. Shapes: x `[.., K]`; result `[.., N]`.
pub fn project<const D: usize>(
    layer: &Linear,
    x: Tensor<D>,
    activation: Activation,
    precision: Precision,
) -> Tensor<D> {
    let bias = layer.bias.as_ref().map(|bias| bias.val());
    linear(x, layer.weight.val(), bias, activation, precision)
}

#[cfg(test)]
mod tests {
    use burn::nn::LayerNormConfig;
    use burn::tensor::{DType, Device, activation::gelu};

    use super::*;
    use crate::layers::initializer::WeightInit;
    use ffdp_kit::testing::{assert_close, normal, tensor, to_f64};

    #[test]
    fn layers_agree_with_burns() {
        let device = Device::flex();
        let x: Tensor<3> = tensor(&normal(2 * 3 * 8, 1), [2, 3, 8], &device, DType::F32);
        let norm = LayerNormConfig::new(8).init(&device);
        let expected = norm.forward(x.clone());
        // Sums of 8 f32 in another order.
        assert_close("norm", &to_f64(normalise(&norm, x.clone())), &to_f64(expected), 1e-6);
        let layer = WeightInit::new(2, &device).linear(8, 5, true);
        let expected = gelu(layer.forward(x.clone()));
        let actual = project(&layer, x, Activation::Gelu, Precision::Single);
        assert_close("linear", &to_f64(actual), &to_f64(expected), 1e-6);
    }
}
