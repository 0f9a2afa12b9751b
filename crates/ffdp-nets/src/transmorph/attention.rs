use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};

use super::plan::StagePlan;
use super::window::Windows;
use crate::layers::fused::project;
use crate::layers::initializer::WeightInit;
use crate::ops::{Activation, Precision, position_bias, window_attention};

/// Deviation of the initial position table.
const TABLE_STD: f64 = 0.02;

/// Multi-head attention within windows, with a learned bias for each relative position.
///
/// `softmax(q k^T / sqrt(head channels) + bias(offset) + mask) v`, heads joined and projected.
#[derive(Module, Debug)]
pub struct WindowAttention {
    /// `C -> 3C`, without bias: queries, keys and values.
    pub qkv: Linear,
    /// `C -> C`.
    pub proj: Linear,
    /// `[(2 wd - 1)(2 wh - 1)(2 ww - 1), heads]`.
    pub relative_position_bias_table: Param<Tensor<2>>,
    heads: usize,
    #[module(skip)]
    precision: Precision,
}

/// What all blocks of one kind (aligned or shifted) of a stage share in a forward pass.
pub struct WindowContext {
    /// The cut.
    pub windows: Windows,
    regions: Tensor<2>,
}

impl WindowContext {
    /// The regions of `windows`, on `device`.
    pub fn new(windows: Windows, device: &Device) -> Self {
        Self { windows, regions: windows.regions(device) }
    }

    /// `windows` that are a part of larger ones, with the regions they have there, `[windows, tokens]`.
    pub(super) fn with_regions(windows: Windows, regions: Tensor<2>) -> Self {
        Self { windows, regions }
    }
}

impl WindowAttention {
    pub(super) fn new(plan: &StagePlan, init: &mut WeightInit) -> Self {
        let StagePlan { channels, heads, window, precision, .. } = *plan;
        assert_eq!(
            channels % heads,
            0,
            "attention: {heads} heads do not divide {channels} channels"
        );
        let offsets = window.iter().map(|side| 2 * side - 1).product();
        Self {
            qkv: init.linear(channels, 3 * channels, false),
            proj: init.linear(channels, channels, true),
            relative_position_bias_table: init.truncated_normal([offsets, heads], TABLE_STD),
            heads,
            precision,
        }
    }

    /// Shapes: windows `[N * windows, tokens, C]`; output the same.
    pub fn forward(&self, x: Tensor<3>, context: &WindowContext) -> Tensor<3> {
        let qkv = project(&self.qkv, x, Activation::Identity, self.precision);
        let regions = context.regions.clone().cast(qkv.dtype());
        let table = self.relative_position_bias_table.val();
        let bias = position_bias(table, context.windows.window);
        let attended = window_attention(qkv, bias, regions);
        project(&self.proj, attended, Activation::Identity, self.precision)
    }
}
