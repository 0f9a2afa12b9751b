//! Medical images: what they are, their files, how registrations of them are measured, and synthetic ones.
//!
//! # Map of the crate
//! Arrows point down only (a test of the workspace, `tests/architecture.rs`, enforces it):
//! ```text
//! synth              seeded brain-like images with labels and known warps
//! metrics    io      Dice, distances, folds; NIfTI files, transforms, landmarks
//!   > image > error  volumes and their geometry; what can go wrong, and the way out
//! ```
//! Nothing here runs a kernel. Read `image/mod.rs` first.

pub mod error;
pub mod image;
pub mod io;
pub mod metrics;
pub mod synth;

pub use error::{Error, Result};
