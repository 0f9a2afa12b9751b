use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor};

use super::window::Windows;
use crate::nets::layers::initializer::WeightInit;

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
}

/// What all blocks of one kind (aligned or shifted) of a stage share in a forward pass.
pub struct WindowContext {
    /// The cut.
    pub windows: Windows,
    offset_rows: Tensor<1, Int>,
    mask: Option<Tensor<4>>,
}

impl WindowContext {
    /// Position rows and mask of `windows`, on `device`.
    pub fn new(windows: Windows, device: &Device) -> Self {
        Self { windows, offset_rows: windows.offset_rows(device), mask: windows.mask(device) }
    }
}

impl WindowAttention {
    pub(super) fn new(
        channels: usize,
        heads: usize,
        window: [usize; 3],
        init: &mut WeightInit,
    ) -> Self {
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
        }
    }

    /// Shapes: windows `[N * windows, tokens, C]`; output the same.
    pub fn forward(&self, x: Tensor<3>, context: &WindowContext) -> Tensor<3> {
        let [all, tokens, c] = x.dims();
        let head_channels = c / self.heads;
        let [q, k, v] = self.heads_of(self.qkv.forward(x));
        let scale = (head_channels as f64).powf(-0.5);
        let scores = (q * scale).matmul(k.transpose()) + self.position_bias(context);
        let scores = match &context.mask {
            None => scores,
            Some(mask) => add_mask(scores, mask),
        };
        let attended = softmax(scores, 3).matmul(v);
        self.proj.forward(attended.swap_dims(1, 2).reshape([all, tokens, c]))
    }

    /// Shapes: `[B, tokens, 3C]` to three of `[B, heads, tokens, C / heads]`.
    fn heads_of(&self, qkv: Tensor<3>) -> [Tensor<4>; 3] {
        let [all, tokens, c3] = qkv.dims();
        let head_channels = c3 / 3 / self.heads;
        let qkv = qkv.reshape([all, tokens, 3, self.heads, head_channels]).permute([2, 0, 3, 1, 4]);
        std::array::from_fn(|i| qkv.clone().slice_dim(0, i..i + 1).squeeze_dim(0))
    }

    /// Shape: `[1, heads, tokens, tokens]`.
    fn position_bias(&self, context: &WindowContext) -> Tensor<4> {
        let tokens = context.windows.tokens();
        self.relative_position_bias_table
            .val()
            .select(0, context.offset_rows.clone())
            .reshape([1, tokens, tokens, self.heads])
            .permute([0, 3, 1, 2])
    }
}

/// Shapes: scores `[N * windows, heads, tokens, tokens]`, mask `[windows, 1, tokens, tokens]`.
fn add_mask(scores: Tensor<4>, mask: &Tensor<4>) -> Tensor<4> {
    let [all, heads, t, _] = scores.dims();
    let windows = mask.dims()[0];
    let mask = mask.clone().cast(scores.dtype());
    if all == windows {
        return scores + mask;
    }
    let mask = mask.unsqueeze::<5>();
    let scores = scores.reshape([all / windows, windows, heads, t, t]) + mask;
    scores.reshape([all, heads, t, t])
}
