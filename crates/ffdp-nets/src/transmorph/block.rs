use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig, Linear};
use burn::tensor::Tensor;

use super::attention::{WindowAttention, WindowContext};
use super::plan::StagePlan;
use crate::layers::DropPath;
use crate::layers::fused::{normalise, project};
use crate::layers::initializer::WeightInit;
use crate::ops::{Activation, Precision};

/// Hidden channels of the perceptron over those of a token.
const MLP_RATIO: usize = 4;

/// Perceptron of each token: `C -> 4C -> C` with GELU between.
#[derive(Module, Debug)]
pub struct Mlp {
    /// `C -> 4C`.
    pub fc1: Linear,
    /// `4C -> C`.
    pub fc2: Linear,
    #[module(skip)]
    precision: Precision,
}

impl Mlp {
    fn new(channels: usize, precision: Precision, init: &mut WeightInit) -> Self {
        let hidden = MLP_RATIO * channels;
        let [fc1, fc2] =
            [(channels, hidden), (hidden, channels)].map(|(from, to)| init.linear(from, to, true));
        Self { fc1, fc2, precision }
    }

    /// Shapes: `[..., C]`; output the same.
    pub fn forward(&self, x: Tensor<5>) -> Tensor<5> {
        let hidden = project(&self.fc1, x, Activation::Gelu, self.precision);
        project(&self.fc2, hidden, Activation::Identity, self.precision)
    }
}

/// Swin block: windowed attention, then a perceptron, each behind a layer norm and a residual
/// connection with stochastic depth.
#[derive(Module, Debug)]
pub struct SwinBlock {
    /// Before the attention.
    pub norm1: LayerNorm,
    /// Within windows.
    pub attn: WindowAttention,
    /// Of both branches.
    pub drop_path: DropPath,
    /// Before the perceptron.
    pub norm2: LayerNorm,
    /// Of each token.
    pub mlp: Mlp,
}

impl SwinBlock {
    pub(super) fn new(plan: &StagePlan, drop_path: f64, init: &mut WeightInit) -> Self {
        let norm = LayerNormConfig::new(plan.channels);
        Self {
            norm1: norm.init(init.device()),
            attn: WindowAttention::new(plan, init),
            drop_path: DropPath::new(drop_path),
            norm2: norm.init(init.device()),
            mlp: Mlp::new(plan.channels, plan.precision, init),
        }
    }

    /// Shapes: tokens `[N, D, H, W, C]`; output the same.
    pub fn forward(&self, tokens: Tensor<5>, context: &WindowContext) -> Tensor<5> {
        let windows = context.windows.partition(normalise(&self.norm1, tokens.clone()));
        let attended = context.windows.reverse(self.attn.forward(windows, context));
        let tokens = tokens + self.drop_path.forward(attended);
        let refined = self.mlp.forward(normalise(&self.norm2, tokens.clone()));
        tokens + self.drop_path.forward(refined)
    }
}
