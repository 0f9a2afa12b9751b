//! Networks that predict a displacement field from a pair of images, and the fused layers that they are made of.
//!
//! - [`ops`]: the fused layers, as operations on tensors;
//! - [`layers`]: the modules Burn 0.22 lacks or has in a form too slow or too fragile for volumes
//!   (average pooling, stochastic depth, the convolution with its normalisation);
//! - [`transmorph`]: TransMorph; read `transmorph/mod.rs` first;
//! - [`voxelmorph`]: VoxelMorph, a U-Net; [`affine`]: a network that aligns before either;
//! - [`network`]: the choice between them, as it is trained and saved;
//! - [`activations`]: activations in parts, on several devices;
//! - `sharded.rs`: any of the networks on a mesh of devices.
//!
//! Tensors are `[N, C, D, H, W]`; displacements have components (x, y, z) in voxels of the fixed
//! grid.
//!
//! # Map of the crate
//! Arrows point down only (a test of the workspace, `tests/architecture.rs`, enforces it):
//! ```text
//! network                                one of the networks below, with an alignment or without
//!   > affine > voxelmorph, transmorph
//!     > spline_head                        displacements by control points
//!     > sharded                            layers on a mesh of devices
//!       > activations, padding > layers    activations in parts; modules
//!         > ops                            fused layers with hand-derived gradients
//! ffdp-burn                                warps, losses, meshes of devices
//! ```
//! A network of your own is a folder next to `voxelmorph/` and a variant of [`DeformationConfig`] with its lines in
//! `network.rs`; a layer is a folder of `ops/` or a file of `layers/`.

pub mod activations;
pub mod affine;
pub mod layers;
pub mod network;
pub mod ops;
mod padding;
mod sharded;
mod spline_head;
#[cfg(test)]
mod tests;
pub mod transmorph;
pub mod voxelmorph;

pub use affine::{AffineNet, AffineNetConfig};
pub use network::{Deformation, DeformationConfig, Network, NetworkConfig};
pub use transmorph::{Resolution, TransMorph, TransMorphConfig, Variant};
pub use voxelmorph::{VoxelMorph, VoxelMorphConfig};
