//! TransMorph: a Swin-transformer encoder and a convolutional decoder that predict the displacement
//! aligning a pair of volumes.
//!
//! ```text
//! moving, fixed ─ patch embedding ─ stage 0 ─ stage 1 ─ stage 2 ─ stage 3     encoder.rs
//!        │                            │         │         │         │         (stage.rs, block.rs,
//!        │                            │         │         └── up0 ──┘          attention.rs,
//!        │                            │         └───── up1 ──┘                 window.rs, patch.rs)
//!        ├─ mean of 2^3 ─ c1 ─ up3 ── up2 ─────────┘                           decoder.rs
//!        └─ c2 ─ up4 ──────────┘                 (up4 only at full resolution)
//!                 └─ head ─ [upsampling x2] ─ [scaling and squaring] ─ displacement   head.rs
//! ```
//!
//! Two published models exist, [`Resolution::Full`] (IXI) and [`Resolution::Half`] (OASIS, the one
//! FFDP trains); their weights are not interchangeable. Parameter counts are those of the published
//! models, to the last weight.
//!
//! # Conventions
//! The displacement is `u(p)` in voxels of the fixed grid, components (x, y, z), with
//! `warped(p) = moving(p + u(p))`; zero means identity at either resolution. In the
//! half-resolution model the head's values are in full-resolution voxels too: upsampling them by
//! two interpolates and does not rescale. (The published model orders components (D, H, W), which
//! an importer of weights has to permute.)
//!
//! # Sizes
//! Any. Each extent is padded with zeros at its far end to a multiple of 32 and the displacement is
//! cropped back. The padded size over 32 is the natural window: [`TransMorphConfig::for_size`].
//!
//! Source: Chen et al., "TransMorph: Transformer for unsupervised medical image registration",
//! Medical Image Analysis 82 (2022), arXiv 2111.10480; Liu et al., "Swin Transformer", ICCV 2021.

mod attention;
mod block;
mod config;
mod decoder;
mod encoder;
mod head;
mod patch;
mod plan;
mod rolled;
mod sharded;
mod stage;
#[cfg(test)]
mod tests;
mod window;

use burn::module::Module;
use burn::tensor::{Device, Tensor};

pub use attention::{WindowAttention, WindowContext};
pub use block::{Mlp, SwinBlock};
pub use config::{Resolution, TransMorphConfig, Variant};
pub use decoder::{Decoder, DecoderBlock};
pub use encoder::Encoder;
pub use head::FlowHead;
pub use patch::{PatchEmbed, PatchMerging};
pub use stage::Stage;
pub use window::Windows;

use crate::layers::initializer::WeightInit;
use crate::padding::{cropped, padded_pair};

/// TransMorph. Built by [`TransMorphConfig::init`].
#[derive(Module, Debug)]
pub struct TransMorph {
    /// Both images to features at four scales.
    pub encoder: Encoder,
    /// Features to the flow's grid.
    pub decoder: Decoder,
    /// Features to flow.
    pub head: FlowHead,
    integration_steps: Option<usize>,
}

impl TransMorph {
    pub(crate) fn new(config: &TransMorphConfig, device: &Device) -> Self {
        let init = &mut WeightInit::new(config.seed, device);
        Self {
            encoder: Encoder::new(config, init),
            decoder: Decoder::new(config, init),
            head: FlowHead::new(config, init),
            integration_steps: config.integration_steps,
        }
    }

    /// The displacement that warps `moving` onto `fixed`.
    ///
    /// Shapes: moving, fixed `[N, 1, D, H, W]`, intensities in about `[0, 1]`; output
    /// `[N, 3, D, H, W]`, components (x, y, z), voxels.
    ///
    /// # Panics
    /// If the shapes differ, have more than one channel or an empty extent.
    pub fn forward(&self, moving: Tensor<5>, fixed: Tensor<5>) -> Tensor<5> {
        let flow = self.flow(moving, fixed);
        match self.integration_steps {
            None => flow,
            Some(steps) => ffdp_burn::ops::compose::exp(flow, steps),
        }
    }

    /// What the head predicts: the displacement itself, or the stationary velocity of a
    /// diffeomorphic network. Shapes and panics as [`TransMorph::forward`].
    pub fn flow(&self, moving: Tensor<5>, fixed: Tensor<5>) -> Tensor<5> {
        let dims = moving.dims();
        let images = padded_pair("TransMorph", moving, fixed, config::SIZE_MULTIPLE);
        let stages = self.encoder.forward(images.clone());
        let size = [dims[2], dims[3], dims[4]];
        cropped(self.head.forward(self.decoder.forward(images, stages), size), dims)
    }
}
