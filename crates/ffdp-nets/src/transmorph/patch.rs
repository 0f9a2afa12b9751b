use burn::module::Module;
use burn::nn::conv::Conv3d;
use burn::nn::{LayerNorm, LayerNormConfig, Linear};
use burn::tensor::{Int, Tensor};

use super::config::PATCH;
use crate::layers::append_zeros;
use crate::layers::fused::{normalise, project};
use crate::layers::initializer::WeightInit;
use crate::ops::{Activation, Precision, linear};

/// Cuts a volume into patches of 4^3 voxels and projects each to a token, then normalises it.
#[derive(Module, Debug)]
pub struct PatchEmbed {
    /// Convolution with kernel and stride 4; computed as one product of matrices, since Burn's
    /// gradient of its weight is a convolution with a kernel of the size of the token grid.
    pub proj: Conv3d,
    /// Over the channels of a token.
    pub norm: LayerNorm,
    #[module(skip)]
    precision: Precision,
}

impl PatchEmbed {
    pub(super) fn new(
        c_in: usize,
        channels: usize,
        precision: Precision,
        init: &mut WeightInit,
    ) -> Self {
        let proj = init.patch_conv(c_in, channels, PATCH);
        Self { proj, norm: LayerNormConfig::new(channels).init(init.device()), precision }
    }

    /// Shapes: volume `[N, C_in, D, H, W]` with extents divisible by 4; tokens
    /// `[N, D/4, H/4, W/4, C]`.
    pub fn forward(&self, volume: Tensor<5>) -> Tensor<5> {
        let [n, c, d, h, w] = volume.dims();
        let weight = self.proj.weight.val();
        let (channels, inputs) = (weight.dims()[0], c * PATCH.pow(3));
        let [d, h, w] = [d, h, w].map(|extent| extent / PATCH);
        let patches = volume
            .reshape([n, c, d, PATCH, h, PATCH, w, PATCH])
            .permute([0, 2, 4, 6, 1, 3, 5, 7])
            .reshape([n, d, h, w, inputs]);
        let bias = self.proj.bias.as_ref().expect("a patch convolution has a bias").val();
        let weight = weight.reshape([channels, inputs]).transpose();
        let tokens = linear(patches, weight, Some(bias), Activation::Identity, self.precision);
        normalise(&self.norm, tokens)
    }
}

/// For each of the eight neighbours in the published order, its index in binary order (d h w).
///
/// Published: (000, 100, 010, 001, 110, 011, 101, 111). The order matters to imported weights.
const NEIGHBOUR_ORDER: [i32; 8] = [0b000, 0b100, 0b010, 0b001, 0b110, 0b011, 0b101, 0b111];

/// Joins 2^3 neighbouring tokens into one of twice the channels.
#[derive(Module, Debug)]
pub struct PatchMerging {
    /// `8C -> 2C`, without bias.
    pub reduction: Linear,
    /// Over the `8C` joined channels.
    pub norm: LayerNorm,
    #[module(skip)]
    precision: Precision,
}

impl PatchMerging {
    pub(super) fn new(channels: usize, precision: Precision, init: &mut WeightInit) -> Self {
        let reduction = init.linear(8 * channels, 2 * channels, false);
        let norm = LayerNormConfig::new(8 * channels).init(init.device());
        Self { reduction, norm, precision }
    }

    /// Shapes: tokens `[N, D, H, W, C]`; output `[N, ceil(D/2), ceil(H/2), ceil(W/2), 2C]`, odd
    /// extents being padded with zeros.
    pub fn forward(&self, tokens: Tensor<5>) -> Tensor<5> {
        let joined = normalise(&self.norm, join_neighbours(tokens));
        project(&self.reduction, joined, Activation::Identity, self.precision)
    }
}

/// Shapes: `[N, D, H, W, C]` to `[N, ceil(D/2), ceil(H/2), ceil(W/2), 8C]`.
fn join_neighbours(tokens: Tensor<5>) -> Tensor<5> {
    let [n, d, h, w, c] = tokens.dims();
    let half = [d, h, w].map(|extent| extent.div_ceil(2));
    let [sd, sh, sw] = [2 * half[0] - d, 2 * half[1] - h, 2 * half[2] - w];
    let tokens = append_zeros(tokens, [0, sd, sh, sw, 0]);
    let [d, h, w] = half;
    let order = Tensor::<1, Int>::from_ints(NEIGHBOUR_ORDER, &tokens.device());
    tokens
        .reshape([n, d, 2, h, 2, w, 2, c])
        .permute([0, 1, 3, 5, 2, 4, 6, 7])
        .reshape([n * d * h * w, 8, c])
        .select(1, order)
        .reshape([n, d, h, w, 8 * c])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn neighbours_are_joined_in_the_published_order() {
        // The value of a token is its position written as the digits d h w.
        let digits: Vec<f32> =
            (0..8).map(|i| (i / 4 * 100 + i / 2 % 2 * 10 + i % 2) as f32).collect();
        let tokens = Tensor::<1>::from_floats(digits.as_slice(), &Device::flex());
        let joined = join_neighbours(tokens.reshape([1, 2, 2, 2, 1]));
        let joined: Vec<f32> = joined.reshape([8]).into_data().try_to_vec().unwrap();
        assert_eq!(joined, [0.0, 100.0, 10.0, 1.0, 110.0, 11.0, 101.0, 111.0]);
    }

    #[test]
    fn odd_grids_are_padded_with_zeros() {
        let tokens = Tensor::<5>::ones([2, 3, 1, 2, 5], &Device::flex());
        let joined = join_neighbours(tokens);
        assert_eq!(joined.dims(), [2, 2, 1, 1, 40]);
        assert_eq!(joined.sum().into_scalar::<f32>(), (2 * 3 * 2 * 5) as f32);
    }

    #[test]
    fn patches_are_those_of_the_convolution() {
        let device = Device::flex();
        let embed = PatchEmbed::new(2, 6, Precision::Single, &mut WeightInit::new(0, &device));
        let count = 2 * 2 * 8 * 12 * 4;
        let volume = Tensor::<1, Int>::arange(0..count, &device).float().sin();
        let volume = volume.reshape([2, 2, 8, 12, 4]);
        let convolved = embed.proj.forward(volume.clone()).permute([0, 2, 3, 4, 1]);
        let difference = embed.forward(volume) - embed.norm.forward(convolved);
        // Sums of 128 products in another order, normalised.
        assert!(difference.abs().max().into_scalar::<f32>() < 1e-5);
    }

    #[test]
    fn a_token_depends_on_its_own_patch_only() {
        let device = Device::flex();
        let embed = PatchEmbed::new(2, 6, Precision::Single, &mut WeightInit::new(0, &device));
        let volume = Tensor::<5>::zeros([1, 2, 8, 8, 12], &device);
        let one = Tensor::<5>::ones([1, 2, 4, 4, 4], &device);
        let changed = volume.clone().slice_assign([0..1, 0..2, 4..8, 0..4, 8..12], one);
        let difference = (embed.forward(changed) - embed.forward(volume)).abs().sum_dim(4);
        assert_eq!(difference.dims(), [1, 2, 2, 3, 1]);
        let difference: Vec<f32> = difference.into_data().try_to_vec().unwrap();
        for (i, &d) in difference.iter().enumerate() {
            assert_eq!(d > 0.0, i == 8, "token {i}");
        }
    }
}
