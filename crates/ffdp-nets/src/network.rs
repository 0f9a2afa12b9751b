//! The networks as one: what deforms, and optionally what aligns before it.
//!
//! ```text
//! moving, fixed ─ alignment ─ a        moved(p) = moving(p + a(p))
//! moved, fixed ─ deformation ─ u       displacement(p) = u(p) + a(p + u(p))
//! ```

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Tensor};

use crate::affine::{AffineNet, AffineNetConfig};
use crate::transmorph::{TransMorph, TransMorphConfig};
use crate::voxelmorph::{VoxelMorph, VoxelMorphConfig};

mod sharded;

/// Which network deforms.
#[derive(Config, Debug, PartialEq)]
pub enum DeformationConfig {
    /// TransMorph.
    TransMorph(TransMorphConfig),
    /// VoxelMorph.
    VoxelMorph(VoxelMorphConfig),
}

/// Which network to build.
#[derive(Config, Debug, PartialEq)]
pub struct NetworkConfig {
    /// What deforms.
    pub deformation: DeformationConfig,
    /// What aligns first. Default: nothing.
    pub alignment: Option<AffineNetConfig>,
}

impl NetworkConfig {
    /// Builds the network on `device`; the weights depend on the seeds alone.
    ///
    /// # Panics
    /// As the configurations it is made of.
    pub fn init(&self, device: &Device) -> Network {
        let alignment = self.alignment.as_ref().map(|config| config.init(device));
        let deformation = match &self.deformation {
            DeformationConfig::TransMorph(config) => Deformation::TransMorph(config.init(device)),
            DeformationConfig::VoxelMorph(config) => Deformation::VoxelMorph(config.init(device)),
        };
        Network { alignment, deformation }
    }
}

impl From<TransMorphConfig> for NetworkConfig {
    fn from(config: TransMorphConfig) -> Self {
        Self::new(DeformationConfig::TransMorph(config))
    }
}

impl From<VoxelMorphConfig> for NetworkConfig {
    fn from(config: VoxelMorphConfig) -> Self {
        Self::new(DeformationConfig::VoxelMorph(config))
    }
}

/// A network that deforms.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant)] // a program has one, and its weights lie elsewhere
pub enum Deformation {
    /// TransMorph.
    TransMorph(TransMorph),
    /// VoxelMorph.
    VoxelMorph(VoxelMorph),
}

impl Deformation {
    /// The displacement that warps `moving` onto `fixed`; shapes and panics as
    /// [`TransMorph::forward`].
    pub fn forward(&self, moving: Tensor<5>, fixed: Tensor<5>) -> Tensor<5> {
        match self {
            Self::TransMorph(network) => network.forward(moving, fixed),
            Self::VoxelMorph(network) => network.forward(moving, fixed),
        }
    }

    /// The displacement, or the velocity of a diffeomorphic network; shapes and panics as
    /// [`TransMorph::forward`].
    pub fn flow(&self, moving: Tensor<5>, fixed: Tensor<5>) -> Tensor<5> {
        match self {
            Self::TransMorph(network) => network.flow(moving, fixed),
            Self::VoxelMorph(network) => network.flow(moving, fixed),
        }
    }
}

/// A network that registers. Built by [`NetworkConfig::init`].
#[derive(Module, Debug)]
pub struct Network {
    /// What aligns first.
    pub alignment: Option<AffineNet>,
    /// What deforms.
    pub deformation: Deformation,
}

impl Network {
    /// The displacement that warps `moving` onto `fixed`, alignment and deformation in one.
    ///
    /// Shapes: moving, fixed `[N, 1, D, H, W]`, intensities in about `[0, 1]`; output
    /// `[N, 3, D, H, W]`, components (x, y, z), voxels.
    ///
    /// # Panics
    /// If the shapes differ, have more than one channel or an empty extent.
    pub fn forward(&self, moving: Tensor<5>, fixed: Tensor<5>) -> Tensor<5> {
        let Some(alignment) = &self.alignment else {
            return self.deformation.forward(moving, fixed);
        };
        let affine = alignment.forward(moving.clone(), fixed.clone());
        let moved = ffdp_burn::ops::warp(moving, affine.clone());
        ffdp_burn::ops::compose(affine, self.deformation.forward(moved, fixed))
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Param;
    use burn::tensor::DType;

    use super::*;
    use ffdp_kit::testing::{assert_close, tensor, to_f64, uniform};

    fn image(seed: u64, device: &Device) -> Tensor<5> {
        tensor(&uniform(16 * 16 * 16, 0.0, 1.0, seed), [1, 1, 16, 16, 16], device, DType::F32)
    }

    /// With a head whose bias is a shift, the deformation is that shift; the alignment's likewise.
    #[test]
    fn the_whole_displacement_is_the_alignment_after_the_deformation() {
        let device = Device::flex();
        let small = VoxelMorphConfig::new().with_encoder([2; 4]).with_decoder([2; 4]);
        let config: NetworkConfig = small.with_last([2; 3]).into();
        let mut network = config.with_alignment(Some(AffineNetConfig::new())).init(&device);
        let alignment = network.alignment.as_mut().expect("asked for");
        // 20 % longer along x: the shift of 2 voxels becomes 2.4.
        let mut numbers = [0f32; 12];
        numbers[0] = 0.2;
        alignment.weight = Param::from_tensor(alignment.weight.val().zeros_like());
        alignment.bias = Param::from_tensor(Tensor::from_floats(numbers, &device));
        let Deformation::VoxelMorph(deformation) = &mut network.deformation else {
            unreachable!("a VoxelMorph was asked for")
        };
        let head = &mut deformation.head;
        head.weight = Param::from_tensor(head.weight.val().zeros_like());
        head.bias = Some(Param::from_tensor(Tensor::from_floats([2.0, 0.0, -1.0], &device)));
        let u = network.forward(image(1, &device), image(2, &device));
        let mut expected = vec![0.0; 3 * 16 * 16 * 16];
        for voxel in 0..16 * 16 * 16 {
            // Outside the grid the outer field keeps its border value.
            let x = (voxel % 16) as f64;
            expected[voxel] = 2.0 + 0.2 * ((x + 2.0).min(15.0) - 7.5);
            expected[2 * 16 * 16 * 16 + voxel] = -1.0;
        }
        assert_close("displacement", &to_f64(u), &expected, 1e-6);
    }

    #[test]
    fn settings_survive_a_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("network.json");
        let alignment = Some(AffineNetConfig::new().with_seed(3));
        for config in [
            NetworkConfig::from(TransMorphConfig::tiny().for_size([64, 64, 64])),
            NetworkConfig::from(VoxelMorphConfig::new()).with_alignment(alignment),
        ] {
            config.save(&path).expect("writable");
            assert_eq!(NetworkConfig::load(&path).expect("readable"), config);
        }
    }
}
