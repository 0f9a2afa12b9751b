use burn::module::Module;
use burn::tensor::Tensor;

use super::config::{HEAD_CHANNELS, Resolution, TransMorphConfig};
use super::encoder::IMAGES;
use crate::layers::Conv3dRelu;
use crate::layers::initializer::WeightInit;
use crate::ops::{Precision, mean_pool};

/// Upsamples by two, joins a skip connection and convolves twice.
#[derive(Module, Debug)]
pub struct DecoderBlock {
    /// Of the joined channels.
    pub conv1: Conv3dRelu,
    /// Of the block's own channels.
    pub conv2: Conv3dRelu,
}

impl DecoderBlock {
    fn new(
        c_in: usize,
        c_skip: usize,
        c_out: usize,
        precision: Precision,
        init: &mut WeightInit,
    ) -> Self {
        Self {
            conv1: Conv3dRelu::new(c_in + c_skip, c_out, precision, init),
            conv2: Conv3dRelu::new(c_out, c_out, precision, init),
        }
    }

    /// Shapes: x `[N, C_in, D, H, W]`, skip `[N, C_skip, 2D, 2H, 2W]`; output
    /// `[N, C_out, 2D, 2H, 2W]`.
    pub fn forward(&self, x: Tensor<5>, skip: Tensor<5>) -> Tensor<5> {
        self.conv2.forward(self.conv1.forward_joined(x, skip))
    }
}

/// From the encoder's stages back to the flow's grid, with skips from the stages and from two
/// convolutions of the images themselves.
#[derive(Module, Debug)]
pub struct Decoder {
    /// Of the images at half resolution.
    pub c1: Conv3dRelu,
    /// Of the images at full resolution. The half-resolution network never evaluates it: the
    /// published model carries these 864 weights, so they stay for its checkpoints and counts.
    pub c2: Conv3dRelu,
    /// `8C + 4C -> 4C`.
    pub up0: DecoderBlock,
    /// `4C + 2C -> 2C`.
    pub up1: DecoderBlock,
    /// `2C + C -> C`.
    pub up2: DecoderBlock,
    /// `C + C/2 -> C/2`, or `-> 16` in the half-resolution network, where it is the last.
    pub up3: DecoderBlock,
    /// `C/2 + 16 -> 16`, full resolution only.
    pub up4: Option<DecoderBlock>,
}

impl Decoder {
    pub(super) fn new(config: &TransMorphConfig, init: &mut WeightInit) -> Self {
        let (c, precision) = (config.variant.channels(), config.precision);
        let half = c / 2;
        let full = config.resolution == Resolution::Full;
        Self {
            c1: Conv3dRelu::new(IMAGES, half, precision, init),
            c2: Conv3dRelu::new(IMAGES, HEAD_CHANNELS, precision, init),
            up0: DecoderBlock::new(8 * c, 4 * c, 4 * c, precision, init),
            up1: DecoderBlock::new(4 * c, 2 * c, 2 * c, precision, init),
            up2: DecoderBlock::new(2 * c, c, c, precision, init),
            up3: DecoderBlock::new(
                c,
                half,
                if full { half } else { HEAD_CHANNELS },
                precision,
                init,
            ),
            up4: full
                .then(|| DecoderBlock::new(half, HEAD_CHANNELS, HEAD_CHANNELS, precision, init)),
        }
    }

    /// Shapes: images `[N, 2, D, H, W]`, stages as the encoder returns them; output 16 channels
    /// at `D x H x W`, or at half of it in the half-resolution network.
    ///
    /// # Panics
    /// Unless there are four stages.
    pub fn forward(&self, images: Tensor<5>, stages: Vec<Tensor<5>>) -> Tensor<5> {
        let [s0, s1, s2, s3]: [Tensor<5>; 4] =
            stages.try_into().expect("the decoder joins four encoder stages");
        let halved = self.c1.forward(mean_pool(images.clone()));
        let x = self.up0.forward(s3, s2);
        let x = self.up1.forward(x, s1);
        let x = self.up2.forward(x, s0);
        let x = self.up3.forward(x, halved);
        match &self.up4 {
            None => x,
            Some(up4) => up4.forward(x, self.c2.forward(images)),
        }
    }
}
