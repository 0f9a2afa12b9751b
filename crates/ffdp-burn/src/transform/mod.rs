//! What a registration finds: maps from the fixed to the moving image, and what they do to images.
//!
//! A [`Displacement`] lives on the fixed grid, in voxels; read `displacement.rs` first. A [`Composite`]
//! is a chain of displacements and affine maps in millimetres.
//! [`resample`] carries tensors from one grid to another through physical space.

mod composite;
mod displacement;
mod resample;

#[cfg(test)]
mod tests;

pub use composite::{Composite, Step};
pub use displacement::Displacement;
pub(crate) use resample::affine_tensor;
pub use resample::{map_vectors, resample};
