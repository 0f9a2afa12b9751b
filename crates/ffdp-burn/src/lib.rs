//! FFDP for Rust: fused 3-D image registration operations as Burn backend extensions.
//!
//! # Map of the crate
//! Arrows point down only (a test in `tests/architecture.rs` enforces it):
//! ```text
//! losses, transform     similarity and regularisation; what a displacement is
//! baseline              the ops from Burn's own tensor operations: the yardstick
//!   > ops               fused kernels with hand-derived gradients
//! ffdp-image            volumes, files, metrics, phantoms: `image`, `io`, `metrics`, `synth`, `error`
//! ```
//! Read `ops/grid_sample/mod.rs` first: every other op is a module of the same shape.

pub mod baseline;
pub mod losses;
pub mod ops;
pub mod transform;
