//! Networks that predict a displacement field from a pair of images.
//!
//! - [`layers`]: the modules Burn 0.22 lacks or has in a form too slow or too fragile for volumes
//!   (average pooling, stochastic depth, the convolution with its normalisation);
//! - [`transmorph`]: TransMorph; read `transmorph/mod.rs` first.
//!
//! Tensors are `[N, C, D, H, W]`; displacements have components (x, y, z) in voxels of the fixed
//! grid.

pub mod layers;
pub mod transmorph;

pub use transmorph::{Resolution, TransMorph, TransMorphConfig, Variant};
