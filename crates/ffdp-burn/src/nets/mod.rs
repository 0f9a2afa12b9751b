//! Networks that predict a displacement field from a pair of images.
//!
//! - [`layers`]: the modules Burn 0.22 lacks or has in a form too slow or too fragile for volumes
//!   (average pooling, stochastic depth, the convolution with its normalisation);
//! - [`transmorph`]: TransMorph; read `transmorph/mod.rs` first;
//! - [`voxelmorph`]: VoxelMorph, a U-Net; [`affine`]: a network that aligns before either;
//! - [`network`]: the choice between them, as it is trained and saved;
//! - `sharded.rs`: any of them on a mesh of devices.
//!
//! Tensors are `[N, C, D, H, W]`; displacements have components (x, y, z) in voxels of the fixed
//! grid.

pub mod affine;
pub mod layers;
pub mod network;
mod padding;
mod sharded;
#[cfg(test)]
mod tests;
pub mod transmorph;
pub mod voxelmorph;

pub use affine::{AffineNet, AffineNetConfig};
pub use network::{Deformation, DeformationConfig, Network, NetworkConfig};
pub use transmorph::{Resolution, TransMorph, TransMorphConfig, Variant};
pub use voxelmorph::{VoxelMorph, VoxelMorphConfig};
