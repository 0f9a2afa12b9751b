//! The engine: multi-resolution deformable registration of two volumes.
//!
//! [`register`] takes a fixed and a moving [`Volume`](crate::image::Volume), each on its own grid,
//! and finds the [`Displacement`](crate::transform::Displacement) that carries the moving image
//! onto the fixed one. Start reading at `run.rs`; `greedy.rs` is one level, `pyramid.rs` the
//! levels, `settings.rs` every number that can be chosen.
//!
//! There is no rigid or affine stage: the images are placed by their headers, and what these do
//! not align is left to the deformation, which reaches only a few voxels of the coarsest level.
//!
//! ```
//! use ffdp_burn::register::{LevelSettings, Settings, Silent, register};
//! use ffdp_burn::synth::{PhantomSettings, pair};
//! use burn::tensor::Device;
//!
//! let pair = pair(&PhantomSettings::with_size([24, 24, 24]), 7)?;
//! let settings = Settings {
//!     levels: vec![LevelSettings { shrink: 2.0, iterations: 20 }],
//!     ..Settings::default()
//! };
//! let device = Device::flex();
//! let result = register(&pair.fixed.image, &pair.moving.image, &settings, &device, &mut Silent)?;
//! assert!(result.loss_after < result.loss_before);
//! # Ok::<(), ffdp_burn::Error>(())
//! ```

mod convergence;
mod greedy;
mod observer;
mod prepare;
mod pyramid;
mod run;
mod settings;

#[cfg(test)]
mod tests;

pub use observer::{LevelStart, Observer, Progress, Silent};
pub use prepare::MINIMUM_OVERLAP_PERCENT;
pub use pyramid::{LevelImage, MINIMUM_AXIS_VOXELS, level_geometry, level_image};
pub use run::{LevelReport, Outcome, Registration, Stop, register};
pub use settings::{
    ConvergenceSettings, LevelSettings, LnccSettings, MiSettings, Settings, Similarity,
};
