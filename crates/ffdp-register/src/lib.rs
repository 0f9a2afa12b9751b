//! The engine: multi-resolution registration of two volumes, in stages.
//!
//! [`register`] takes a [`Problem`] (a fixed and a moving [`Volume`](ffdp_image::image::Volume), each on
//! its own grid) and finds the [`Composite`](ffdp_burn::transform::Composite) transform that carries the
//! moving image onto the fixed one. Start reading at `run.rs`: a run is a list of stages, a stage
//! a list of levels (`level.rs`), a level the iterations of a solver (`methods/`);
//! `pyramid.rs` makes the levels' images, `settings/` holds every number that can be chosen.
//!
//! ```
//! use ffdp_register::{
//!     GreedySettings, LevelSettings, Problem, Settings, Silent, Stage, register,
//! };
//! use ffdp_image::synth::{PhantomSettings, pair};
//! use burn::tensor::Device;
//!
//! let pair = pair(&PhantomSettings::with_size([24, 24, 24]), 7)?;
//! let greedy = GreedySettings {
//!     levels: vec![LevelSettings { shrink: 2.0, iterations: 20 }],
//!     ..GreedySettings::default()
//! };
//! let settings = Settings { stages: vec![Stage::Greedy(greedy)], ..Settings::default() };
//! let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
//! let result = register(&problem, &settings, &Device::flex(), &mut Silent)?;
//! assert!(result.loss_after < result.loss_before);
//! # Ok::<(), ffdp_image::Error>(())
//! ```

mod checkpoint;
mod context;
mod convergence;
mod coverage;
mod fields;
mod histogram;
mod level;
mod methods;
mod observer;
mod pair;
mod places;
mod prepare;
mod problem;
mod processes;
mod pyramid;
mod report;
mod run;
mod schedule;
mod settings;
mod shards;
mod slabs;
mod source;
mod verdict;

#[cfg(test)]
mod tests;

pub use checkpoint::{Checkpoint, SavedField};
pub use coverage::{background, ends_inside};
pub use level::Solver;
pub use methods::*;
pub use observer::{Observer, Silent};
pub use places::{LevelMemory, Placement};
pub use prepare::MINIMUM_OVERLAP_PERCENT;
pub use problem::Problem;
pub use pyramid::{
    LevelImage, MINIMUM_AXIS_VOXELS, finest_spacing_mm, level_geometry, level_image,
    level_smoothing,
};
pub use report::{LevelReport, LevelStart, NewtonStep, Progress, StageReport, Stop, Undone};
pub use run::{Outcome, Registration, register, register_on, resume, resume_on};
pub use schedule::{Preset, Settings, matrix};
pub use settings::*;
pub use shards::shards_needed;
pub use slabs::{Folding, SlabProblem, SlabRegistration, Warp, register_slabs, resume_slabs};
pub use verdict::{Assessment, Evidence, MOST_INVERSE_ERROR_VOXELS, Verdict};
