//! What a registration finds: maps from the fixed to the moving image, and what they do to images.
//!
//! A [`Displacement`] lives on the fixed grid, in voxels; read `displacement.rs` first. A [`Composite`]
//! is a chain of displacements, B-splines, affine maps, inverses of them and maps of other crates (`PointMap`) in
//! millimetres, evaluated in `points.rs`; [`read_transform`] and [`write_transform`] are files.
//! [`rotations`] are starts of a search, spread evenly.
//! [`resample`] carries tensors from one grid to another through physical space.

mod bspline;
mod composite;
mod displacement;
mod file;
mod points;
mod resample;
mod rotations;
mod round_trip;
mod step;

#[cfg(test)]
mod tests;

pub use bspline::BsplineTransform;
pub use composite::{Composite, GridMap};
pub use displacement::Displacement;
pub use file::{read_transform, write_transform};
pub use resample::{affine_tensor, map_vectors, resample};
pub use rotations::rotations;
pub use round_trip::RoundTrip;
pub use step::Step;
