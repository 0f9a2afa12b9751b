use burn::config::Config;
use burn::tensor::Device;

use super::TransMorph;
use crate::ops::Precision;
use crate::spline_head::check_spacing;

/// Every extent of the network's input is padded to a multiple of this: patches of 4, then three
/// halvings.
pub(super) const SIZE_MULTIPLE: usize = 32;
/// Side of the cubic patches that become tokens.
pub(super) const PATCH: usize = 4;
/// Channels of the convolutions at the finest level, and of the head's input.
pub(super) const HEAD_CHANNELS: usize = 16;

/// Smallest window side chosen by [`TransMorphConfig::window_for`].
const MIN_WINDOW: usize = 4;
/// Largest: attention costs the cube of the side twice over (512 tokens a window).
const MAX_WINDOW: usize = 8;

/// The published sizes of the network; windows, patch and decoder are common to all.
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub enum Variant {
    /// 6 channels, about 0.24 M parameters: trains on a CPU.
    Tiny,
    /// 48 channels, 11.8 M parameters.
    Small,
    /// 96 channels, 46.8 M parameters.
    Base,
    /// 128 channels and a third stage of twelve blocks, 108 M parameters.
    Large,
}

impl Variant {
    /// Channels of the first stage; stage s has `2^s` times as many.
    pub fn channels(&self) -> usize {
        match self {
            Self::Tiny => 6,
            Self::Small => 48,
            Self::Base => 96,
            Self::Large => 128,
        }
    }

    /// Blocks of each stage.
    pub fn depths(&self) -> [usize; 4] {
        match self {
            Self::Large => [2, 2, 12, 2],
            _ => [2, 2, 4, 2],
        }
    }

    /// Attention heads of each stage.
    pub fn heads(&self) -> [usize; 4] {
        match self {
            Self::Tiny => [2, 2, 4, 4],
            Self::Small => [4, 4, 4, 4],
            Self::Base => [4, 4, 8, 8],
            Self::Large => [4, 4, 8, 16],
        }
    }
}

/// The grid on which the flow is predicted.
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// On the image grid (the published IXI model).
    Full,
    /// On every second voxel, then upsampled by two (the published OASIS model, used by FFDP):
    /// a quarter to a fifth of the time and memory at little loss.
    Half,
}

impl Resolution {
    /// Voxels of the image in one of the flow's grid, along each axis.
    pub(super) fn voxels(self) -> usize {
        match self {
            Self::Full => 1,
            Self::Half => 2,
        }
    }
}

/// Which TransMorph to build.
///
/// ```
/// use burn::tensor::Device;
/// use ffdp_nets::{TransMorph, TransMorphConfig};
///
/// let net: TransMorph = TransMorphConfig::tiny().for_size([64, 64, 64]).init(&Device::flex());
/// ```
#[derive(Config, Debug, PartialEq)]
pub struct TransMorphConfig {
    /// Width and depth of the encoder.
    pub variant: Variant,
    /// Where the flow is predicted. Default: half resolution.
    #[config(default = "Resolution::Half")]
    pub resolution: Resolution,
    /// Attention window in tokens (of 4 voxels), in tensor order (D, H, W). Default: (5, 6, 7),
    /// the published one for 160x192x224. It fixes the shape of the position tables, and so which
    /// weights can be loaded; any image size can be given to any window.
    #[config(default = "[5, 6, 7]")]
    pub window: [usize; 3],
    /// Largest probability of dropping a residual branch in training; it rises linearly from 0
    /// over the blocks. Default: 0.3, as published.
    #[config(default = 0.3)]
    pub drop_path: f64,
    /// With `Some(steps)` the network predicts a stationary velocity, integrated by `steps`
    /// squarings into a diffeomorphic displacement (7 as published). Default: none.
    pub integration_steps: Option<usize>,
    /// With `Some(spacing)` the head predicts control points of cubic B-splines so many voxels apart, a power of two from 2
    /// to 16, in place of the flow at every voxel. Images in one piece only. Default: none.
    pub control_spacing: Option<usize>,
    /// Of the products in the decoder's convolutions and in the linear layers. Default: TF32 on GPUs with
    /// tensor cores, as PyTorch computes convolutions by default; f32 on all other devices.
    /// [`Precision::Single`] asks for f32 everywhere. Attention is in f32 either way, but of windows that do not
    /// fit into a GPU's shared memory (512 tokens of 96 channels a head), whose products are Burn's.
    #[config(default = "Precision::TensorFloat")]
    pub precision: Precision,
    /// Seed of the initial weights.
    #[config(default = 0)]
    pub seed: u64,
}

impl TransMorphConfig {
    /// TransMorph-Tiny.
    pub fn tiny() -> Self {
        Self::new(Variant::Tiny)
    }

    /// TransMorph-Small.
    pub fn small() -> Self {
        Self::new(Variant::Small)
    }

    /// TransMorph, called Base here.
    pub fn base() -> Self {
        Self::new(Variant::Base)
    }

    /// TransMorph-Large.
    pub fn large() -> Self {
        Self::new(Variant::Large)
    }

    /// Takes the window that suits images of `size` voxels, in tensor order (D, H, W).
    pub fn for_size(self, size: [usize; 3]) -> Self {
        self.with_window(Self::window_for(size))
    }

    /// The window for images of `size` voxels (D, H, W).
    ///
    /// The published window (5, 6, 7) is the size 160x192x224 over 32, so that windows tile the
    /// token grids of all four stages exactly. Here likewise `w = ceil(size / 32)`. Below 4, w is
    /// doubled until a window sees enough context (two tokens a side at 64^3 would see 8 voxels):
    /// it then still tiles the finer stages and the coarser ones are padded. Above 8 its largest
    /// divisor between 4 and 8 is taken, or else 8.
    pub fn window_for(size: [usize; 3]) -> [usize; 3] {
        size.map(|extent| {
            let mut side = extent.div_ceil(SIZE_MULTIPLE).max(1);
            while side < MIN_WINDOW {
                side *= 2;
            }
            if side <= MAX_WINDOW {
                return side;
            }
            (MIN_WINDOW..=MAX_WINDOW).rev().find(|w| side % w == 0).unwrap_or(MAX_WINDOW)
        })
    }

    /// Builds the network on `device`; the weights depend on the seed alone.
    ///
    /// # Panics
    /// If a side of the window is 0, `drop_path` lies outside `[0, 1)`, or control points have a spacing that is none.
    pub fn init(&self, device: &Device) -> TransMorph {
        assert!(
            self.window.iter().all(|&side| side > 0),
            "TransMorph: window sides must be at least 1, got {:?}",
            self.window
        );
        check_spacing("TransMorph", self.control_spacing, self.resolution.voxels());
        TransMorph::new(self, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_follow_the_size() {
        let cases = [
            ([160, 192, 224], [5, 6, 7]),
            ([64, 64, 64], [4, 4, 4]),
            ([32, 96, 128], [4, 6, 4]),
            ([48, 64, 40], [4, 4, 4]),
            ([1, 97, 255], [4, 4, 8]),
            ([288, 320, 512], [8, 5, 8]),
            ([448, 352, 384], [7, 8, 6]),
        ];
        for (size, window) in cases {
            assert_eq!(TransMorphConfig::window_for(size), window, "size {size:?}");
        }
    }

    #[test]
    fn settings_survive_a_file() {
        let config = TransMorphConfig::large()
            .with_resolution(Resolution::Full)
            .with_window([4, 4, 6])
            .with_integration_steps(Some(7))
            .with_seed(9);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.json");
        config.save(&path).unwrap();
        assert_eq!(TransMorphConfig::load(&path).unwrap(), config);
    }

    #[test]
    #[should_panic(expected = "window sides must be at least 1, got [4, 0, 4]")]
    fn an_empty_window_is_refused() {
        TransMorphConfig::tiny().with_window([4, 0, 4]).init(&Device::flex());
    }
}
